"""A graph, recording or difference in a notebook, or as a file from a script."""

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
from relascope.viz.compare.recording import RecordedCompile
from relascope.viz.compare.runs import ComparedRun, compare, run_of
from relascope.viz.drawing.drawing import View, with_overlays
from relascope.viz.handed_on.difference import difference_sheet
from relascope.viz.handed_on.formats import FORMATS, ending_of, graph_file
from relascope.viz.handed_on.recorded import recording_sheet
from relascope.viz.handed_on.sheet import Sheet

_AROUND = 170  # pixels of the page around its content
_PAGE = 900 + _AROUND  # pixels of a page with texts or tables beside its picture

# A frame is light or dark by its element's scheme, set here to the theme of Jupyter, VS Code or
# Colab, and elsewhere to the system's.
_DARK = '[data-jp-theme-light="false"], [data-vscode-theme-kind$="dark"], [theme="dark"], '
_DARK += '[data-vscode-theme-kind$="contrast"]'
_LIGHT = '[data-jp-theme-light="true"], [data-vscode-theme-kind$="light"], [theme="light"]'
_STYLE = (
    f"<style>:is({_DARK}) .relascope {{ color-scheme: dark }} "
    f":is({_LIGHT}) .relascope {{ color-scheme: light }}</style>"
)


@dataclass(frozen=True, repr=False)
class NotebookView:
    """A view of `show`, `height` pixels high; `file` makes it in one of `formats`."""

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
        """Write a file in the format of its ending. Raises EngineError of kind "usage" if there is
        no such format, and "file" if it cannot be written."""
        path = Path(path)
        ending = ending_of(path.name, self.formats, "save")
        with refusing("file", "Cannot write: {}.", str(path), "Give another path.", OSError):
            path.write_bytes(self.file(ending))
        return path

    def _repr_html_(self) -> str:
        """The page in a frame, whose scripts cannot access the notebook."""
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
    """Show something in a notebook or as a file: `relascope.show(mod).save("graph.html")`.

    `what` is a live module of Relay or Relax (`function` names one of its functions), a function of
    one, or a `core.graph.Graph`, whose picture is `height` pixels high and coloured by the numbers
    or texts that `overlay` gives by node id; or a recording: the path of its file, or the result of
    `relascope.recording` or `relascope.recorder.reading.read`; or the result of `diff`. Raises
    EngineError of kind "usage" if it is none of these, the module has no such function, or the
    overlay is invalid, and of kind "file" if the recording cannot be read.
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
    view = with_overlays(View(height), own)
    return NotebookView(
        f"Graph {graph.name}",
        f"graph {graph.name!r} ({graph.ir}), {len(graph)} nodes",
        lambda ending: graph_file(ending, graph, view, sheet=lambda: Sheet(graph.name, about)),
        height + _AROUND,
        FORMATS,
    )


def diff(a: Any, b: Any, function: str = "main") -> NotebookView:
    """Show how two modules, functions, graphs or recordings, as for `show`, differ; the result's
    `document` is that of `relascope diff --json`. Raises as `show`."""

    def side(what: Any, name: str) -> ComparedRun:
        opened = _opened(what, function)
        if isinstance(opened, Recording):
            its = RecordedCompile(opened)
            return run_of(its, its.ir, its.source, its.pipeline, opened.path.name, its.about)
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
    """The graph of a live module's function, by the TVM in this process."""
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
        if len(names) != 1:
            said = f"The module has no function {name}."
            raise EngineError("usage", said, "function", f"It has: {', '.join(sorted(names))}.")
        (name,) = names
    if "tvm.relay" in sys.modules and hasattr(tvm, "relay"):  # a Relax module has its types
        what = tvm.relay.transform.InferType()(what)
    # By name, because the page and the command line may not import a TVM.
    drawing = import_module("relascope.recorder.drawing")
    try:
        found = drawing.graph_of(what, name, {})
    except Exception as wrong:  # a TVM may raise anything
        said = f"The function {name} cannot be drawn: {lines_of(wrong)[0]}"
        raise EngineError("usage", said, name, "Loops (TIR) cannot be drawn as a graph.") from wrong
    return Graph.from_json(found)
