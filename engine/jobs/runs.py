"""Runs of one program beside the sample's: other open sizes, and both sides of each branch.

Import and build are the same for all, unless a computed value decides a branch: then the program is
imported with one side taken. Knows no TVM."""

import contextlib
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace

from relascope.core.errors import EngineError
from relascope.core.graph import Graph, Kind
from relascope.core.sizes import size_of, sizes_in
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.results import PYTORCH, ModelInfo
from relascope.engine.protocol.session import Ask
from relascope.engine.protocol.source import ModelSource
from relascope.passes.pipeline import Pipeline

_MOST = 8
_UNEVEN = (5, 7, 11, 13, 17, 19)  # no two sizes are equal by chance


def runs_of(ask: Ask, source: ModelSource) -> tuple[tuple[ModelSource, ...], str]:
    """The other runs of a program without PyTorch, with random inputs; and what they do not reach,
    in words, or ""."""
    if source.tensors or is_run(source):
        return (), ""
    info: ModelInfo = ask("load", source)
    if info.against == PYTORCH:
        return (), ""
    lengths, left = _lengths(info.graph)
    decides = info.branches
    if decides.looped:
        left.append(f"the sides of {decides.looped} `if` in recursive functions")
    pairs = itertools.product(_sides(decides.inputs), lengths)
    found = [replace(source, run=(*sizes, *sides)) for sides, sizes in pairs][1:]
    forced = [replace(source, sides=sides) for sides in _sides(decides.computed)[1:]]
    if more := len(found[_MOST:]) + len(forced[_MOST:]):
        left.append(f"{more} more runs of these")
    return (*found[:_MOST], *forced[:_MOST]), " and ".join(left)


_Given = tuple[tuple[str, int | bool], ...]


def _lengths(graph: Graph) -> tuple[list[_Given], list[str]]:
    """The open sizes of each run, none for the first; and those that no run can set."""
    inputs = (graph.by_id[i] for i in graph.inputs)
    dims = [d for n in inputs if n.kind is Kind.INPUT for t in n.outputs for d in t.shape]
    open_sizes = dict.fromkeys(d for d in dims if isinstance(d, str))
    sizes = list(dict.fromkeys(n for d in open_sizes for n in sizes_in(d)))
    if not _follow(open_sizes, sizes):
        return [()], [f"other sizes ({', '.join(open_sizes)})"]
    uneven = tuple(zip(sizes, itertools.cycle(_UNEVEN), strict=False))
    return [(), tuple((n, 1) for n in sizes), uneven] if sizes else [()], []


def _sides(deciding: Sequence[str]) -> list[tuple[tuple[str, bool], ...]]:
    """The truth values of each run, none for the first: all alike, or all but one."""
    turned = ["", *deciding] if len(deciding) > 1 else [""] * bool(deciding)
    found = (tuple((n, b != (n == one)) for n in deciding) for b in (True, False) for one in turned)
    return [(), *dict.fromkeys(found)]


def _follow(sizes: Iterable[str], known: Sequence[str]) -> bool:
    """Whether all sizes can be computed from known ones."""
    with contextlib.suppress(ValueError):
        return all(size_of(size, dict.fromkeys(known, _UNEVEN[0])) >= 0 for size in sizes)
    return False


def unfit(ask: Ask, source: ModelSource, target: str) -> EngineError | None:
    """Why the imported program does not run with a source's values, which may not fit it."""
    try:
        ask("check", BuildRequest(source, Pipeline(), target))
    except EngineError as error:
        return error.as_finding()
    return None


def is_run(source: ModelSource) -> bool:
    return bool(source.run or source.sides)


def label_of(source: ModelSource) -> str:
    """The inputs that a source runs on: "sample", or "sample at n = 1 and up = true"."""
    return source.values + (f" at {at_run(source)}" if is_run(source) else "")


def at_run(source: ModelSource) -> str:
    """The values that a run sets: "n = 1 and up = true", "lv1 = true (forced)"."""
    given = [f"{n} = {str(v).lower()}" for n, v in source.run]
    forced = [f"{n} = {str(v).lower()} (forced)" for n, v in source.sides]
    return " and ".join([*given, *forced])


def on_inputs(label: str) -> str:
    """A label as it stands after "on": "sample inputs at n = 1"."""
    kind, at, run = label.partition(" at ")
    return f"{kind} inputs{at}{run}"


def fitting_runs(
    ask: Ask, source: ModelSource, target: str
) -> tuple[tuple[ModelSource, ...], tuple[str, ...]]:
    """The other runs that the imported program has; and what they do not reach, in sentences."""
    (others, left), taken, off = runs_of(ask, source), list[ModelSource](), list[str]()
    for one in others:
        if (error := unfit(ask, one, target)) is None:
            taken.append(one)
        else:
            off.append(unfit_words(one, error))
    return tuple(taken), reach((), off, left)


def unfit_words(source: ModelSource, error: EngineError) -> str:
    return f"{at_run(source)} ({error.message.partition(chr(10))[0]})"


def reach(good: Sequence[str], off: Sequence[str], left: str) -> tuple[str, ...]:
    """Sentences on the other runs: those that are good, those that do not run, and the rest."""
    said = [f"It also ran at {'; '.join(good)}."] if good else []
    said += [f"The imported program does not run at {'; '.join(off)}."] if off else []
    return (*said, *([f"Not run: {left}."] if left else []))
