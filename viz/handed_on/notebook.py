"""A graph or a recording in a notebook, and a file of it from a script."""

import os
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from relascope.core.errors import EngineError, lines_of, refusing
from relascope.core.graph import Graph
from relascope.core.own_code import node_values
from relascope.recorder.reading import Recording, read
from relascope.viz.compare.runs import ComparedRun, compare
from relascope.viz.compare.sides import of_recording
from relascope.viz.drawing.drawing import View, with_overlays
from relascope.viz.handed_on.difference import difference_sheet
from relascope.viz.handed_on.formats import FORMATS, Appearance, ending_of, graph_file
from relascope.viz.handed_on.recorded import recording_sheet
from relascope.viz.handed_on.sheet import Sheet

_AROUND = 170  # pixels of the page around what it shows
_PAGE = 900 + _AROUND  # pixels of one with texts or tables beside its picture

# In a frame, light or dark is what the element's own scheme says; here it is the frontend's theme:
# Jupyter's, VS Code's, Colab's, and elsewhere the system's.
_DARK = '[data-jp-theme-light="false"], [data-vscode-theme-kind$="dark"], [theme="dark"], '
_DARK += '[data-vscode-theme-kind$="contrast"]'
_LIGHT = '[data-jp-theme-light="true"], [data-vscode-theme-kind$="light"], [theme="light"]'
_STYLE = (
    f"<style>:is({_DARK}) .relascope {{ color-scheme: dark }} "
    f":is({_LIGHT}) .relascope {{ color-scheme: light }}</style>"
)


@dataclass(frozen=True, repr=False)
class NotebookView:
    """What a notebook draws, as high as `height` pixels, and `save` writes, as `file` makes it in
    one of `formats`; see `show`."""

    title: str
    words: str
    file: Callable[[str], bytes]
    height: int
    formats: Collection[str] = (".html",)
    document: Mapping[str, Any] = field(default_factory=dict)

    def html(self) -> str:
        """One page that needs no server, as text."""
        return self.file(".html").decode()

    def save(self, path: str | Path) -> Path:
        """Write it in the format that its name ends in; EngineError, kind "usage" or "file", where
        there is no such format, or it cannot be written."""
        path = Path(path)
        ending = ending_of(path.name, self.formats, "save")
        with refusing("file", "Cannot write: {}.", str(path), "Give another path.", OSError):
            path.write_bytes(self.file(ending))
        return path

    def _repr_html_(self) -> str:
        """The same page in a frame; its scripts reach nothing of the notebook."""
        return (
            f'{_STYLE}<iframe class="relascope" srcdoc="{escape(self.html())}" '
            'sandbox="allow-scripts allow-downloads" '
            f'style="width: 100%; height: {self.height}px; border: 0" loading="lazy" '
            f'title="{escape(self.title)}"></iframe>'
        )

    def __repr__(self) -> str:
        return f"<relascope {self.words}: .save(path) writes it>"


def show(
    what: Any,
    function: str = "main",
    height: int = 640,
    overlay: Callable[[Graph], Any] | None = None,
) -> NotebookView:
    """What to look at, in a notebook or as a file: `relascope.show(mod).save("graph.html")`.

    It is a live module of Relay or Relax (`function` names one of its functions), a function of
    one, or a `core.graph.Graph`, whose picture is `height` pixels high and coloured by the numbers
    or texts that `overlay` gives for its nodes' ids; or a recording: the path of its file, what
    `relascope.recording` gave, or what `relascope.recorder.reading.read` made of it; or what `diff`
    gave. Raises EngineError, kind "usage", where it is none of these, the module has no such
    function, or the overlay is none; kind "file" where the recording cannot be read.
    """
    if isinstance(what, NotebookView):
        return what
    what = _opened(what, function)
    if isinstance(what, Recording):
        if overlay:
            said = "A recording has many graphs, and an overlay colours only one."
            raise EngineError("usage", said, "overlay", "Give a module or a graph.")
        recording, name = what, what.path.name
        return NotebookView(
            f"Recording {name}",
            f"recording {name!r}, {len(recording.passes)} passes",
            lambda ending: recording_sheet(recording).html().encode(),
            _PAGE if recording.passes else _AROUND,
        )
    graph = what
    about = {"IR": graph.ir.capitalize(), "function": graph.name}
    own = {getattr(overlay, "__name__", "own"): node_values(graph, overlay)} if overlay else {}
    look = Appearance(with_overlays(View(height), own), sheet=lambda: Sheet(graph.name, about))
    return NotebookView(
        f"Graph {graph.name}",
        f"graph {graph.name!r} ({graph.ir}), {len(graph)} nodes",
        lambda ending: graph_file(ending, graph, look),
        height + _AROUND,
        FORMATS,
    )


def diff(a: Any, b: Any, function: str = "main") -> NotebookView:
    """How two differ, each of them a module, a function, a graph or a recording as `show` takes it;
    `document` is that of `relascope diff --json`. Raises as `show`."""

    def side(what: Any, name: str) -> ComparedRun:
        opened = _opened(what, function)
        if isinstance(opened, Recording):
            return of_recording(opened, opened.path.name)
        return ComparedRun(name, opened.ir, (), lambda index: opened)

    sides = side(a, "A"), side(b, "B")
    document = compare(*sides)
    return NotebookView(
        " and ".join(side.label for side in sides),
        f"difference: {document['verdict']}",
        lambda ending: difference_sheet(document, *sides).html().encode(),
        _PAGE,
        document=document,
    )


def _opened(what: Any, function: str) -> Recording | Graph:
    if isinstance(what, str | os.PathLike):
        return read(Path(what))
    return what if isinstance(what, Recording | Graph) else _drawn(what, function)


def _drawn(what: Any, name: str) -> Graph:
    """The graph of a live module's function, by the TVM that is in this process already."""
    tvm: Any = sys.modules.get("tvm")
    module = getattr(tvm, "IRModule", None)
    hint = "Give a module of Relay or Relax, a function of one, a graph, or a recording's path."
    if module and not isinstance(what, module) and isinstance(what, tvm.ir.BaseFunc):
        what = module.from_expr(what)
    if not module or not isinstance(what, module):
        why = "" if module else ", and no TVM is imported here"
        said = f"An object of type {type(what).__name__} cannot be shown{why}."
        raise EngineError("usage", said, "relascope.show", hint)
    names = [str(v.name_hint) for v in what.get_global_vars()]
    if name not in names:
        if function := next((n for n in names if len(names) == 1), None):
            name = function
        else:
            said = f"The module has no function {name}."
            raise EngineError("usage", said, "function", f"It has: {', '.join(sorted(names))}.")
    if "tvm.relay" in sys.modules and hasattr(tvm, "relay"):  # a Relax module has its types
        what = tvm.relay.transform.InferType()(what)
    # By name, for nothing that the page or the command line runs may reach a TVM.
    drawing = import_module("relascope.recorder.drawing")
    try:
        found = drawing.graph_of(what, name, {})
    except Exception as wrong:  # whatever a TVM raises
        said = f"The function {name} cannot be drawn: {lines_of(wrong)[0]}"
        raise EngineError("usage", said, name, "Loops (TIR) cannot be drawn as a graph.") from wrong
    return Graph.from_json(found)
