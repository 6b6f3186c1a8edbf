"""The app that `relascope` serves: the page behind its gate."""

from importlib import import_module
from threading import Thread

from streamlit.starlette import App

from relascope.viz.gate import gated

app = App("page.py", **gated())

# Importing the page takes a second, in which the browser loads its own scripts.
Thread(target=import_module, args=("relascope.viz.page",), daemon=True).start()
