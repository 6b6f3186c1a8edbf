"""A page with the graph viewer alone; `?graph=NAME` chooses what it shows. With `?plan=1` it has a
plan of memory in which two tensors overlap, and the node that was chosen."""

import streamlit as st

from graphs import GRAPHS, graph_of
from relascope.viz.component.views import define, graph_view, selected_of, toggled
from relascope.viz.drawing.drawing import View
from relascope.viz.panels.steps import changes
from relascope.viz.rows.memory import memory_document

PLAN = (
    "x; s memory.alloc_storage total_space=[84]; a memory.alloc_tensor s offset=0; "
    "p scale x a writes=[1]; b memory.alloc_tensor s offset=0; q shift x b writes=[1]; "
    "o builtin.alloc_tensor; r difference p q o writes=[2]"
)

st.set_page_config(layout="wide")
define()
if "plan" in st.query_params:
    changes.memory(memory_document(graph_of(PLAN, ir="relax", of="3x7")), "here", "view")
    st.write(f"selected: {selected_of('view')}")
    st.stop()
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
