"""Every kernel's time below the timings: a table, and a heat map on the graph."""

from dataclasses import replace

import streamlit as st

from relascope.engine.protocol.profile import Peaks, Profile
from relascope.engine.protocol.request import BuildRequest
from relascope.viz.charts.roofline import CHOICE, roofline
from relascope.viz.component.views import graph_view
from relascope.viz.drawing.drawing import Overlay
from relascope.viz.handed_on.chrome_trace import trace_json
from relascope.viz.panels.shell import noting
from relascope.viz.panels.shell.frame import boundary, download, section
from relascope.viz.panels.shell.holding import pressed
from relascope.viz.panels.shell.request_cache import RequestCache
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.panels.shell.table import clicked, grid, picked, show_sections
from relascope.viz.rows import Row, formats
from relascope.viz.rows import profile as rows_of
from relascope.viz.sessions import results

_CHOSEN = "kernel_chosen"  # index of the kernel whose row or dot was clicked last
_LABELS = ("under 1 % of the time", "1 to 5 %", "5 to 20 %", "over 20 % of the time")
_TURN = "peaks_turn"  # how often the peaks were measured again


def show(screen: Screen, request: BuildRequest) -> None:
    """Draw the section: a button, then the result of the engine's `profile`."""

    def forget() -> None:
        screen.cache.forget("profile", request)
        st.session_state[_CHOSEN] = None

    about = (
        "Runs the same program kernel by kernel, and shows each one's time, reads and writes, "
        "results, and the nodes of the graph that it computes."
    )
    title, label = "Where does the time go?", "Time each kernel"
    if section(title, label, "profile", about, request, forget):
        with boundary(screen.cache, "_profile"):
            _show(screen, request)
    else:
        noting.show_kept(screen, "profile")


def _show(screen: Screen, request: BuildRequest) -> None:
    profile: Profile = screen.cache.ask("profile", request)
    noting.note_result(screen, "profile", results.saved_kernels(request, profile))
    graph = screen.graph_after(screen.built)
    peaks = _peaks(screen.cache, profile, request)
    measured = replace(profile, peaks=peaks)
    key = "kernels", request, peaks
    document = screen.derive(lambda: rows_of.profile_document(measured, graph), *key)
    shown = rows_of.profile_sections(document)
    show_sections(shown[:-2], "profile")
    named = {**document, "model": screen.label, "engine": screen.ir}
    help = "One run's kernels on a line of time, for chrome://tracing or ui.perfetto.dev."
    download("As a trace (.json)", trace_json(named), "trace.json", "trace", help=help)
    _roofline(document)
    chosen = _table(rows_of.listed_kernels(document), shown[-1]["rows"])
    focus = chosen["nodes"][-1] if chosen and chosen["nodes"] else None
    look = screen.view(560, overlays=_overlays(profile), overlay="time", focus=focus)
    graph_view(graph, look, key="heat_view")


def _overlays(profile: Profile) -> list[Overlay]:
    kernels = {node: k.name for k in reversed(profile.kernels) for node in k.nodes}
    return [
        Overlay(
            "time",
            "Share of the time",
            rows_of.heat(profile),
            unit="share",
            limits=(0.01, 0.05, 0.2),
            labels=_LABELS,
            none="no kernel of its own",
        ),
        Overlay("kernel", "Kernel", kernels),
    ]


def _peaks(cache: RequestCache, profile: Profile, request: BuildRequest) -> Peaks | None:
    """The machine's peaks: as measured with the profile, or later on request."""
    turn = st.session_state.get(_TURN, 0)
    if not turn:
        return profile.peaks
    types = tuple(dict.fromkeys(k.dtype for k in profile.kernels if k.dtype))
    with boundary(cache, "_peaks"):
        return cache.ask("peaks", request.target, request.threads, types, turn)
    return profile.peaks


def _roofline(document: Row) -> None:
    chosen = picked("kernel_table", len(document["kernels"]))
    chart = roofline(document, None if chosen is None else st.session_state.get(_CHOSEN))
    if chart is not None:
        st.altair_chart(chart, key="roofline_chart", on_select=_from_chart, selection_mode=[CHOICE])
    words, again = st.columns([3, 1.2], vertical_alignment="center")
    words.caption(rows_of.peaks_text(document["peaks"]))
    about = "Measures the machine's peaks again; on a busy machine they come out too low."
    if pressed("Measure again", "peaks_again", again, width="stretch", help=about):
        st.session_state[_TURN] = st.session_state.get(_TURN, 0) + 1
        st.rerun()
    hidden = sum(not (k["intensity"] and k["flops_per_second"]) for k in document["kernels"])
    if hidden:
        words.caption(
            f"{hidden} of {len(document['kernels'])} kernels have no known arithmetic: only the "
            "table lists them."
        )


def _from_chart() -> None:
    point = clicked("roofline_chart", CHOICE)
    st.session_state[_CHOSEN] = int(point["index"]) if point else None


def _table(rows: list[Row], cells: list[Row]) -> Row | None:
    """Draw kernels; the one chosen by its row or its dot in the chart."""

    def from_table(row: int | None) -> None:
        st.session_state[_CHOSEN] = None if row is None else rows[row]["index"]

    more = ({**_output(row["outputs"]), "order": row["index"] + 1} for row in rows)
    grid(
        [cell | other for cell, other in zip(cells, more, strict=True)],
        key="kernel_table",
        on_pick=from_table,
        bars=["of peak"],
        signs="phase",
        help={
            "of peak": "The least time that the machine's peaks allow, divided by its time; empty "
            "if its FLOPs are unknown.",
            "of FLOP/s": "Its FLOPs per second, divided by the machine's peak.",
        },
    )
    return next((k for k in rows if k["index"] == st.session_state.get(_CHOSEN)), None)


def _output(outputs: list[Row]) -> Row:
    """A kernel's results as cells, several tensors together."""
    return {
        "result": ", ".join(f"{formats.shape_text(o['shape'])} {o['dtype']}" for o in outputs),
        "min": min([o["minimum"] for o in outputs if o["minimum"] is not None], default=None),
        "max": max([o["maximum"] for o in outputs if o["maximum"] is not None], default=None),
        "mean": outputs[0]["mean"] if len(outputs) == 1 else None,
        "NaN or Inf": sum(o["nans"] + o["infinities"] for o in outputs),
    }
