"""Graphs as the viewer takes them, for a file that has no page behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relascope.core.graph import Graph
from relascope.viz.drawing import palette
from relascope.viz.drawing.drawing import View, drawing_of, opened_groups
from relascope.viz.drawing.stable_places import Places
from relascope.viz.handed_on.svg import svg

PLAIN = View()


def drawing(graph: Graph, view: View = PLAIN) -> dict[str, Any]:
    """What the viewer draws of a graph; it lays it out itself, and opens and closes modules."""
    made = drawing_of(graph, view.fewer_than)
    return _sent(made.data(None, (), _settled(view, made.family, made.focus(view.focus))))


class Walk:
    """Drawings of one program after another: what stays, stays where it stands."""

    def __init__(self) -> None:
        self.places = Places()

    def drawing(self, graph: Graph, view: View, beside: Mapping[str, str]) -> dict[str, Any]:
        """The next drawing.

        Args:
            beside: for new nodes the id of one that each stands for.
        """
        made = drawing_of(graph, view.fewer_than)
        first = opened_groups(made.tree, view.open_groups, {})
        opened = opened_groups(made.tree, self.places.open_as_before(made.tree, first), {})
        fresh = made.laid_out(opened, view.direction)
        if not self.places.can_keep(made.graph, fresh):
            opened, fresh = first, made.laid_out(first, view.direction)
        drawn = self.places.keep(made.graph, made.tree, opened, fresh, beside)
        return _sent(made.data(drawn, opened, _settled(view, made.family, view.focus)))


def to_svg(graph: Graph, view: View = PLAIN, theme: palette.Theme = "light") -> str:
    """A graph as the viewer draws it, with its modules open as `view` has them, as SVG."""
    made = drawing_of(graph, view.fewer_than)
    opened = opened_groups(made.tree, view.open_groups, {})
    data = made.data(None, (), _settled(view, made.family, None))
    return svg(data, made.placed(made.laid_out(opened, view.direction)), theme, view.show_shapes)


def _settled(view: View, family: str, focus: str | None) -> View:
    return replace(view, family=view.family or family, focus=focus, open_alone=None)


def _sent(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "toggles": {}, "told": "", "recalled": False, "token": "drawn"}
