"""In the tab of the gradient: bytes against time added, PyTorch's beside it, and measured."""

from contextlib import suppress
from functools import partial
from typing import Any

import streamlit as st
from streamlit import session_state as state

from relascope.core.errors import EngineError
from relascope.engine.jobs import cut as cutting
from relascope.engine.protocol.plain import plain
from relascope.engine.protocol.times import BUDGETS, TorchSaved
from relascope.passes.cuts import cut as cuts
from relascope.viz.charts import charts
from relascope.viz.panels.presenting import along
from relascope.viz.panels.shell.cut_choice import frontier_of, request_of, screen_cut, screen_joint
from relascope.viz.panels.shell.frame import boundary, heading, one_of, plain_text
from relascope.viz.panels.shell.holding import ask, pressed, put
from relascope.viz.panels.shell.request_cache import Waiting
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.panels.shell.table import clicked, grid
from relascope.viz.rows import Row, formats, tables

_READ = (
    "Time added is the time of recomputation, estimated or from measured kernels, less that of the "
    "writes and reads it spares, as a share of the forward's time. "
    "The line joins the cuts that are optimal at some price of time for bytes. Click a point to "
    "choose it. Between two of its points, *Within a budget* finds the best cuts near it. Where "
    "the gradient is PyTorch's, its partitioner's cuts are estimated on PyTorch's own graph, with "
    "Inductor's decompositions; else only their bytes are drawn, as dashed lines and ticks. "
    "PyTorch eager recomputes nothing."
)
_RANGE = (
    "Asks PyTorch's partitioner for its cut within each `activation_memory_budget` from 1 to 0, "
    "which takes long for a large model. Points are labelled with their budget."
)


def show(screen: Screen, cut: cuts.Cut) -> None:
    """Draw the chart; PyTorch's figures join it when they are here."""
    joint = screen_joint(screen)
    axis = one_of("Against time added", list(tables.AXES), "keep_cut_axis", width="stretch")
    field = tables.AXES[axis]
    peaks = field != "bytes"
    of = "frontiers", joint.measured, peaks, frozenset(joint.peaks.items())
    document = screen.derive(lambda: tables.frontier_document(joint, peaks), *of)
    if cut.strategy == "frontier":  # the line that the slider moves along
        line = frontier_of(screen)
        rows = tables.frontier_rows(joint, reversed(line), peaks)
        document = {**document, "frontier": rows, "proven": line.proven}
    document = {**document, "measured": plain(_measured(screen))}
    known = _known(screen)
    rivals = tables.torch_saved_document(known) if known else None
    here = {"what": f"chosen: {cuts.STRATEGIES[cut.strategy].title}", **tables.cut_row(cut, True)}
    # A choice begins a chart anew.
    key = f"frontier_{field}_{cut.strategy}_{cut.bytes}_{cut.net_share:.9f}"
    st.altair_chart(
        charts.frontier(document, rivals, here, field, clickable=True),
        key=key,
        on_select=partial(_clicked, key),
        selection_mode=[charts.CLICKED],
    )
    st.html(charts.frontier_legend(document, rivals, field))
    st.caption(tables.PROVEN if document["proven"] else tables.STOPPED, help=_READ)
    if known is not None:
        if known.cuts:
            ask(st.toggle, "PyTorch's whole range of budgets", key="keep_torch_range", help=_RANGE)
        if said := f"{known.note}{tables.masks_line(rivals or {})}":
            st.caption(plain_text(said))


def _known(screen: Screen) -> TorchSaved | None:
    """What PyTorch keeps, as far as it was asked."""
    known: TorchSaved | None = None
    for budgets in BUDGETS[: 1 + bool(state.get("keep_torch_range"))]:
        with suppress(EngineError):  # told below, where it can be tried again
            known = screen.cache.peek("torch_saved", screen.source, budgets) or known
    return known


def _measured(screen: Screen) -> list[cutting.Point]:
    """What was measured of this program, as far as it is here."""
    done: list[cutting.Point] = []
    with suppress(EngineError, Waiting):
        if asked := _asked(screen):
            here, request = screen.cache.look_up, request_of(screen)
            cutting.measure_cuts(here, request, asked.values(), done.append)
    return done


def _clicked(key: str) -> None:
    if (told := clicked(key, charts.CLICKED)) is None:
        return
    if name := told.get("strategy"):
        put("keep_strategy", name)
        if name == "peak":
            put("keep_budget", 0)  # the lowest that there is
    else:
        along(int(told["bytes"]))


def ask_torch_saved(screen: Screen) -> None:
    """Ask for PyTorch's figures where they are not known; the page runs again with them."""
    with boundary(screen.cache, "_torch_saved"):
        for budgets in BUDGETS[: 1 + bool(state.get("keep_torch_range"))]:
            if screen.cache.peek("torch_saved", screen.source, budgets) is None:
                screen.cache.ask("torch_saved", screen.source, budgets)
                st.rerun()


CHOSEN = "chosen"
_HELP = (
    "Splits the program at each cut, compares it with PyTorch, times it beside PyTorch eager, and "
    "watches what its kernels write. *Keep everything that crosses* is measured with them, because "
    "the others' work is how much longer than it they take."
)


def show_measured(screen: Screen) -> None:
    """Draw the section: which cuts, a button, and the table of what was measured."""
    heading("Measured")
    offered = [CHOSEN, *(n for n, s in cuts.STRATEGIES.items() if not s.needs_budget)]
    state.setdefault("keep_points", [CHOSEN, cutting.BASE])
    which, button = st.columns([5, 1.2], vertical_alignment="bottom")
    named = partial(_title, screen)
    names = which.multiselect(
        "Cuts to measure", offered, key="keep_points", help=_HELP, format_func=named
    )
    if pressed("Measure", "measure", button, disabled=not names, width="stretch"):
        _add(screen, names)
    asked = _asked(screen)
    if not asked:
        return
    done: list[cutting.Point] = []
    drawn = len(_measured(screen))
    with boundary(screen.cache, "_points"):
        request = request_of(screen)
        cutting.measure_cuts(screen.cache.ask, request, tuple(asked.values()), done.append)
    if len(done) > drawn:
        st.rerun()  # the chart has them, too
    if done:
        grid(plain(done), tables.MEASURED)
        st.caption(
            "Work again is a share of the forward's time. As measured, it is how much longer "
            "forward and backward take than with everything kept; slightly below zero is noise."
        )


def measure_it(screen: Screen, document: Row) -> None:
    """Draw a button beside an estimated peak that was not measured."""
    if "measured_peak_bytes" not in document and pressed("Measure it", "measure_it", help=_HELP):
        _add(screen, [CHOSEN])


def _add(screen: Screen, names: list[str]) -> None:
    """Ask for further cuts to be measured; one that two names stand for is measured once."""
    wanted = dict[Any, tuple[str, cuts.Cut]]()
    for name in names:
        cut = screen_cut(screen)[0] if name == CHOSEN else cuts.cut(screen_joint(screen), name)
        wanted.setdefault(cut.marked, (_title(screen, name), cut))
    state.points = {**_asked(screen), **wanted}
    state.points_of = screen.place


def _title(screen: Screen, name: str) -> str:
    if name != CHOSEN:
        return cuts.STRATEGIES[name].title
    cut = screen_cut(screen)[0]
    return f"Now: {cuts.STRATEGIES[cut.strategy].title}, {formats.size(cut.bytes)}"


def _asked(screen: Screen) -> dict[Any, tuple[str, cuts.Cut]]:
    """What was asked for of this program, in this session."""
    found: dict[Any, tuple[str, cuts.Cut]] = state.get("points") or {}
    return found if state.get("points_of") == screen.place else {}
