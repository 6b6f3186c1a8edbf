"""Graphs as data for the viewer in a file, and as pictures by its painter."""

from dataclasses import replace
from html import escape
from typing import Any

from relascope.core.graph import Graph
from relascope.core.visible import visible
from relascope.viz.drawing import javascript, palette
from relascope.viz.drawing.drawing import Drawing, View, drawing_of
from relascope.viz.drawing.union import Union

PLAIN = View()
_FONT = "'Source Sans 3', 'Source Sans Pro', 'Source Sans', Helvetica, Arial, sans-serif"


def drawing(graph: Graph, view: View = PLAIN, union: Union | None = None) -> dict[str, Any]:
    """A graph's data for the viewer, which lays it out, in the places of `union`, if given."""
    data = _data(drawing_of(graph, view.fewer_than, union), view)
    return {**data, "toggles": {}, "told": "", "recalled": False, "token": "drawn"}


def to_svg(graph: Graph, view: View = PLAIN, theme: palette.Theme = "light") -> str:
    """A graph as the viewer draws it, with the open modules of `view` and a legend, as SVG."""
    data = _data(drawing_of(graph, view.fewer_than), view)
    asked = {"data": data, "theme": theme, "font": _FONT, "shapes": view.show_shapes}
    drawn = javascript.call("svg/outside", "pictureOutside", asked)
    wide, high = (f"{drawn[side]:.1f}".removesuffix(".0") for side in ("width", "height"))
    name = escape(visible(graph.name, keep=""))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" '
        f'viewBox="0 0 {wide} {high}" role="img" aria-label="Graph {name}" font-family="{_FONT}">\n'
        f"<title>{name}</title>\n{visible(drawn['text'])}\n</svg>\n"
    )


def _data(made: Drawing, view: View) -> dict[str, Any]:
    return made.data(replace(view, family=view.family or made.family, open_alone=None))
