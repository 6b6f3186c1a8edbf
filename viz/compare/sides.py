"""The runs that `viz.compare.runs` compares."""

from collections.abc import Mapping
from functools import cache
from itertools import chain
from typing import Any

from relascope.core.errors import EngineError
from relascope.core.graph import Graph
from relascope.engine.jobs.step import step
from relascope.engine.protocol.session import Ask
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue.recorded import after
from relascope.passes.pipeline import Pipeline
from relascope.viz.compare.runs import ComparedRun

_LOWERED = ("call_lowered", "memory.", "vm.", "builtin.alloc")
"""Prefixes of operators of programs whose memory is planned."""


def run_of(
    ask: Ask,
    ir: str,
    source: ModelSource,
    pipeline: Pipeline,
    label: str,
    about: Mapping[str, Any] | None = None,
) -> ComparedRun:
    """A program through a pipeline; without steps, as loaded. It ends at the last program before
    memory is planned, whose graph still shows the computation. Raises as `ask` while there is no
    answer. `about` are facts on a recorded compile."""
    stepped = step(ask, source, pipeline)
    ran = [index for index, record in enumerate(stepped.records) if record.enabled]

    @cache
    def graph(index: int) -> Graph | None:
        try:
            at = ran[index] if index >= 0 else -1
            found: Graph = ask("graph_after", source, *after(stepped.pipeline, at))
        except EngineError as error:
            if error.kind != "graph":
                raise
            return None
        return found

    def or_end(index: int) -> Graph | None:
        if index < len(ran) - 1:
            return graph(index)
        ends = (found for i in range(index, -2, -1) if (found := graph(i)) is not None)
        last = next(ends, None)
        unplanned = (
            g for g in chain([last], ends) if g and not any(n.op.startswith(_LOWERED) for n in g)
        )
        return next(unplanned, last)

    about = about or {"pipeline": str(stepped.pipeline), "training": source.training}
    return ComparedRun(label, ir, tuple(stepped.records[i] for i in ran), or_end, about)
