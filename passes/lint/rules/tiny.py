"""Calling the kernel takes longer than what it does."""

from collections.abc import Iterator
from dataclasses import replace

from relascope.passes.cost import is_view
from relascope.passes.lint.rules import unfused
from relascope.passes.lint.subject import Finding, Subject

NAME = "tiny"
TITLE = "Tiny kernels"
KERNELS = True
MOST_BYTES = 16 * 1024
"""Any memory has moved so much within the microsecond that a call takes."""
MOST_SECONDS = 5e-6
CALL = 1e-6
"""Seconds that a call takes by itself."""
LEAST_SHARE = 0.05
"""Of the time of all kernels, or of their number where times are not known."""


def find(subject: Subject) -> Iterator[Finding]:
    """The tiny kernels together, where they make up a part of the whole: first those that a pass
    makes part of others."""
    if not subject.kernels:
        return
    seconds = [taken for _, taken in subject.measured] if subject.measured else None
    joined = {p for f in unfused.find(subject) if f.remedy for p in subject.place[f.nodes[0]]}
    groups: dict[bool, list[int]] = {True: [], False: []}
    for index, nodes in enumerate(subject.kernels):
        calls = [i for i in nodes if not is_view(subject.graph.by_id[i])]
        if not calls or all(i in subject.weights for i in calls):
            continue
        quick = seconds is None or seconds[index] <= MOST_SECONDS
        if quick and _border(subject, index) <= MOST_BYTES:
            groups[index in joined].append(index)
    for can_join, kernels in groups.items():
        if seconds is None:
            share = len(kernels) / len(subject.kernels)
        else:
            share = sum(seconds[k] for k in kernels) / (sum(seconds) or 1.0)
        if share < LEAST_SHARE:
            continue
        nodes = [i for k in kernels for i in subject.kernels[k]]
        message = f"{len(kernels)} of {len(subject.kernels)} kernels move at most 16 KiB each."
        remedy = subject.remedy("unfused") if can_join else ""
        advice = "A larger batch gives them work; on a GPU, CUDA graphs spare most of a launch."
        found = subject.finding(nodes, message, remedy, advice="" if can_join else advice)
        taken = len(kernels) * CALL if seconds is None else sum(seconds[k] for k in kernels)
        yield replace(found, seconds=taken)


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
