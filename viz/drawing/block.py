"""A graph and its groups as lists, as the viewer's JavaScript reads them."""

from __future__ import annotations

from typing import Any

from relascope.core.graph import Graph, Literal
from relascope.viz.drawing import labels
from relascope.viz.drawing.modules import GroupTree


class Strings:
    """Texts that stand in many places, sent once and named by number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers))

    def all(self) -> list[str]:
        return list(self._numbers)


def laid_out_block(graph: Graph, tree: GroupTree, strings: Strings) -> dict[str, Any]:
    """What the layout reads of a graph: nodes field by field, groups by id and in their order.

    `strings` gets the texts that are named by number; send `strings.all()` as "strings".
    """
    nodes = graph.nodes
    index = {n.id: i for i, n in enumerate(nodes)}
    return {
        "node": {
            "id": [n.id for n in nodes],
            "title": [labels.title(n) for n in nodes],
            "sub": [labels.subtitle(n) for n in nodes],
            "types": [[strings.number(str(t)) for t in n.outputs] for n in nodes],
            "group": [tree.group_of[n.id] for n in nodes],
            "inputs": [
                [i.text if isinstance(i, Literal) else index[i] for i in n.inputs] for n in nodes
            ],
        },
        "groupIds": list(tree.groups),
        "groups": {
            g.id: {
                "label": g.label,
                "parent": g.parent,
                "nodes": g.nodes,
                "parameterBytes": g.parameter_bytes,
            }
            for g in tree.groups.values()
        },
    }
