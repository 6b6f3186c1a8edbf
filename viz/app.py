"""What `relascope` serves: the page behind its gate."""

from importlib import import_module
from threading import Thread

from streamlit.starlette import App

from relascope.viz.gate import gated

app = App("page.py", **gated())

# The page takes a second to import: time that the browser needs for its own scripts.
Thread(target=import_module, args=("relascope.viz.page",), daemon=True).start()
