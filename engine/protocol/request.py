"""What to build, and how to run it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from relascope.engine.protocol.source import ModelSource
from relascope.passes.pipeline import Pipeline


@dataclass(frozen=True)
class BuildRequest:
    """A program to build: whole, or split into a forward and a backward. `target` is TVM's text,
    with options of ours; `threads` are for TVM and PyTorch alike, and 0 means as many as the
    machine has cores; `repeats` counts the rounds of timing. With `split`, the forward saves the
    nodes of the joint graph whose ids are `captures`, and the backward recomputes the rest; else it
    is built whole: inference, or forward and gradients in one. `runs` counts those of a check,
    each with passes, build and program."""

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
