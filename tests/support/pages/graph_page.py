"""A page with the graph viewer alone; `?graph=NAME` chooses what it shows."""

import streamlit as st

from graphs import GRAPHS
from relascope.viz.component import graph_view

st.set_page_config(layout="wide")
name = st.selectbox("Graph", list(GRAPHS), key="graph", bind="query-params") or "layer"


@st.cache_resource
def made(name: str):
    return GRAPHS[name]()


state = graph_view(made(name), key="view")
st.write(f"selected: {state.selected}")
st.write(f"open: {len(state.open_groups)}")
