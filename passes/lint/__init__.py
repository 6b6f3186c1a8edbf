"""What could be faster: hazards in a program, each with the pass that removes it.

A linter is one file that looks through a graph of either IR and yields findings. Costs are
estimated (`passes.cost`), or measured with a profile's kernels.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from types import ModuleType

from relascope.core.graph import Graph
from relascope.passes.cost import Kernels, MeasuredKernels
from relascope.passes.lint.subject import Finding, Subject

__all__ = ["LINTERS", "Finding", "Linter", "Subject", "lint"]


@dataclass(frozen=True)
class Linter:
    """One sort of hazard.

    Args:
        name: how documents and the documentation call it.
        find: yields the findings of a subject, without order.
        kernels: whether it needs to know what the kernels compute, and finds nothing otherwise.
    """

    name: str
    title: str
    summary: str
    find: Callable[[Subject], Iterable[Finding]]
    kernels: bool = False


def _linter(rule: ModuleType) -> Linter:
    """What a rule's file says: its docstring is the summary."""
    summary = " ".join(str(rule.__doc__).split())
    return Linter(rule.NAME, rule.TITLE, summary, rule.find, getattr(rule, "KERNELS", False))


_RULES = (
    "transposes layouts casts constants duplicates parallel scales paddings no_ops dead unfused "
    "tiny recomputed"
)
"""The files of `passes.lint.rules`, in the order in which they are listed."""

LINTERS: dict[str, Linter] = {
    rule.NAME: _linter(rule)
    for rule in (import_module(f"{__name__}.rules.{name}") for name in _RULES.split())
}


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
        kernels: ids of the nodes of each known kernel; hazards within a kernel cost nothing, and
            are left out.
        measured: what kernels took; hazards in no kernel, which the build removed, are left out.
        target: one with a BLAS reads matrices either way.
        phases: of each kernel, "forward" or "backward", where the program was split.
    """
    subject = Subject(graph, kernels, measured, target, phases)
    every = [replace(f, hazard=one.name) for one in LINTERS.values() for f in one.find(subject)]
    found = filter(subject.remains, every)
    return tuple(sorted(found, key=lambda f: (-f.seconds, -f.bytes)))
