"""A page with a plan of memory in which two tensors overlap, and the node that was chosen."""

import streamlit as st

from graphs import graph_of
from relascope.viz.component import selected_of
from relascope.viz.panels.steps import changes
from relascope.viz.rows.memory import memory_document

PLAN = (
    "x; s memory.alloc_storage total_space=[84]; a memory.alloc_tensor s offset=0; "
    "p scale x a writes=[1]; b memory.alloc_tensor s offset=0; q shift x b writes=[1]; "
    "o builtin.alloc_tensor; r difference p q o writes=[2]"
)
plan = memory_document(graph_of(PLAN, ir="relax", of="3x7"))
assert plan is not None
changes.memory(plan, "here", "view")
st.write(f"selected: {selected_of('view')}")
