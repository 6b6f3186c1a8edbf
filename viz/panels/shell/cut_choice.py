"""The user's choice of a cut: strategy, budget, tensors forced by hand, and prices; and its cut."""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from typing import Any

import streamlit as st
from streamlit import session_state as state

from relascope.core.errors import EngineError
from relascope.core.graph import Graph
from relascope.engine.jobs import cut as cutting
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.targets import EngineInfo
from relascope.passes.cost import MeasuredKernels
from relascope.passes.cuts import cut as cuts
from relascope.passes.cuts.budget import HALF
from relascope.passes.cuts.frontier import Frontier, Prices, frontier
from relascope.passes.cuts.joint import MeasuredPeaks
from relascope.passes.cuts.problem import Wish
from relascope.viz.panels.shell.frame import boundary, one_of
from relascope.viz.panels.shell.holding import ask
from relascope.viz.panels.shell.request_cache import Waiting
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.rows import formats
from relascope.viz.sessions.results import cut_with
from relascope.viz.sessions.state import CutChoice

SAVE, RECOMPUTE = "save", "recompute"


def screen_joint(screen: Screen) -> cuts.Joint:
    """The joint graph for strategies, which caches results from cut to cut."""
    prices = _measured(screen)
    given = cutting.joint_of(screen.cache.ask, screen.source, screen.pipeline, *prices)
    joint = screen.derive(lambda: given, "joint", *prices)
    joint.peaks = measured_peaks(screen)
    return joint


def choice_of(screen: Screen) -> CutChoice:
    """The present choice; without tensors forced by hand if the strategy ignores them."""
    name = state.get("keep_strategy") or cuts.DEFAULT
    limits = state.get("keep_budget"), state.get("keep_frontier")
    offload = screen.ir != "relay" and bool(state.get("keep_offload"))
    choice = CutChoice(name, *limits, offload=offload, per_use=bool(state.get("keep_per_use")))
    return replace(choice, **forced_ids(screen)) if choice.rule.adapts else choice


def screen_cut(screen: Screen) -> tuple[cuts.Cut, Graph]:
    """The chosen cut, and the joint graph in its colours; raises as `cut_with`."""
    joint, choice = screen_joint(screen), choice_of(screen)

    def make() -> tuple[cuts.Cut, Graph]:
        found = cut_with(joint, choice)
        return found, joint.graph.with_roles(cuts.roles(joint, found.ids))

    return screen.derive(make, "cut", choice, joint.measured)


def strategy(screen: Screen) -> None:
    """The choice of strategy, which does not need the graph."""
    titles = {name: s.title for name, s in cuts.STRATEGIES.items()}
    about = "\n\n".join(f"**{s.title}.** {s.summary}" for s in cuts.STRATEGIES.values())
    how: Any = {"key": "keep_strategy", "format_func": titles.__getitem__, "help": about}
    ask(st.selectbox, "Strategy", list(titles), **how)
    ask(st.toggle, "Recompute per use", key="keep_per_use", help=_ABOUT_PER_USE)
    how = {"help": _ABOUT_OFFLOAD, "disabled": screen.ir == "relay"}
    ask(st.toggle, "Offload to the host", key="keep_offload", **how)


_ABOUT_PER_USE = (
    "The backward computes a value again for later readers, not once for all, if that lowers the "
    "peak. *Minimum cut* does so anyway, within its limit on time; *Within a peak* counts on it."
)
_ABOUT_OFFLOAD = (
    "Lets captures wait on the host if that lowers the peak; *Within a peak* then copies "
    "instead of recomputing if that takes less time. On the CPU, the host is simulated: memory "
    "that the peak does not count. Only Relax builds it, on a GPU without CUDA graphs."
)


def controls(screen: Screen) -> None:
    """The strategy's summary, and its slider if it has one."""
    choice = choice_of(screen)
    if choice.strategy == "frontier":
        _frontier_slider(screen)
    elif choice.rule.has_budget:
        _budget_slider(screen)
    st.caption(choice.rule.summary)


def _budget_slider(screen: Screen) -> None:
    """A slider from the least possible bytes to those of keeping everything that crosses."""
    joint, choice = screen_joint(screen), choice_of(screen)
    assert choice.rule.limit is not None
    whole, of_peak = choice.rule.limit(joint, Wish(1.0)) or 0, choice.strategy == "peak"

    def lowest() -> int:
        if of_peak:
            return cuts.cut(joint, "peak", None, (), (), *choice.how).peak_bytes
        return Prices(joint, Wish()).least().bytes

    least = screen.derive(lowest, "least", choice.strategy, choice.how, joint.measured)
    low = next((p for p in range(100) if int(p / 100 * whole) >= least), 100)
    state.keep_budget = max(state.get("keep_budget", round(100 * HALF)), low)
    if low == 100:
        fixed = "No cut lowers the peak" if of_peak else "Everything that crosses must be kept"
        st.caption(f"{fixed}: there is nothing to choose.")
    else:
        of = "the peak with everything kept" if of_peak else "everything that crosses"
        ask(st.slider, f"Budget, % of {of}", low, 100, key="keep_budget")


def frontier_of(screen: Screen, by_hand: bool = False) -> Frontier:
    """The frontier; with `by_hand`, it respects forced tensors under every strategy."""
    joint, choice = screen_joint(screen), choice_of(screen)
    wish = Wish()
    if by_hand or choice.strategy == "frontier":
        wish = Wish(None, joint.with_sought(choice.save), frozenset(choice.recompute))
    return screen.derive(lambda: frontier(joint, wish), "frontier", wish, joint.measured)


def _frontier_slider(screen: Screen) -> None:
    points = {p.bytes: p for p in reversed(frontier_of(screen))}
    joint = screen_joint(screen)
    asked = state.get("keep_frontier")
    if asked not in points:  # another model's: begin at half of the bytes
        limit = HALF * max(points) if asked is None else asked
        state.keep_frontier = max((b for b in points if b <= limit), default=min(points))
    if len(points) < 2:
        st.caption("The frontier is one cut: there is nothing to choose.")
        return
    added = {b: formats.net_text(joint.net_share(p.saved)) for b, p in points.items()}
    named = {b: f"{formats.size(b)}, {added[b]} time" for b in points}.__getitem__
    label = "Along the frontier: bytes kept, time added"
    ask(st.select_slider, label, list(points), key="keep_frontier", format_func=named)


def forced_by_hand(screen: Screen) -> dict[str, str]:
    """By node id, "save" or "recompute" for each forced tensor."""
    everywhere: dict[Any, dict[str, str]] = state.get("keep_by_hand") or {}
    return everywhere.get(screen.place, {})


def forced_ids(screen: Screen) -> dict[str, Any]:
    """The forced tensors as fields of a `CutChoice`: "save" and "recompute", in order."""
    forced = sorted(forced_by_hand(screen).items())
    return {way: tuple(i for i, w in forced if w == way) for way in (SAVE, RECOMPUTE)}


def force(screen: Screen, ids: Collection[str], decision: str | None) -> None:
    """Force tensors to be saved or recomputed, or (None) leave them to the strategy again."""
    forced = {i: w for i, w in forced_by_hand(screen).items() if i not in ids}
    if decision is not None:
        forced |= dict.fromkeys(ids, decision)
    state.keep_by_hand = {**(state.get("keep_by_hand") or {}), screen.place: forced}


_PRICES = {"estimated": "Estimated", "measured": "Measured here"}
_ABOUT_PRICES = (
    "What recomputing a tensor costs. *Estimated* counts arithmetic and bytes moved on a nominal "
    "machine. *Measured here* builds the forward for the target chosen under Compile & time, times "
    "every kernel, and divides each kernel's time among its nodes."
)


def prices() -> None:
    named = _PRICES.__getitem__
    one_of("Price of work", list(_PRICES), "keep_prices", format_func=named, help=_ABOUT_PRICES)


def request_of(screen: Screen) -> BuildRequest:
    """The request of "Compile & time". Raises EngineError of kind "target" if nothing runs here."""
    engine: EngineInfo = screen.cache.ask("describe")
    best, here = engine.best, [t.name for t in engine.targets if t.runs_here]
    target = state.get("keep_target")
    target = target if target in here else best
    how = int(state.get("keep_threads", 0)), int(state.get("keep_repeats", 30))
    return BuildRequest(screen.source, screen.pipeline, target, *how)


def measured_peaks(screen: Screen) -> MeasuredPeaks:
    """The measured peaks of cuts of this program, as far as they are here."""
    with suppress(EngineError, Waiting):
        return cutting.measured_peaks(request_of(screen), screen.cache.answers("time"))
    return {}


def _measured(screen: Screen) -> tuple[MeasuredKernels, float | None] | tuple[()]:
    """The times of the forward's kernels and of copies to the host, if requested and known."""
    with suppress(EngineError):  # `ask_prices` shows it, with a button to try again
        if _wished() and screen.cache.peek("profile", request_of(screen).split_at(())) is not None:
            return cutting.forward_times(screen.cache.ask, request_of(screen))
    return ()


def ask_prices(screen: Screen) -> None:
    """Time the kernels if requested and not done; the page then runs again with the times."""
    if not _wished():
        return
    with boundary(screen.cache, "_prices"):
        request = request_of(screen).split_at(())
        if screen.cache.peek("profile", request) is None:
            screen.cache.ask("profile", request)
            st.rerun()


def _wished() -> bool:
    return bool(state.get("keep_prices") == "measured")
