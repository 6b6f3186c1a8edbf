"""The plan of memory after a step: its storages over the steps. A click goes to the node."""

import streamlit as st

from relascope.viz.panels.shell.frame import heading
from relascope.viz.panels.shell.table import show_sections, table
from relascope.viz.panels.steps import changes
from relascope.viz.rows import Row
from relascope.viz.rows.memory import memory_sections

_CHART = "memory_chart"


def show(document: Row, place: str) -> None:
    """Draw a document of `memory_document`, of a step whose change has this place."""
    from relascope.viz import charts  # pandas, not with the page

    *said, chart, tensors = memory_sections(document)
    heading(chart["title"])
    show_sections(said, "memory")

    def clicked() -> None:
        told = st.session_state[_CHART]["selection"].get(charts.CLICKED) or []
        changes.choose(place, told[0]["id"] if told else None)

    st.altair_chart(
        charts.storages(document, clickable=True),
        key=_CHART,
        on_select=clicked,
        selection_mode=[charts.CLICKED],
    )
    st.caption(f"{chart['note']} Click a bar to go to the node that writes it.")
    with st.expander(f"{len(tensors['rows'])} tensors"):
        table(
            tensors["rows"],
            key=f"tensors_{place}",
            on_pick=lambda row: changes.choose(place, None if row is None else tensors["ids"][row]),
        )
