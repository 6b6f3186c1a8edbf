"""The tour: ten screens from a trace to a timing, each with a card that explains it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import streamlit as st
from streamlit import session_state as state

from relascope.passes.catalogue import default_pipeline
from relascope.viz.panels.presenting import present
from relascope.viz.panels.shell import keeping
from relascope.viz.sessions import address, store
from relascope.viz.sessions.state import Session


@dataclass(frozen=True)
class Stop:
    """One screen of the tour, with an explanation in Markdown and something to `do`."""

    title: str
    words: str
    do: str
    query: Mapping[str, str]  # the screen, as in an address
    at: str = ""  # the last step of a pass in the default pipeline
    choices: Mapping[str, str] = field(default_factory=dict)  # of switches within tabs
    show: bool = False  # a button begins the show of the joint graph

    def session(self) -> Session:
        found, _ = address.session_of(
            {"engine": ["relay"], **{n: [v] for n, v in self.query.items()}}
        )
        step = found.look.step
        if self.at:
            passes = default_pipeline("relay", found.model.training)
            step = max(i for i, one in enumerate(passes) if one.name == self.at)
        return replace(found, look=replace(found.look, step=step, choices=dict(self.choices)))


_TRAINING = {"mode": "training"}
_PASSES = {"tab": "Passes"}
_CUT = {"tab": "Gradient & cut", **_TRAINING}

STOPS = (
    Stop(
        "A trace becomes a graph",
        "PyTorch traced one BERT layer, and TVM's frontend imported the trace as this Relay "
        "program. A box is an operator call, a frame the PyTorch module it came from, and an edge "
        "a tensor. Scales, epsilons and other small constants are written into the box that reads "
        "them; drawn as boxes, they would fill half of the picture.",
        "Click a box to see its type, its size, and the PyTorch operator it came from.",
        {"tab": "Graph"},
    ),
    Stop(
        "Passes, one at a time",
        "A compiler is a sequence of passes, each of which takes a program and returns another. "
        "Each row here is a pass, with the number of nodes it added, removed and changed. The "
        "first eliminates common subexpressions.",
        "Press the arrow keys in the list. *Next change* goes through what a step changed.",
        _PASSES,
        "cse",
    ),
    Stop(
        "Three products become one",
        "Query, key and value are three matrix products of the same input. This pass joins them: "
        "one product with the three weights concatenated, and slices of its result. Green is "
        "new, amber changed, dashed red gone.",
        "Switch *batch_matmul to NT form* off, one row up, and this pass finds nothing to join.",
        _PASSES,
        "combine_batch_matmul",
    ),
    Stop(
        "Fusion decides the kernels",
        "Each box is now one kernel: it reads memory once, computes its whole chain of operators, "
        "and writes once. A matrix product is fused with the operators after it, but two products "
        "never share a kernel.",
        "Click a fused box to see its operators.",
        _PASSES,
        "fuse",
    ),
    Stop(
        "Is it still the same function?",
        "After each step the program is built and run with every tensor kept, and each is compared "
        "with PyTorch's at the same place. The colour shows how close a node's error is to its "
        "limit. Without this check, a faster program is only a different one.",
        "Point at a node for its numbers; choose float64, where rounding plays no part.",
        _PASSES,
        "simplify_inference",
        {"keep_step_colours": "Errors"},
    ),
    Stop(
        "The gradient is a pass, too",
        "In training mode dropout is on. Its random masks became inputs, so the program draws no "
        "random numbers. Then this pass adds the gradient of every parameter, which more than "
        "doubles the graph.",
        "Step on: the next passes clean up after the gradient: zeros, ones, and tensors transposed "
        "twice.",
        {**_PASSES, **_TRAINING},
        "gradient",
    ),
    Stop(
        "What the backward needs",
        "In this joint graph the forward is red, and tensors that cross to the backward are blue. "
        "The backward runs later, so those tensors must be kept until then. This cut keeps all of "
        "them: it takes the most memory and computes nothing twice.",
        "Find kept tensors that are cheap to recompute: a gelu, a softmax, a sum.",
        {**_CUT, "strategy": "keep_all"},
    ),
    Stop(
        "Keep less, compute again",
        "Of all ways to cut forward from backward, this minimum cut keeps the fewest bytes and "
        "computes no matrix product twice. The chart shows the trade-off between bytes and work, "
        "with PyTorch's cut beside it.",
        "Click a blue box to see why it is kept; save or recompute it instead and see what "
        "changes. *Present* shows all cuts and reasons in the whole window.",
        {**_CUT, "strategy": "min_cut"},
        show=True,
    ),
    Stop(
        "Two functions",
        "The cut made two programs. This is the backward. Its inputs are the tensors that the "
        "forward saved, the masks, the parameters and the output's gradient. It repeats the parts "
        "of the forward that it recomputes.",
        "Choose *Forward* beside it: its outputs are the result and the saved tensors.",
        {**_CUT, "strategy": "min_cut"},
        choices={"keep_cut_view": "Backward"},
    ),
    Stop(
        "And is it faster?",
        "Both programs are built for this machine, and every output and gradient is compared with "
        "PyTorch's. Only then are they timed, in turns with PyTorch, so that noise affects both "
        "alike. Each time has its error beside it, and the headline claims no more than the runs "
        "support.",
        "Press *Run*. It takes about half a minute.",
        {"tab": "Compile & time", **_TRAINING},
    ),
)

_NAME = "tour"  # the address's parameter, and the state's key of the tour's session id
_BEFORE = "tour_before"


def button(relay: bool) -> None:
    """The button that begins the tour; needs a TVM with Relay."""
    st.button(
        "Tour",
        key="tour_begin",
        icon=":material/explore:",
        width="stretch",
        on_click=_go,
        args=(1,),
        disabled=not relay,
        help="Ten screens, from a trace to a timing."
        if relay
        else "The tour needs a TVM with Relay, and none is installed here.",
    )


def show() -> None:
    """Draw the card of the tour's present stop, if any."""
    number = _number()
    if not number:
        return
    stop = STOPS[number - 1]
    with st.container(key="tour", border=True):
        words, buttons = st.columns([4, 1.2], vertical_alignment="center")
        words.markdown(f"**{number} of {len(STOPS)}: {stop.title}.** {stop.words}")
        words.markdown(f"*Try:* {stop.do}")
        with buttons.container(horizontal=True, horizontal_alignment="right"):
            st.button(
                "Back", key="tour_back", on_click=_go, args=(number - 1,), disabled=number < 2
            )
            if stop.show:
                st.button("Present", key="tour_show", on_click=present, args=(True,))
            if number < len(STOPS):
                st.button("Next", key="tour_next", type="primary", on_click=_go, args=(number + 1,))
            st.button("End", key="tour_end", on_click=_end)


def arrive() -> None:
    """If the page was opened at a stop, go there."""
    if _number() and _NAME not in state:
        _go(_number())


def _number() -> int:
    """The stop in the address, counted from 1; 0 without a tour."""
    text = st.query_params.get(_NAME, "")
    return int(text) if text.isdecimal() and 1 <= int(text) <= len(STOPS) else 0


def _go(number: int) -> None:
    """Show a stop; the end of the tour restores the session from before it."""
    if _NAME not in state:
        state[_NAME], state[_BEFORE] = store.new_id(), keeping.now()
    st.query_params[_NAME] = str(number)
    keeping.go_to(STOPS[number - 1].session(), state[_NAME])


def _end() -> None:
    ident, session = state.pop(_BEFORE, ("", None))
    state.pop(_NAME, None)
    st.query_params.pop(_NAME, None)
    keeping.go_to(session or Session(), ident or store.new_id())
