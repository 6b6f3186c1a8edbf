"""What is being looked at: everything the tabs need to know of the sidebar."""

from __future__ import annotations

from dataclasses import dataclass, replace

from relascope.engine.protocol.source import ModelSource
from relascope.passes.pipeline import Pipeline


@dataclass(frozen=True)
class Screen:
    """One model in one mode, seen through one pipeline.

    Args:
        ir: "relay" or "relax".
        source: the model with its inputs.
        label: what people call it: a sample's name, or a file's name without its folder.
        pipeline: the passes, in order.
        fewer_than: constants with fewer elements are written into their readers' labels.
    """

    ir: str
    source: ModelSource
    label: str
    pipeline: Pipeline
    fewer_than: int

    @property
    def training(self) -> bool:
        """Whether the gradient is taken."""
        return self.source.training

    @property
    def place(self) -> tuple[str, ModelSource, str]:
        """Where ids mean the same nodes: one model through one pipeline."""
        return self.ir, self.source, str(self.pipeline)

    def upto(self, index: int) -> Screen:
        """The same with the steps up to this one alone; -1 leaves none."""
        return replace(self, pipeline=self.pipeline.upto(index))

    @property
    def last(self) -> int:
        """Index of the pipeline's last step."""
        return len(self.pipeline) - 1
