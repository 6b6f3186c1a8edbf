"""The page behind its gate: `streamlit run app.py`."""

from streamlit.starlette import App

from relascope.viz.gate import gated

app = App("viz/page.py", **gated())
