"""A graph and its groups as lists, as the viewer's JavaScript reads them."""

from collections.abc import Mapping
from typing import Any

from relascope.core.graph import Graph, Literal, Node
from relascope.viz.drawing import labels
from relascope.viz.drawing.modules import GroupTree, module_groups, regrouped
from relascope.viz.drawing.union import Union


class Strings:
    """Texts that stand in many places, sent once and named by number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers))

    def all(self) -> list[str]:
        return list(self._numbers)


def drawn_block(
    graph: Graph, union: Union | None, strings: Strings
) -> tuple[GroupTree, dict[str, Any]]:
    """A graph's modules and what the layout reads of it.

    Args:
        union: has the graph, and says where its nodes stand; None lays it out by itself.
        strings: gets the texts that are named by number; send `strings.all()` as "strings".
    """
    if union is None:
        tree = module_groups(graph)
        return tree, _lists(graph, tree, strings)
    backdrop, around = union.graph()
    tree = regrouped(graph, around, union.slot)
    at = {n.id: i for i, n in enumerate(backdrop.nodes)}
    return tree, _lists(graph, tree, strings) | {
        "backdrop": _lists(backdrop, around, strings, union.nodes),
        "slot": [at[union.slot[n.id]] for n in graph.nodes],
    }


def _lists(
    graph: Graph, tree: GroupTree, strings: Strings, by_slot: Mapping[str, Node] | None = None
) -> dict[str, Any]:
    """Nodes field by field, groups by id and in their order; `by_slot` are the nodes whose words
    stand in the boxes, where these are others."""
    nodes = graph.nodes
    named = [by_slot[n.id] for n in nodes] if by_slot else nodes
    index = {n.id: i for i, n in enumerate(nodes)}
    return {
        "node": {
            "id": [n.id for n in nodes],
            "title": [labels.title(n) for n in named],
            "sub": [labels.subtitle(n) for n in named],
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
