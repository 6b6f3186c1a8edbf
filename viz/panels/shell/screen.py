"""What is being looked at: everything the tabs need to know of the sidebar."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any

from relascope.core.graph import Graph
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import last_built
from relascope.passes.pipeline import Pipeline
from relascope.viz.drawing.drawing import View
from relascope.viz.panels.shell.holding import put
from relascope.viz.panels.shell.request_cache import RequestCache, Value


def look_at(module: str, call: int = 1) -> None:
    """Look at a submodule alone from the next run of the page on; "" for the whole model."""
    put("keep_module", module)
    put("keep_call", call)


@dataclass(frozen=True)
class Screen:
    """One model in one mode, seen through one pipeline, and the cache that answers for it. `label`
    is what people call it, a sample's name, or a file's name without its folder; constants with
    `fewer_than` elements are written into their readers' labels."""

    ir: str
    source: ModelSource
    label: str
    pipeline: Pipeline
    fewer_than: int
    cache: RequestCache = field(compare=False, repr=False)

    @property
    def training(self) -> bool:
        """Whether the gradient is taken."""
        return self.source.training

    @property
    def place(self) -> tuple[str, ModelSource, str]:
        """Where ids mean the same nodes: one model through one pipeline."""
        return self.ir, self.source, str(self.pipeline)

    def derive(self, make: Callable[[], Value], name: str, *key: Hashable) -> Value:
        """What `make` returns, kept for this place and by `key`; see `RequestCache.derive`."""
        return self.cache.derive(make, name, *self.place, *key)

    @property
    def built(self) -> int:
        """Index of the last step that is built, and not only for looking."""
        return last_built(self.ir, self.pipeline)

    def graph_after(self, index: int) -> Graph:
        """The graph after a step, -1 for the imported one, asked for by the steps up to it alone,
        so that a switch further down asks nothing anew; raises as `RequestCache.ask`."""
        return self.cache.ask("graph_after", self.source, self.pipeline.upto(index), index)

    def upto(self, index: int) -> "Screen":
        """The same with the steps up to this one alone; -1 leaves none."""
        return replace(self, pipeline=self.pipeline.upto(index))

    def view(self, height: int | None = None, **more: Any) -> View:
        """How a graph of it is drawn, `height` pixels high, or as the window has room."""
        own = f"{self.ir}:{self.label}:{self.source.module}" if self.source.module else None
        more = {"family": own, "open_alone": self.open_alone, **more}
        return View(height, self.fewer_than, **more)

    def open_alone(self, module: str) -> None:
        """Look at a submodule of this one alone from the next run of the page on."""
        around = self.source.module
        look_at(f"{around}.{module}" if around else module)

    @property
    def last(self) -> int:
        """Index of the pipeline's last step."""
        return len(self.pipeline) - 1
