"""Graphs as the viewer takes them, for a file that has no page behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relascope.core.graph import Graph
from relascope.viz.drawing import palette
from relascope.viz.drawing.drawing import View, drawing_of, opened_groups
from relascope.viz.drawing.modules import fold_constants
from relascope.viz.drawing.union import Union
from relascope.viz.handed_on.svg import svg

PLAIN = View()


def drawing(graph: Graph, view: View = PLAIN) -> dict[str, Any]:
    """What the viewer draws of a graph; it lays it out itself, and opens and closes modules."""
    made = drawing_of(graph, view.fewer_than)
    return _sent(made.data(_settled(view, made.family, made.focus(view.focus))))


class Walk:
    """Drawings of one program after another: what stays, stays where it stands."""

    def __init__(self) -> None:
        self.union = Union()

    def drawing(self, graph: Graph, view: View, beside: Mapping[str, str]) -> dict[str, Any]:
        """The next drawing.

        Args:
            beside: for new nodes the id of one that each stands for.
        """
        self.union.add(fold_constants(graph, view.fewer_than), beside)
        made = drawing_of(graph, view.fewer_than, self.union)
        return _sent(made.data(_settled(view, made.family, view.focus)))


def to_svg(graph: Graph, view: View = PLAIN, theme: palette.Theme = "light") -> str:
    """A graph as the viewer draws it, with its modules open as `view` has them, as SVG."""
    made = drawing_of(graph, view.fewer_than)
    opened = opened_groups(made.tree, view.open_groups, {})
    data = made.data(_settled(view, made.family, None))
    return svg(data, made.placed(made.laid_out(opened, view.direction)), theme, view.show_shapes)


def _settled(view: View, family: str, focus: str | None) -> View:
    return replace(view, family=view.family or family, focus=focus, open_alone=None)


def _sent(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "toggles": {}, "told": "", "recalled": False, "token": "drawn"}
