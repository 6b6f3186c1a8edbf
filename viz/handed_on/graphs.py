"""Graphs as the viewer takes them, for a file that has no page behind it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from relascope.core.graph import Graph
from relascope.viz.drawing import palette
from relascope.viz.drawing.drawing import View, drawing_of
from relascope.viz.drawing.union import Union
from relascope.viz.handed_on.svg import svg

PLAIN = View()


def drawing(graph: Graph, view: View = PLAIN, union: Union | None = None) -> dict[str, Any]:
    """What the viewer draws of a graph; it lays it out itself, and opens and closes modules.

    Args:
        union: steps of which the graph is one, in whose places it is drawn.
    """
    made = drawing_of(graph, view.fewer_than, union)
    data = made.data(_settled(view, made.family, made.focus(view.focus)))
    return {**data, "toggles": {}, "told": "", "recalled": False, "token": "drawn"}


def to_svg(graph: Graph, view: View = PLAIN, theme: palette.Theme = "light") -> str:
    """A graph as the viewer draws it, with its modules open as `view` has them, as SVG."""
    made = drawing_of(graph, view.fewer_than)
    opened = made.first(view)
    data = made.data(_settled(view, made.family, None))
    return svg(data, made.laid_out(opened, view.direction), theme, view.show_shapes)


def _settled(view: View, family: str, focus: str | None) -> View:
    return replace(view, family=view.family or family, focus=focus, open_alone=None)
