"""What could be faster: hazards in a program, each with the pass that removes it.

A linter is one file: it looks through a graph of either IR, knows no compiler, and yields findings.
What it costs is estimated (`passes.cost`), or, with the kernels of a profile, measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType

from relascope.core.graph import Graph
from relascope.passes.cost import Kernels, MeasuredKernels
from relascope.passes.lint.rules import (
    casts,
    constants,
    dead,
    duplicates,
    layouts,
    no_ops,
    paddings,
    parallel,
    recomputed,
    scales,
    tiny,
    transposes,
    unfused,
)
from relascope.passes.lint.subject import Finding, Subject

__all__ = ["LINTERS", "Finding", "Linter", "Subject", "lint"]


@dataclass(frozen=True)
class Linter:
    """One sort of hazard.

    Args:
        name: how documents and the documentation call it.
        title: for people.
        summary: what it costs, in one sentence.
        find: yields the findings of a subject, without order.
        kernels: whether it needs to know what the kernels compute, and finds nothing otherwise.
    """

    name: str
    title: str
    summary: str
    find: Callable[[Subject], Iterable[Finding]]
    kernels: bool = False


def _linter(rule: ModuleType, title: str, summary: str, kernels: bool = False) -> Linter:
    return Linter(rule.NAME, title, summary, rule.find, kernels)


_ALL = (
    _linter(
        transposes,
        "Transposed copies",
        "A matrix is written out transposed, though its reader could read it as it lies.",
    ),
    _linter(
        layouts,
        "Layout changes",
        "A tensor is written out in another layout, and then in yet another, or back.",
    ),
    _linter(
        casts,
        "Casts",
        "A tensor is written out in another type for nothing, or the program computes in float64 "
        "though the model does not.",
    ),
    _linter(constants, "Constant work", "What depends on weights alone is computed in every call."),
    _linter(duplicates, "Duplicates", "The same is computed more than once."),
    _linter(
        parallel,
        "Parallel products",
        "Products with several weights read one operand, one after the other.",
    ),
    _linter(
        scales,
        "Scales beside weights",
        "A result is multiplied by one number a channel, which its weight could hold.",
    ),
    _linter(
        paddings,
        "Paddings",
        "A tensor is written out padded for a convolution that could pad by itself.",
    ),
    _linter(
        no_ops,
        "Operators that change nothing",
        "A sum with zeros, a product with ones, and the like.",
    ),
    _linter(dead, "Dead code", "No result needs it."),
    _linter(
        unfused,
        "Unfused chains",
        "A value goes from one kernel to the next by way of memory, though one could do both.",
        kernels=True,
    ),
    _linter(
        tiny, "Tiny kernels", "Calling the kernel takes longer than what it does.", kernels=True
    ),
    _linter(
        recomputed, "Computed again", "The backward computes again what is expensive.", kernels=True
    ),
)

LINTERS: dict[str, Linter] = {one.name: one for one in _ALL}


def lint(
    graph: Graph,
    kernels: Kernels | None = None,
    measured: MeasuredKernels | None = None,
    target: str = "",
    phases: Sequence[str] | None = None,
) -> tuple[Finding, ...]:
    """The hazards of a program, the most expensive first.

    Args:
        graph: with types, before the passes that are only for looking.
        kernels: ids of the nodes that each kernel computes, as far as that is known. A hazard that
            costs nothing, since its nodes share a kernel, is then left out.
        measured: what kernels took. What the build had removed by itself, so that no kernel
            computes it, is then left out, too.
        target: that it is built for; one with a BLAS reads matrices either way.
        phases: of each kernel, "forward" or "backward", where the program was split.
    """
    subject = Subject(graph, kernels, measured, target, phases)
    found = [f for one in _ALL for f in one.find(subject) if subject.remains(f)]
    return tuple(sorted(found, key=lambda f: (-f.seconds, -f.bytes)))
