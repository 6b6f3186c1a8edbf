"""Hostile names as the page shows them: in sentences, and in the viewer."""

import streamlit as st

from graphs import Builder
from pages.hostile_names import HOSTILE
from relascope.core.graph import Kind
from relascope.viz.component.views import define, graph_view
from relascope.viz.panels.shell.frame import plain_text

LONG = "".join(HOSTILE) * 40

for i, name in enumerate(HOSTILE):
    with st.container(key=f"said{i}"):
        st.caption(plain_text(name))
b = Builder(HOSTILE[0])
b.scope = f"{HOSTILE[0]}.{LONG}"
b.add(Kind.INPUT, name=LONG, id=HOSTILE[0])
define()
graph_view(b.graph(HOSTILE[0]), key="view")
