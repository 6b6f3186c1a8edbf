"""The runs that `viz.compare.runs` compares: of a model, or of a recording."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import chain

from relascope.core.graph import Graph
from relascope.engine.jobs.step import Stepped
from relascope.engine.protocol.session import Ask
from relascope.engine.protocol.source import ModelSource
from relascope.recorder.reading import PassRun, Recording
from relascope.viz.compare.runs import ComparedRun, ComparedStep

_LOWERED = ("call_lowered", "memory.", "vm.", "builtin.alloc")
"""Prefixes of operators of programs whose memory is planned."""
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}|(?<=id=)[0-9a-f]{8,}")
"""Addresses in texts by TVM and LLVM, which differ in every process."""


def of_model(ask: Ask, ir: str, source: ModelSource, stepped: Stepped, label: str) -> ComparedRun:
    """A model through a pipeline, `stepped` by `engine.jobs.step.step`; without steps, as imported.
    Raises as `ask` while there is no answer."""
    indices, steps = [-1], []
    for index, record in enumerate(stepped.records):
        if record.enabled:
            indices.append(index)
            idle = not (record.added or record.removed or record.changed or record.error)
            failure = record.error.message if record.error else ""
            steps.append(ComparedStep(record.pass_name, record.seconds, idle, "", failure))
    kept: dict[int, Graph] = {}

    def graph(index: int) -> Graph:
        if index not in kept:
            at = indices[index + 1]
            kept[index] = ask("graph_after", source, stepped.pipeline.upto(at), at)
        return kept[index]

    about = {"pipeline": str(stepped.pipeline), "training": source.training}
    return ComparedRun(label, ir, tuple(steps), graph, about)


def of_recording(recording: Recording, label: str) -> ComparedRun:
    """A recorded compile: its passes in the order in which they ended, so that inner passes come
    first. The end is the last program before memory is planned, whose graph still shows the
    computation."""
    runs = [p for p in _ended(recording.passes) if p.kind == "pass"]
    read = cache(recording.graph)

    def drawn(functions: Mapping[str, str]) -> Graph | None:
        """The function main, or the largest one that has a graph."""
        main = read(functions["main"]) if "main" in functions else None
        return main or max(filter(None, map(read, functions.values())), key=len, default=None)

    def graph(index: int) -> Graph | None:
        if not runs:
            return None
        return drawn((recording.passes[0].before if index < 0 else runs[index].after) or {})

    ends = (g for i in range(len(runs) - 1, -2, -1) if (g := graph(i)) is not None)
    lowest = next(ends, None)
    whole = (
        g for g in chain([lowest], ends) if g and not any(n.op.startswith(_LOWERED) for n in g)
    )
    end = next(whole, lowest)
    steps = tuple(
        ComparedStep(p.name, p.own_seconds, p.touched == (), _state(p.after), p.failure or "")
        for p in runs
    )
    about = {
        "recorded": {k: v for k, v in recording.about.items() if k != "process"},
        "code": _code(recording),
    }

    def or_end(index: int) -> Graph | None:
        return end if index == len(runs) - 1 else graph(index)

    @cache
    def plain(content: str) -> str:
        return _hash(_ADDRESS.sub("", recording.text(content)))

    def settled(index: int) -> str:
        return _state({n: plain(content) for n, content in (runs[index].after or {}).items()})

    ir = end.ir if end is not None else "relax"
    return ComparedRun(label, ir, steps, or_end, about, settled)


def _ended(passes: Iterable[PassRun]) -> list[PassRun]:
    found: list[PassRun] = []
    under_way: dict[int, list[PassRun]] = {}
    for one in passes:
        around = under_way.setdefault(one.thread, [])
        while around and around[-1].depth >= one.depth:
            found.append(around.pop())
        around.append(one)
    for around in under_way.values():
        found += reversed(around)
    return found


def _code(found: Recording) -> dict[str, dict[str, int | str]]:
    """The generated code by language: the number of modules, and a hash."""
    texts: dict[str, list[str]] = {}
    for code in found.kernels:
        text = _hash(_ADDRESS.sub("", found.text(code.text)))
        texts.setdefault(code.language, []).append(text)
    return {
        language: {"modules": len(of), "hash": _hash(json.dumps(sorted(Counter(of).items())))}
        for language, of in texts.items()
    }


def _state(functions: Mapping[str, str] | None) -> str:
    return "" if functions is None else _hash(json.dumps(dict(functions), sort_keys=True))


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
