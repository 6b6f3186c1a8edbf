"""The tour: ten screens from a trace to a timing, with a card that says what to see on each."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import streamlit as st

from relascope.passes.catalogue import default_pipeline
from relascope.viz.panels.presenting import present
from relascope.viz.panels.shell import keeping
from relascope.viz.sessions import address, store
from relascope.viz.sessions.state import Session


@dataclass(frozen=True)
class Stop:
    """One screen of the tour: what a teacher says here, as Markdown, what to `do` oneself, and the
    screen as an address says it (`query`), `at` the last step of a pass in the default pipeline (""
    for none), with `choices` of switches within tabs by their names; `show`: whether the show of
    the joint graph can be begun from here."""

    title: str
    words: str
    do: str
    query: Mapping[str, str]
    at: str = ""
    choices: Mapping[str, str] = field(default_factory=dict)
    show: bool = False

    def session(self) -> Session:
        """The screen."""
        found, _ = address.session_of(
            {"engine": ["relay"], **{n: [v] for n, v in self.query.items()}}
        )
        step = _step(self.at, found.model.training) if self.at else found.look.step
        return replace(found, look=replace(found.look, step=step, choices=dict(self.choices)))


def _step(name: str, training: bool) -> int:
    """Where the last step of a pass stands in the default pipeline."""
    steps = default_pipeline("relay", training).steps
    return max(index for index, step in enumerate(steps) if step.name == name)


_TRAINING = {"mode": "training"}
_PASSES = {"tab": "Passes"}
_CUT = {"tab": "Gradient & cut", **_TRAINING}

STOPS = (
    Stop(
        "A trace becomes a graph",
        "PyTorch ran one BERT layer and wrote down what it did; TVM's frontend made this Relay "
        "program of the trace. A box is a call of an operator, a frame the PyTorch module that it "
        "came from, an edge a tensor. Scales, epsilons and other small constants are written into "
        "the box that reads them, or they would be half of the picture.",
        "Click a box: its type, its size, and the PyTorch operator behind it.",
        {"tab": "Graph"},
    ),
    Stop(
        "Passes, one at a time",
        "A compiler is a row of passes, and each takes a program and gives another. Each row here "
        "is one, with how many nodes it added, removed and changed. The first, common "
        "subexpressions, computes equal things once.",
        "Press the arrow keys in the list. *Next change* walks over what a step did.",
        _PASSES,
        "cse",
    ),
    Stop(
        "Three products become one",
        "Query, key and value are three matrix products of the same input. This pass joins them: "
        "one product with the three weights behind one another, and slices of its result. Green is "
        "new, amber changed, dashed red gone.",
        "Switch *batch_matmul to NT form* off, one row up, and this pass finds nothing to join.",
        _PASSES,
        "combine_batch_matmul",
    ),
    Stop(
        "Fusion decides the kernels",
        "What stands in one box now will be one kernel: it reads memory once, computes its whole "
        "chain of operators, and writes once. A matrix product takes what follows it along; two "
        "products never share a kernel.",
        "Click a fused box to see what it is made of.",
        _PASSES,
        "fuse",
    ),
    Stop(
        "Is it still the same function?",
        "After each step the program is built with every tensor kept, run, and held against what "
        "PyTorch has at the same place. A colour says how near to its limit a node's error is. "
        "Without this, a faster program is only a different one.",
        "Point at a node for its numbers; choose float64, where rounding plays no part.",
        _PASSES,
        "simplify_inference",
        {"keep_step_colours": "Error against PyTorch"},
    ),
    Stop(
        "The gradient is a pass, too",
        "In training mode dropout is on: its random masks became inputs, so that the program "
        "draws nothing. Then this pass adds the gradient of every parameter, and the graph has "
        "more than doubled.",
        "Step on: what follows clears up what the gradient left, zeros and ones and tensors "
        "transposed twice.",
        {**_PASSES, **_TRAINING},
        "gradient",
    ),
    Stop(
        "What the backward needs",
        "The joint graph: the forward is red, what crosses from it to the backward blue. PyTorch "
        "runs the backward later, so what crosses has to be kept until then. This cut keeps all of "
        "it: the most memory, and nothing is computed twice.",
        "Look at what is kept that could be had again for little: a gelu, a softmax, a sum.",
        {**_CUT, "strategy": "keep_all"},
    ),
    Stop(
        "Keep less, compute again",
        "A minimum cut: of all ways to cut forward from backward, the one that keeps the fewest "
        "bytes and computes no matrix product twice. The chart has every trade between bytes and "
        "work, with PyTorch's own cut beside it.",
        "Click a blue box for why it is kept; force it in or out and see what moves. *Present* has "
        "every cut along the frontier, and each tensor with its reasons, in the whole window.",
        {**_CUT, "strategy": "min_cut"},
        show=True,
    ),
    Stop(
        "Two functions",
        "The cut made two programs. This is the backward: its inputs are what the forward hands "
        "over, the masks, the parameters and the gradient of the output; what it computes again of "
        "the forward stands in it once more.",
        "Choose *Forward* beside it: its outputs are the result, and what is kept.",
        {**_CUT, "strategy": "min_cut"},
        choices={"keep_cut_view": "Backward"},
    ),
    Stop(
        "And is it faster?",
        "Both programs are built for this machine, and every output and gradient compared with "
        "PyTorch's. Only then they are timed, in turns with PyTorch, so that what disturbs one "
        "disturbs both. The error stands beside the time, and the headline says no more than the "
        "runs allow.",
        "Press *Run*. It takes about half a minute.",
        {"tab": "Compile & time", **_TRAINING},
    ),
)


_NAME = "tour"  # of the address's parameter, and in the state of the id of the tour's session
_BEFORE = "tour_before"


def button(relay: bool) -> None:
    """The button that begins the tour, which needs a TVM with Relay."""
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
        else "The tour is in Relay, and there is no TVM with Relay here.",
    )


def show() -> None:
    """Draw the card of the stop that the tour is at; nothing where there is no tour."""
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
    """On a page that was opened at a stop: go there."""
    if _number() and _NAME not in st.session_state:
        _go(_number())


def _number() -> int:
    """The stop that the address says, counted from 1; 0 where there is no tour."""
    text = st.query_params.get(_NAME, "")
    return int(text) if text.isdecimal() and 1 <= int(text) <= len(STOPS) else 0


def _go(number: int) -> None:
    """Show a stop; what was looked at before the tour is kept for its end."""
    state = st.session_state
    if _NAME not in state:
        state[_NAME], state[_BEFORE] = store.new_id(), keeping.now()
    st.query_params[_NAME] = str(number)
    keeping.go_to(STOPS[number - 1].session(), state[_NAME])


def _end() -> None:
    state = st.session_state
    ident, session = state.pop(_BEFORE, ("", None))
    state.pop(_NAME, None)
    st.query_params.pop(_NAME, None)
    keeping.go_to(session or Session(), ident or store.new_id())
