"""In the tab of the gradient: chosen cuts, built and measured, estimate beside measurement."""

from functools import partial
from typing import Any

import streamlit as st

from relascope.engine.jobs import cut as cutting
from relascope.engine.protocol.plain import plain
from relascope.passes.cuts import cut as cuts
from relascope.viz.panels.shell import cut_prices
from relascope.viz.panels.shell.cut_choice import cut_of, joint_of
from relascope.viz.panels.shell.frame import boundary, heading
from relascope.viz.panels.shell.holding import pressed
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.panels.shell.table import table
from relascope.viz.rows import formats, tables

CHOSEN = "chosen"
_HELP = (
    "Splits the program at each cut, compares it with PyTorch, times it beside PyTorch eager, and "
    "watches what its kernels write. *Keep everything that crosses* is measured with them, for "
    "the work of the others is how much longer they take than it."
)


def show(screen: Screen) -> None:
    """Draw the section: which cuts, a button, and the table of what was measured."""
    heading("Measured")
    state = st.session_state
    offered = [CHOSEN, *(n for n, s in cuts.STRATEGIES.items() if not s.has_budget)]
    state.setdefault("keep_points", [CHOSEN, cutting.BASE])
    which, button = st.columns([5, 1.2], vertical_alignment="bottom")
    named = partial(_title, screen)
    names = which.multiselect(
        "Cuts to measure", offered, key="keep_points", help=_HELP, format_func=named
    )
    if pressed("Measure", "measure", button, disabled=not names, width="stretch"):
        state.points = {**_asked(screen), **_wanted(screen, names)}
        state.points_of = screen.place
    asked = _asked(screen)
    if not asked:
        return
    done: list[cutting.Point] = []
    with boundary(screen.cache, "_points"):
        request = cut_prices.request_of(screen)
        cutting.measure(screen.cache.ask, request, tuple(asked.values()), done.append)
    if done:
        table(plain(done), tables.MEASURED)
        st.caption(
            "Work again is a share of the forward's time. Measured, it is how much longer forward "
            "and backward take than where everything is kept; a little below nothing is noise."
        )


def _wanted(screen: Screen, names: list[str]) -> dict[Any, tuple[str, cuts.Cut]]:
    """The cuts by what they save: one that two names stand for is measured once."""
    found: dict[Any, tuple[str, cuts.Cut]] = {}
    for name in names:
        joint, now = joint_of(screen), cut_of(screen)[0]
        cut = now if name == CHOSEN else cuts.cut(joint, name)
        found.setdefault(cut.ids, (_title(screen, name), cut))
    return found


def _title(screen: Screen, name: str) -> str:
    if name != CHOSEN:
        return cuts.STRATEGIES[name].title
    cut = cut_of(screen)[0]
    return f"Now: {cuts.STRATEGIES[cut.strategy].title}, {formats.size(cut.bytes)}"


def _asked(screen: Screen) -> dict[Any, tuple[str, cuts.Cut]]:
    """What was asked for of this program, in this session."""
    state = st.session_state
    found: dict[Any, tuple[str, cuts.Cut]] = state.get("points") or {}
    return found if state.get("points_of") == screen.place else {}
