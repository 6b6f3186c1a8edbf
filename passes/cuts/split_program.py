"""The two functions that a joint program is split into, for every IR."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from relascope.core.errors import refusing
from relascope.core.graph import Graph
from relascope.passes.cuts.cut import Cut, cut_at
from relascope.passes.program import Program

_CAPTURE, _ON_HOST = "saved_", "on_host_"
TO_HOST, FROM_HOST = "relascope.to_host", "relascope.from_host"
"""Runtime functions: a copy of the argument on the host, and one to where the last argument is."""

AnyProgram = TypeVar("AnyProgram", bound=Program)


@dataclass(frozen=True)
class SplitProgram:
    """The two functions, and how values pass between them. Both take what they need of the joint
    program's arguments, in its order, and return a flat tuple. `forward` is a module with that
    function alone, which returns the outputs, then the captures; `backward` takes the captures
    last, by `capture_names`, and returns gradients in the order of `Program.gradients`."""

    forward: Program
    backward: Program
    captures: tuple[str, ...]
    capture_names: tuple[str, ...]
    cut: Cut

    @classmethod
    def of(cls, joint: Program, forward: Program, backward: Program, cut: Cut) -> "SplitProgram":
        names = capture_names(cut)
        inputs, results = (*backward.inputs, *names), len(joint.gradients)
        forward = replace(forward, grad_outs=(), outputs=joint.outputs + len(names))
        backward = replace(backward, inputs=inputs, outputs=results)
        return cls(forward, backward, cut.handed, names, cut)


def chosen_cut(graph: Graph, captured: Iterable[str]) -> Cut:
    """The data of a cut that was chosen (`Cut.marked`). Raises EngineError of kind "usage" if a
    node cannot be captured, or there are no gradients."""
    hint = "Capture tensors that the forward computes."
    with refusing("usage", "The program cannot be split there: {}.", "split", hint):
        return cut_at(graph, captured)


def capture_names(cut: Cut) -> tuple[str, ...]:
    """The backward's names for its captures."""
    begins = (_ON_HOST if i in cut.offloaded else _CAPTURE for i in cut.handed)
    return tuple(f"{b}{i}".replace("#", "_") for b, i in zip(begins, cut.handed, strict=True))


def is_capture(name: str) -> bool:
    """Whether a backward's argument is a capture on the device, or an input of such a name."""
    return name.startswith(_CAPTURE)


def is_on_host(name: str) -> bool:
    """Whether a backward's argument is a capture on the host."""
    return name.startswith(_ON_HOST)


def part_of(program: AnyProgram, mod: Any, taken: Collection[str]) -> AnyProgram:
    """A program of one function that computes a part of a joint one, with that part's arguments."""
    named = ("inputs", "buffers", "grad_outs")
    own: Any = {f: tuple(n for n in getattr(program, f) if n in taken) for f in named}
    own["params"] = {n: v for n, v in program.params.items() if n in taken}
    own["masks"] = tuple(m for m in program.masks if m.name in taken)
    return replace(program, mod=mod, gradients=(), **own)
