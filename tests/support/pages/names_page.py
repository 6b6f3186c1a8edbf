"""Hostile names as the page shows them: in sentences, and in the viewer."""

import streamlit as st

from pages.hostile_names import HOSTILE
from relascope.core.graph import Graph, Kind, Node, TensorType
from relascope.viz.component.views import define, graph_view
from relascope.viz.panels.shell.frame import plain_text

LONG = "".join(HOSTILE) * 40

for i, name in enumerate(HOSTILE):
    with st.container(key=f"said{i}"):
        st.caption(plain_text(name))
node = Node(
    HOSTILE[0],
    Kind.INPUT,
    name=LONG,
    outputs=(TensorType((8,), "float32"),),
    scope=f"{HOSTILE[0]}.{LONG}",
)
define()
graph_view(Graph(HOSTILE[0], "relay", (node,), (node.id,), (node.id,)), key="view")
