"""A page with the graph viewer alone; `?graph=NAME` chooses what it shows."""

import streamlit as st

from graphs import GRAPHS
from relascope.viz.component import graph_view, selected_of, toggled
from relascope.viz.drawing.drawing import View

st.set_page_config(layout="wide")
name = st.selectbox("Graph", list(GRAPHS), key="graph", bind="query-params") or "layer"


@st.cache_resource
def made(name: str):
    return GRAPHS[name]()


def alone(module: str) -> None:
    st.session_state.alone = module


graph_view(made(name), View(open_alone=alone), key="view")
st.write(f"alone: {st.session_state.get('alone')}")
st.write(f"selected: {selected_of('view') or None}")
st.text(f"toggled: {toggled('view')}")
