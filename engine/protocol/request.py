"""What is to be built, and how it is run."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from relascope.engine.protocol.source import ModelSource
from relascope.passes.pipeline import Pipeline


@dataclass(frozen=True)
class BuildRequest:
    """A program to build: whole, or split into a forward and a backward. `target` is TVM's text,
    with options of ours; `threads` are for TVM and PyTorch alike, and 0 means as many as the
    machine has cores; `repeats` are rounds of what is timed. `captures` are ids of the joint
    graph's nodes that the forward saves where `split` splits it there, and the backward recomputes
    the rest; else it is built as it is: inference, or forward and gradients in one. `runs` are of a
    check: passes, build and program, each time."""

    source: ModelSource
    pipeline: Pipeline
    target: str
    threads: int = 0
    repeats: int = 10
    captures: tuple[str, ...] = ()
    split: bool = False
    runs: int = 1

    def split_at(self, captures: Iterable[str]) -> "BuildRequest":
        return replace(self, captures=tuple(captures), split=True)
