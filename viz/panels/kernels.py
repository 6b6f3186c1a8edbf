"""Every kernel's time below the timings: a table, and a heat map on the graph."""

from __future__ import annotations

from typing import Any

import streamlit as st

from engine.kernels import Profile
from engine.session import EngineError
from passes.catalogue import last_built
from viz import palette, tables
from viz.component import graph_view
from viz.graph import Graph
from viz.panels.desk import Desk, Request, Waiting
from viz.panels.frame import heading, show_error, strip, waiting
from viz.panels.screen import Screen

_HEIGHT = 560


def show(desk: Desk, screen: Screen, request: tuple[Any, ...]) -> None:
    """Draw the section: a button, then what the engine's `profile` says.

    Args:
        request: the arguments of `time`, which are those of `profile`.
    """
    heading("Where does the time go?")
    if st.button("Time each kernel", key="profile"):
        desk.forget(Request("profile", request))
        st.session_state.profile_of = request
    if st.session_state.get("profile_of") != request:
        st.caption(
            "Runs the same program kernel by kernel: what each takes, reads and writes, what is in "
            "its results, and which nodes of the graph it computes."
        )
        return
    try:
        profile: Profile = desk.ask("profile", *request)
        built = last_built(screen.ir, screen.pipeline)
        graph: Graph = desk.ask("graph_after", screen.source, screen.pipeline, built)
    except Waiting:
        waiting(desk)
        return
    except EngineError as error:
        show_error(error)
        st.session_state.profile_of = None
        return
    document = desk.derive(lambda: tables.profile_document(profile, graph), "kernels", request)
    strip(
        [
            (document["machine"], ""),
            (str(document["threads"]), "threads"),
            (str(document["repeats"]), "repeats"),
            (f"{float(document['error']['max_abs']):.1e}", "largest error against PyTorch"),
        ]
    )
    for note in document["notes"]:
        st.warning(note)
    for phase in document["phases"]:
        st.caption(tables.phase_text(phase))
    if document["first_bad"] is not None:
        bad = document["kernels"][document["first_bad"]]
        st.error(f"The first kernel that puts out NaN or infinity is {bad['name']}.")
    chosen = _table(document["kernels"])
    shares = tables.heat(profile)
    graph_view(
        graph,
        key="heat_view",
        height=_HEIGHT,
        fewer_than=screen.fewer_than,
        highlight={n.id: palette.heat(shares.get(n.id)) for n in graph},
        focus=chosen["nodes"][-1] if chosen and chosen["nodes"] else None,
    )


def _table(kernels: list[tables.Row]) -> tables.Row | None:
    """The kernels, the slowest first; the chosen one."""
    rows = sorted(kernels, key=lambda k: -k["median_ms"])
    number = st.column_config.NumberColumn(format="%.4g")
    event = st.dataframe(
        [
            {
                "kernel": k["name"],
                "phase": k["phase"],
                "median": k["median_ms"],
                "share": 100 * k["share"],
                "computes": ", ".join(k["operators"]) or "no node of the graph",
                "in": k["scope"],
                "reads": tables.size(k["bytes_in"]),
                "writes": tables.size(k["bytes_out"]),
                **_output(k["outputs"]),
                "order": k["index"] + 1,
            }
            for k in rows
        ],
        hide_index=True,
        key="kernel_table",
        on_select="rerun",
        selection_mode="single-row",
        placeholder="–",
        column_config={
            "median": st.column_config.NumberColumn(format="%.3f ms"),
            "share": st.column_config.NumberColumn(format="%.1f %%"),
            "min": number, "max": number, "mean": number,
        },
    )  # fmt: skip
    chosen = event["selection"]["rows"]
    return rows[chosen[0]] if chosen and chosen[0] < len(rows) else None


def _output(outputs: list[tables.Row]) -> tables.Row:
    """What a kernel put out, in cells; of several tensors together."""
    low = [o["minimum"] for o in outputs if o["minimum"] is not None]
    high = [o["maximum"] for o in outputs if o["maximum"] is not None]
    return {
        "result": ", ".join(f"{tables.shape_text(o['shape'])} {o['dtype']}" for o in outputs),
        "min": min(low, default=None),
        "max": max(high, default=None),
        "mean": outputs[0]["mean"] if len(outputs) == 1 else None,
        "NaN or Inf": sum(o["nans"] + o["infinities"] for o in outputs),
    }
