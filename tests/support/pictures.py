"""What is wrong with a picture, for tests."""

from __future__ import annotations

from typing import Any

from relascope.viz.drawing import javascript
from relascope.viz.drawing.layout import Layout


def flaws(drawn: Layout) -> tuple[list[Any], list[Any]]:
    """The edges that run through boxes which they do not touch, and the boxes that overlap."""
    found = javascript.call("layout/flaws", "flaws", lists_of(drawn))
    ids = [b.id for b in drawn.boxes]
    edges = [(e.source, e.target) for e in drawn.edges]
    return (
        [(edges[e], ids[b]) for e, b in found["through"]],
        [(ids[a], ids[b]) for a, b in found["overlaps"]],
    )


def lists_of(drawn: Layout) -> dict[str, Any]:
    at = {b.id: i for i, b in enumerate(drawn.boxes)}
    return {
        "direction": drawn.direction,
        "box": {name: [getattr(b, name) for b in drawn.boxes] for name in ("id", *"xywh", "open")},
        "edge": {
            "s": [at[e.source] for e in drawn.edges],
            "t": [at[e.target] for e in drawn.edges],
            "p": [[v for point in e.points for v in point] for e in drawn.edges],
            "kind": [2 if e.kind == "crossing" else 0 for e in drawn.edges],
        },
    }
