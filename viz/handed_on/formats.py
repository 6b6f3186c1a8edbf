"""The export formats of a graph, by file ending."""

from collections.abc import Callable, Iterable

from relascope.core.errors import EngineError
from relascope.core.graph import Graph
from relascope.viz.drawing import palette
from relascope.viz.drawing.drawing import View
from relascope.viz.handed_on import interchange
from relascope.viz.handed_on.graphs import PLAIN, to_svg
from relascope.viz.handed_on.sheet import Sheet

_LARGEST = 16_000  # pixels of a PNG's side that programs still open
_MOST = 80_000_000  # pixels of a PNG


FORMATS: dict[str, str] = {
    ".html": "one page that needs no server: the viewer, with search and modules",
    ".svg": "a picture, with selectable text",
    ".png": "a picture of pixels",
    ".pdf": "a picture on one page",
    ".dot": "Graphviz",
    ".explorer.json": "Model Explorer",
    ".json": "the whole graph, which relascope reads back and `<relascope-graph>` shows",
}
"""Descriptions of the formats by file ending."""

COLOURED = (".html", ".svg", ".png", ".pdf")
"""Formats that show an overlay."""


def ending_of(name: str, endings: Iterable[str], option: str = "-o") -> str:
    """The longest known ending of a name. Raises EngineError of kind "usage" if there is none."""
    if fits := [ending for ending in endings if name.lower().endswith(ending)]:
        return max(fits, key=len)
    said = "The ending of the file's name selects the format, and this one is unknown."
    listed = ", ".join(f"{e} ({FORMATS[e]})" if endings is FORMATS else e for e in endings)
    raise EngineError("usage", said, f"{option} {name}", f"Give one of: {listed}.")


def graph_file(
    ending: str,
    graph: Graph,
    view: View = PLAIN,
    theme: palette.Theme = "light",
    sheet: Callable[[], Sheet] | None = None,
) -> bytes:
    """A graph in one of `FORMATS`; `sheet` makes the page around it. Raises EngineError of kind
    "usage" if a PNG is too large."""
    if ending in (".svg", ".png", ".pdf"):
        return picture(ending, to_svg(graph, view, theme))
    if ending in (".html", ".json"):
        from relascope.viz.handed_on.parts import graph_tab

        file = sheet() if sheet else Sheet(graph.name, {"IR": graph.ir.capitalize()})
        if not file.tabs:
            graph_tab(file, graph, view)
        if ending == ".html":
            return file.html().encode()
        return interchange.to_json_text(graph, page=file.data()).encode("utf-8", "replace")
    if ending == ".dot":
        text = interchange.to_dot(graph, view.fewer_than, theme, view.show_shapes)
    else:
        text = interchange.to_model_explorer(graph, view.fewer_than)
    return text.encode("utf-8", "replace")


def picture(ending: str, svg: str) -> bytes:
    """An SVG unchanged, as PNG or as PDF, without network. A PNG has two dots per pixel, or as many
    as programs can open. Raises EngineError of kind "usage" if not even half a dot fits."""
    if ending == ".svg":
        return svg.encode()
    import vl_convert

    if ending == ".pdf":
        return vl_convert.svg_to_pdf(svg)
    wide, high = size_of(svg)
    scale = min(2.0, _LARGEST / max(wide, high), (_MOST / (wide * high)) ** 0.5)
    if scale < 0.5:
        said = f"The picture has {wide:.0f} × {high:.0f} pixels, too many to be readable."
        raise EngineError("usage", said, ".png", "Write .svg or .pdf, or close modules.")
    return vl_convert.svg_to_png(svg, scale=scale)


def size_of(svg: str) -> tuple[float, float]:
    """Width and height, in pixels, of an SVG by `to_svg`."""
    head = svg.partition(">")[0]
    wide, high = (float(head.split(f'{name}="')[1].split('"')[0]) for name in ("width", "height"))
    return wide, high
