"""What could be faster: hazards in a program, each with the pass that removes it.

A linter is a function that looks through a graph of either IR and yields findings. Costs are
estimated (`passes.cost`), or measured with a profile's kernels."""

from collections.abc import Sequence
from dataclasses import replace

from relascope.core.graph import Graph
from relascope.passes.cost import Kernels, MeasuredKernels
from relascope.passes.lint import copies, needless, per_kernel  # noqa: F401  # as listed
from relascope.passes.lint.subject import LINTERS, Finding, Linter, Subject

__all__ = ["LINTERS", "Finding", "Linter", "Subject", "lint"]


def lint(
    graph: Graph,
    kernels: Kernels | None = None,
    measured: MeasuredKernels | None = None,
    target: str = "",
    phases: Sequence[str] | None = None,
) -> tuple[Finding, ...]:
    """The hazards of a program, the most expensive first. `graph` has types, before passes for
    inspection. `kernels` are the ids of the nodes of each known kernel; hazards within one cost
    nothing and are left out. `measured` are the kernels with their times; hazards outside all of
    them, which the build removed, are left out. A `target` with a BLAS reads matrices in either
    layout; `phases` are the kernels' "forward" or "backward", if the program was split."""
    subject = Subject(graph, kernels, measured, target, phases)
    every = [replace(f, hazard=one.name) for one in LINTERS.values() for f in one.find(subject)]
    return tuple(sorted(filter(subject.remains, every), key=lambda f: (-f.seconds, -f.bytes)))
