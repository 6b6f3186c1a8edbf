"""Calling the kernel takes longer than what it does."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from relascope.passes.cost import is_view
from relascope.passes.lint.rules import unfused
from relascope.passes.lint.subject import Finding, Subject

NAME = "tiny"
TITLE = "Tiny kernels"
KERNELS = True
MOST_BYTES = 16 * 1024  # any memory has moved so much within the microsecond that a call takes
MOST_SECONDS = 5e-6
CALL = 1e-6  # seconds that a call takes by itself
LEAST_SHARE = 0.05  # of the time of all kernels, or of their number where times are not known


def find(subject: Subject) -> Iterator[Finding]:
    """The tiny kernels together, if they are a part of the whole; those that a pass joins to others
    first."""
    kernels = subject.kernels or []
    seconds = [taken for _, taken in subject.measured or ()] or [CALL] * len(kernels)
    joined = {p for f in unfused.find(subject) if f.remedy for p in subject.place[f.nodes[0]]}
    tiny = {k for k in range(len(kernels)) if seconds[k] <= MOST_SECONDS and _is_tiny(subject, k)}
    alone = "A larger batch gives them work; on a GPU, CUDA graphs spare most of a launch."
    for members, rule, advice in ((tiny & joined, "unfused", ""), (tiny - joined, "", alone)):
        group = sorted(members)
        taken = sum(map(seconds.__getitem__, group))
        if taken < LEAST_SHARE * (sum(seconds) or 1.0):
            continue
        nodes = chain.from_iterable(map(kernels.__getitem__, group))
        message = f"{len(group)} of {len(kernels)} kernels move at most 16 KiB each."
        found = subject.finding(nodes, message, subject.remedy(rule), advice=advice)
        yield replace(found, seconds=taken)


def _is_tiny(subject: Subject, index: int) -> bool:
    """Whether a kernel does something in each call, and moves little for it."""
    nodes = (subject.kernels or ())[index]
    calls = {i for i in nodes if not is_view(subject.graph.by_id[i])}
    return not calls <= subject.weights and _border(subject, index) <= MOST_BYTES


def _border(subject: Subject, index: int) -> int:
    """Bytes that a kernel reads of others and writes for others."""
    graph = subject.graph
    kernel = set((subject.kernels or ())[index])
    held = subject.work.bytes
    read = {e for i in kernel for e in graph.edges[i] if e not in kernel}
    wrote = {
        i for i in kernel if i in graph.outputs or any(r not in kernel for r in graph.readers[i])
    }
    return sum(held[i] for i in read | wrote)
