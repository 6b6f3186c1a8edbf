"""The stops of the tour: each a screen and what to say of it, from a trace to a timing."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from relascope.passes.catalogue import default_pipeline
from relascope.viz.sessions import address
from relascope.viz.sessions.state import Session


@dataclass(frozen=True)
class Stop:
    """One screen of the tour.

    Args:
        words: what a teacher says here, as Markdown.
        do: what to try oneself.
        query: the screen, as an address says it.
        at: name of the pass whose step is chosen, of the default pipeline; "" for none.
        choices: of switches within tabs, by their names.
        show: whether the show of the joint graph can be begun from here.
    """

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
