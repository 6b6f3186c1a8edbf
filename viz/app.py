"""What `relascope` serves: the page behind its gate."""

from streamlit.starlette import App

from relascope.viz.gate import gated

app = App("page.py", **gated())
