"""A graph in a notebook, and a file of it from a script."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from relascope.core.errors import EngineError, lines_of
from relascope.core.graph import Graph
from relascope.viz.drawing.drawing import View
from relascope.viz.handed_on.formats import FORMATS, Look, ending_of, graph_file
from relascope.viz.handed_on.graphs import PLAIN
from relascope.viz.handed_on.sheet import Sheet


@dataclass(frozen=True)
class Shown:
    """A graph to look at: a notebook draws it, `save` writes it in any of the formats.

    Args:
        graph: what is shown.
        view: how it is drawn.
    """

    graph: Graph
    view: View = PLAIN

    def html(self) -> str:
        """One page that needs no server, as text."""
        about = {"IR": self.graph.ir.capitalize(), "function": self.graph.name}
        look = Look(self.view, sheet=lambda: Sheet(self.graph.name, about))
        return graph_file(".html", self.graph, look).decode()

    def save(self, path: str | Path) -> Path:
        """Write the graph to a file, in the format that its name ends in (`FORMATS`).

        Raises:
            EngineError: kind "usage" or "file"; there is no such format, or it cannot be written.
        """
        path = Path(path)
        ending = ending_of(path.name, FORMATS, "save")
        try:
            path.write_bytes(graph_file(ending, self.graph, Look(self.view)))
        except OSError as wrong:
            said = f"Cannot write: {wrong.strerror or wrong}."
            raise EngineError("file", said, str(path), "Give another path.") from wrong
        return path

    def _repr_html_(self) -> str:
        """The same page in a frame; its scripts reach nothing of the notebook."""
        height = (self.view.height or 640) + 170
        return (
            f'<iframe srcdoc="{escape(self.html())}" sandbox="allow-scripts allow-downloads" '
            f'style="width: 100%; height: {height}px; border: 0" loading="lazy" '
            f'title="Graph {escape(self.graph.name)}"></iframe>'
        )

    def __repr__(self) -> str:
        count, name = len(self.graph), self.graph.name
        return f"<relascope graph {name!r} ({self.graph.ir}), {count} nodes: .save(path) writes it>"


def show(what: Any, function: str = "main", height: int = 640) -> Shown:
    """A program to look at, in a notebook or as a file: `relascope.show(mod).save("graph.html")`.

    Args:
        what: a live module of Relay or Relax, a function of one, or a `core.graph.Graph`.
        function: of a module, which of its functions.
        height: of the picture, in pixels.

    Raises:
        EngineError: kind "usage"; it is none of these, or the module has no such function.
    """
    graph = what if isinstance(what, Graph) else _drawn(what, function)
    return Shown(graph, replace(PLAIN, height=height))


def _drawn(what: Any, name: str) -> Graph:
    """The graph of a live module's function, by the TVM that is in this process already."""
    tvm: Any = sys.modules.get("tvm")
    module = getattr(tvm, "IRModule", None)
    hint = "Give a module of Relay or Relax (tvm.IRModule), a function of one, or a graph."
    if module is None:
        said = f"A {type(what).__name__} is no graph, and no TVM is imported here."
        raise EngineError("usage", said, "relascope.show", hint)
    if not isinstance(what, module) and isinstance(what, tvm.ir.BaseFunc):
        what = module.from_expr(what)
    if not isinstance(what, module):
        said = f"A {type(what).__name__} cannot be shown."
        raise EngineError("usage", said, "relascope.show", hint)
    names = [str(v.name_hint) for v in what.get_global_vars()]
    if name not in names:
        if function := next((n for n in names if len(names) == 1), None):
            name = function
        else:
            said = f"The module has no function {name}."
            raise EngineError("usage", said, "function", f"It has: {', '.join(sorted(names))}.")
    ready = _typed(what)
    # By name, for nothing that the page or the command line runs may reach a TVM.
    drawing = import_module("relascope.recorder.drawing")
    try:
        found = drawing.graph_of(ready, name, {})
    except Exception as wrong:  # whatever a TVM raises
        said = f"The function {name} cannot be drawn: {lines_of(wrong)[0]}"
        raise EngineError("usage", said, name, "Loops (TIR) are no graph.") from wrong
    return Graph.from_json(found)


def _typed(module: Any) -> Any:
    """A module of Relay with its types; a Relax module has them."""
    relay = getattr(sys.modules["tvm"], "relay", None)
    if relay is None or "tvm.relay" not in sys.modules:
        return module
    return relay.transform.InferType()(module)
