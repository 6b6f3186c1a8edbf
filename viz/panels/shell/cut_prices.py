"""What work costs in the cut: estimated, or as the kernels of this machine took, on request."""

from contextlib import suppress

import streamlit as st

from relascope.core.errors import EngineError
from relascope.engine.jobs.cut import forward_times
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.targets import EngineInfo
from relascope.passes.cost import MeasuredKernels
from relascope.viz.panels.shell.frame import boundary, one_of
from relascope.viz.panels.shell.screen import Screen

PRICES = {"estimated": "Estimated", "measured": "Measured here"}
_HELP = (
    "What it costs to compute a tensor again. *Estimated* is arithmetic and bytes moved on a "
    "nominal machine. *Measured here* builds the forward for the target that is chosen under "
    "Compile & time, times every kernel, and gives each node its part of its kernel's time."
)


def control() -> None:
    """Whether work is estimated or measured."""
    named = PRICES.__getitem__
    one_of("Price of work", list(PRICES), "keep_prices", format_func=named, help=_HELP)


def request_of(screen: Screen) -> BuildRequest:
    """What is timed, as chosen under "Compile & time"; EngineError, kind "target", if nothing runs
    here."""
    state = st.session_state
    engine: EngineInfo = screen.cache.ask("describe")
    best, here = engine.best, [t.name for t in engine.targets if t.runs_here]
    target = state.get("keep_target")
    return BuildRequest(
        screen.source,
        screen.pipeline,
        target if target in here else best,
        int(state.get("keep_threads", 0)),
        int(state.get("keep_repeats", 30)),
    )


def measured(screen: Screen) -> MeasuredKernels | None:
    """What the forward's kernels took, where that is wished and known."""
    with suppress(EngineError):  # told by `ask`, where it can be tried again
        if _wished() and screen.cache.peek("profile", request := _request(screen)) is not None:
            return forward_times(screen.cache.ask, request)
    return None


def ask(screen: Screen) -> None:
    """Time the kernels where that is wished and not done; the page runs again with the times."""
    if not _wished():
        return
    with boundary(screen.cache, "_prices"):
        request = _request(screen)
        if screen.cache.peek("profile", request) is None:
            screen.cache.ask("profile", request)
            st.rerun()


def _wished() -> bool:
    return bool(st.session_state.get("keep_prices") == "measured")


def _request(screen: Screen) -> BuildRequest:
    return request_of(screen).split_at(())
