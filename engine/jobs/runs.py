"""Runs of one program beside the sample's: other sizes where it leaves any open, and both sides of
each branch that an input decides.

What is imported and built is the same for all. Knows no TVM: it reads the graph.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from relascope.core.errors import EngineError
from relascope.core.graph import Graph, Kind
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.results import PYTORCH, ModelInfo
from relascope.engine.protocol.session import Ask
from relascope.engine.protocol.source import ModelSource
from relascope.passes.pipeline import Pipeline

_MOST = 8
_UNEVEN = (5, 7, 11, 13, 17, 19)  # no two sizes are one by chance


@dataclass(frozen=True)
class Runs:
    """Runs beside the sample's own.

    Args:
        others: the source of each.
        left: in words, what these do not reach; "" where nothing is.
    """

    others: tuple[ModelSource, ...] = ()
    left: str = ""


def runs_of(ask: Ask, source: ModelSource) -> Runs:
    """The runs of a program that came without PyTorch, and whose inputs are drawn; else none."""
    if source.tensors or source.run:
        return Runs()
    info: ModelInfo = ask("load", source)
    if info.against == PYTORCH:
        return Runs()
    graph = info.graph
    inputs = [graph.by_id[i] for i in graph.inputs]
    dims = [d for n in inputs if n.kind is Kind.INPUT for t in n.outputs for d in t.shape]
    sizes = list(dict.fromkeys(d for d in dims if isinstance(d, str)))
    left = "" if all(map(str.isidentifier, sizes)) else f"other sizes ({', '.join(sizes)})"
    sizes = [] if left else sizes
    deciding, computed = _deciding(graph)
    if computed:
        left += f"{' and ' if left else ''}the sides of {computed} `if` that computed values decide"
    lengths: list[tuple[tuple[str, int | bool], ...]] = [()]
    if sizes:
        uneven = tuple(zip(sizes, itertools.cycle(_UNEVEN), strict=False))
        lengths += [tuple((n, 1) for n in sizes), uneven]
    sides: list[tuple[tuple[str, bool], ...]] = [()]
    if deciding:
        flipped = [(n,) for n in deciding] if len(deciding) > 1 else []
        for base in (True, False):
            for turned in ((), *flipped):
                sides.append(tuple((n, base != (n in turned)) for n in deciding))
    found = [replace(source, run=(*a, *b)) for b, a in itertools.product(sides, lengths)]
    if len(found) > _MOST + 1:
        left += f"{' and ' if left else ''}{len(found) - _MOST - 1} more runs of these"
    return Runs(tuple(found[1 : _MOST + 1]), left)


def _deciding(graph: Graph) -> tuple[list[str], int]:
    """Names of the inputs that an `if` reads, and how many others there are."""
    names, computed, todo = dict[str, None](), 0, [graph]
    while todo:
        one = todo.pop()
        todo += [n.body for n in one if n.body is not None]
        for node in one:
            if node.op != "if" or not node.edges:
                continue
            decides = one.by_id[node.edges[0]]
            if one is graph and decides.kind is Kind.INPUT and decides.name:
                names[decides.name] = None
            else:
                computed += 1
    return list(names), computed


def unfit(ask: Ask, source: ModelSource, target: str) -> EngineError | None:
    """Why the imported program does not run so, before any pass; not every size need fit."""
    try:
        ask("check", BuildRequest(source, Pipeline(), target))
    except EngineError as error:
        if error.kind == "cancelled":
            raise
        return error
    return None


def label_of(source: ModelSource) -> str:
    """On which inputs a source is run: "sample", or "sample at n = 1 and up = true"."""
    return source.values + (f" at {at_run(source)}" if source.run else "")


def at_run(source: ModelSource) -> str:
    """What a run is given: "n = 1 and up = true"."""
    return " and ".join(f"{n} = {str(v).lower()}" for n, v in source.run)


def on_inputs(label: str) -> str:
    """A label as it stands behind "on": "sample inputs at n = 1"."""
    kind, at, run = label.partition(" at ")
    return f"{kind} inputs{at}{run}"
