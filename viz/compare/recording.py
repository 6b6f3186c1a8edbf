"""A recording of a compile, asked as an engine is, without one.

Its passes are the steps of a pipeline, in the order in which they ended, so that what a pass ran
inside comes before it. The functions of a module are asked for by `source.module`: "" is the
program, which is main, or the largest function with a graph.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property
from typing import Any

from relascope.core.errors import EngineError
from relascope.core.graph import Graph
from relascope.core.memo import Memo
from relascope.engine.protocol.results import ModelInfo, StepRecord
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import recorded
from relascope.passes.pipeline import Pipeline, Step
from relascope.recorder.reading import PassRun, Recording, walk

_ADDRESS, _IDENTITY = re.compile(r"0x[0-9a-f]{6,}"), re.compile(r"id=[0-9a-f]{8,}")
"""Addresses in texts by TVM and LLVM, which differ in every process. As one expression, which does
not begin with a fixed text, the search would take ten times as long."""
_KEPT = 96  # graphs


class RecordedCompile:
    """Called as `engine.protocol.session.Ask` is: answers `load`, `step`, `graph_after` and `text`
    for `source` and steps of `pipeline`, and refuses other requests. Steps count functions in place
    of nodes, and none where they are not recorded. `digest` is the file's."""

    def __init__(self, recording: Recording, digest: str = "") -> None:
        self.recording = recording
        self.source = ModelSource(str(recording.path), digest=digest)
        ended = (run for run, _, ended in walk(recording.passes) if ended)
        self._runs = {run.number: run for run in ended if run.kind == "pass"}
        self.pipeline = Pipeline(tuple(map(self.step_of, self._runs.values())))
        self._graphs: Memo[Graph | None] = Memo(_KEPT)
        self._with_kernels: Memo[tuple[Graph, Graph]] = Memo(_KEPT)
        text = recording.text
        self._plain = cache(lambda name: _hash(_IDENTITY.sub("", _ADDRESS.sub("", text(name)))))
        of_module = recording.functions
        self._state = cache(lambda m: _state({n: self._plain(c) for n, c in of_module(m).items()}))

    def step_of(self, run: PassRun) -> Step:
        """A pass as a step; one that returned no module leaves the one it received."""
        before, after = (self.recording.module_number(run.index, side) for side in (False, True))
        numbers = (recorded.UNKNOWN if after is None else after), run.number, run.name
        return recorded.recorded(*numbers, recorded.UNKNOWN if before is None else before)

    def __call__(self, method: str, *arguments: Any) -> Any:
        """The answer. Raises EngineError: kind "usage" for what a recording cannot answer, "graph"
        where it has no graph, "file" where the file can no longer be read."""
        if method not in ("load", "step", "graph_after", "text"):
            raise self.refusal
        return getattr(self, method)(*arguments)

    @property
    def refusal(self) -> EngineError:
        name = self.recording.path.name
        said = f"{name} is a recording of a compile, and has no model to build or run."
        hint = f"relascope bisect {name} runs its modules, and relascope open {name} -o writes it."
        return EngineError("usage", said, str(self.recording.path), hint)

    def load(self, source: ModelSource, judged: bool = False) -> ModelInfo:
        graph = self.graph_after(source, self.pipeline, -1)
        inputs = [graph.by_id[i] for i in graph.inputs]
        given = tuple((n.name, t) for n in inputs for t in n.outputs)
        return ModelInfo(source, graph, 0, given, len(given), 0.0)

    def step(self, source: ModelSource, pipeline: Pipeline) -> tuple[StepRecord, ...]:
        return tuple(self._record(self._runs[recorded.number_of(step)]) for step in pipeline)

    def graph_after(self, source: ModelSource, pipeline: Pipeline, index: int) -> Graph:
        """The graph, the same object for the same content, with the texts of kernels it calls."""
        functions = self._functions(pipeline, index)
        found = self._graph(functions.get(source.module or "main", ""))
        if found is None and not source.module:
            found = max(filter(None, map(self._graph, functions.values())), key=len, default=None)
        if found is None:
            where = source.module or self.recording.path.name
            drawn = self.recording.about.get("level") not in ("names", "text")
            hint = ("Record it with --level graphs.", "Look at an earlier pass (--stop-after N).")
            raise EngineError("graph", "The recording has no graph here.", where, hint[drawn])
        called = {n.kernel: functions[n.kernel] for n in found if n.kernel in functions}

        def make() -> tuple[Graph, Graph]:  # keeps it alive, because the key has its address
            texts = {name: self.recording.text(content) for name, content in called.items()}
            return found, replace(found, kernels=texts)

        return self._with_kernels.get((id(found), *called.items()), make)[1]

    def keep(self, graph: Graph, source: ModelSource, pipeline: Pipeline, index: int) -> None:
        """Answer with this graph from now on: the same function's, under other ids."""
        self._graphs.put(self._functions(pipeline, index)[source.module], graph)

    def text(self, source: ModelSource, pipeline: Pipeline, index: int) -> str:
        functions = self._functions(pipeline, index)
        if source.module:
            content = functions.get(source.module)
            return "" if content is None else self.recording.text(content)
        return "\n".join(f"# {n}\n{self.recording.text(c)}" for n, c in functions.items())

    def _graph(self, content: str) -> Graph | None:
        return self._graphs.get(content, lambda: self.recording.graph(content))

    def _functions(self, pipeline: Pipeline, index: int) -> Mapping[str, str]:
        if index < 0:
            return (self.recording.passes[0].before or {}) if self._runs else {}
        modules = recorded.modules_of(pipeline.steps[index])
        module = next((m for m in modules if m != recorded.UNKNOWN), None)
        return {} if module is None else self.recording.functions(module)

    def _record(self, run: PassRun) -> StepRecord:
        was, now = run.before or {}, run.after or {}
        names = run.touched or ()
        added, removed = (sum(n not in side for n in names) for side in (was, now))
        counts = len(names) - added - removed, added, removed, len(now)
        failure = "The process ended in this pass." if run.seconds is None else run.failure
        error = None if failure is None else EngineError("pass", failure, run.name)
        module = self.recording.module_number(run.index, after=True)
        state = "" if module is None else self._state(module)
        return StepRecord(run.name, True, *counts, run.own_seconds or 0.0, error=error, state=state)

    @cached_property
    def ir(self) -> str:
        """The IR of the first module: "relay" or "relax"."""
        first = next((r.before for r in self._runs.values() if r.before), {})
        with suppress(EngineError):  # said where the content is looked at
            for content in first.values():
                if (graph := self._graph(content)) is not None:
                    return graph.ir
        return "relax"

    @cached_property
    def about(self) -> dict[str, Any]:
        """How it was `recorded`; of generated `code`, by language, the modules' number and hash."""
        texts: dict[str, list[str]] = {}
        for made in self.recording.kernels:
            texts.setdefault(made.language, []).append(self._plain(made.text))
        code = {n: {"modules": len(of), "hash": _state(Counter(of))} for n, of in texts.items()}
        return {
            "recorded": {k: v for k, v in self.recording.about.items() if k != "process"},
            "code": code,
        }


def _state(parts: Mapping[str, Any]) -> str:
    return _hash(json.dumps(dict(parts), sort_keys=True))


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
