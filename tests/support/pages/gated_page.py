"""The graph viewer alone, behind the app's gate."""

from streamlit.starlette import App

from relascope.viz.gate import gated

app = App("graph_page.py", **gated())
