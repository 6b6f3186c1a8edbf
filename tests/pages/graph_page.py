"""A page with the graph viewer alone; `?graph=NAME` chooses what it shows."""

import sys
from pathlib import Path

import streamlit as st

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]

from graphs import GRAPHS  # noqa: E402

from viz.component import graph_view  # noqa: E402

st.set_page_config(layout="wide")
name = st.selectbox("Graph", list(GRAPHS), key="graph", bind="query-params") or "layer"


@st.cache_resource
def made(name: str):
    return GRAPHS[name]()


state = graph_view(made(name), key="view")
st.write(f"selected: {state.selected}")
st.write(f"open: {len(state.open_groups)}")
