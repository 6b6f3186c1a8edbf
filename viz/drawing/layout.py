"""From a graph and the groups that are open to boxes and curves, without a browser.

The layout is the viewer's own (`viz/component/viewer/layout/`): what a test checks here, and what
is written to a file, is what is on the screen.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from typing import Literal as OneOf

from relascope.core.graph import Graph
from relascope.viz.drawing import javascript
from relascope.viz.drawing.block import Strings, drawn_block
from relascope.viz.drawing.union import Union

Direction = OneOf["TB", "LR"]


def laid_out(
    graph: Graph,
    open_groups: Iterable[str],
    direction: Direction = "TB",
    union: Union | None = None,
) -> dict[str, Any]:
    """Lay a graph out.

    Args:
        graph: what to draw; it should be valid (producers first).
        open_groups: ids of the groups to draw open; a group inside a closed one does not show,
            an id that is no group is ignored.
        direction: "TB" from top to bottom or "LR" from left to right.
        union: steps of which the graph is one, to draw it in the places that all of them have.

    Returns:
        Boxes, edges and size in pixels, in the lists of `layout.js`; the same for the same
        arguments, always.
    """
    asked = question(graph, open_groups, direction, union)
    found: dict[str, Any] = javascript.call("layout/outside", "layoutOutside", asked)
    return found


def question(
    graph: Graph,
    open_groups: Iterable[str],
    direction: Direction = "TB",
    union: Union | None = None,
) -> dict[str, Any]:
    """What `laid_out` asks of the viewer's JavaScript, as JSON values."""
    strings = Strings()
    _, block = drawn_block(graph, union, strings)
    return {
        "block": block | {"strings": strings.all()},
        "opened": sorted(set(open_groups)),
        "options": {"direction": direction},
    }
