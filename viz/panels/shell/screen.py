"""The screen: the sidebar's choices, for the tabs."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any

from relascope.core.graph import Graph
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import last_built
from relascope.passes.pipeline import Pipeline
from relascope.viz.compare.recording import RecordedCompile
from relascope.viz.drawing.drawing import View
from relascope.viz.panels.shell.holding import put
from relascope.viz.panels.shell.request_cache import RecordingCache, RequestCache, Value


def look_at(module: str) -> None:
    """Show a submodule alone from the next run of the page on; "" for the whole model."""
    put("keep_module", module)
    put("keep_call", 1)


@dataclass(frozen=True)
class Screen:
    """One model in one mode, through one pipeline, and the cache that answers for it. `label` is a
    sample's or a file's name; constants below `fewer_than` elements go into readers' labels."""

    ir: str
    source: ModelSource
    label: str
    pipeline: Pipeline
    fewer_than: int
    cache: RequestCache = field(compare=False, repr=False)

    @property
    def training(self) -> bool:
        return self.source.training

    @property
    def recorded(self) -> RecordedCompile | None:
        """The recording that it shows; None for a model."""
        return self.cache.recording if isinstance(self.cache, RecordingCache) else None

    @property
    def place(self) -> tuple[str, ModelSource, str]:
        """Identifies one model through one pipeline, where ids mean the same nodes."""
        return self.ir, self.source, str(self.pipeline)

    def derive(self, make: Callable[[], Value], name: str, *key: Hashable) -> Value:
        """The result of `make`, cached for this place by `key`; see `RequestCache.derive`."""
        return self.cache.derive(make, name, *self.place, *key)

    @property
    def built(self) -> int:
        """Index of the last step that is built, not only inspected."""
        return last_built(self.ir, self.pipeline)

    def graph_after(self, index: int) -> Graph:
        """The graph after a step, -1 for the imported one; raises as `RequestCache.ask`. The
        request has only the steps up to it, so that a switch further down does not repeat it."""
        return self.cache.ask("graph_after", self.source, self.pipeline.upto(index), index)

    def upto(self, index: int) -> "Screen":
        """The screen with the steps up to this one only; -1 leaves none."""
        return replace(self, pipeline=self.pipeline.upto(index))

    def view(self, height: int | None = None, **more: Any) -> View:
        """How to draw a graph of the screen; `height` in pixels, by default the window's."""
        own = f"{self.ir}:{self.label}:{self.source.module}" if self.source.module else None
        more = {"family": own, "open_alone": self.open_alone, **more}
        return View(height, self.fewer_than, **more)

    def open_alone(self, module: str) -> None:
        """Show a submodule of this one alone from the next run of the page on."""
        around = self.source.module
        look_at(f"{around}.{module}" if around else module)

    @property
    def last(self) -> int:
        return len(self.pipeline) - 1
