"""A graph with its fused functions opened, and names of kernels common to two graphs."""

import re
from collections import defaultdict

from relascope.core.graph import OWN_KERNELS, Graph, Node
from relascope.core.identity import flat, makers, read_by


class FlatBodies:
    """One graph with fused bodies opened: `nodes` has all by id, those inside a function before it,
    without the function's arguments; `reads` has each node's inputs in argument order, with a
    literal as `=text`; `outputs` are the ids of the nodes that make the results; `readers` has each
    node's readers once, in graph order, and nodes inside a function in place of it."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = {n.id: n for n in flat(graph)}
        self.producers = makers(graph)
        self.reads = {i: read_by(n, self.producers) for i, n in self.nodes.items()}
        self.outputs = tuple(self.producers.get(i, i) for i in graph.outputs)
        self.readers: dict[str, list[str]] = defaultdict(list)
        for reader, read in self.reads.items():
            if self.nodes[reader].body is None:  # a function's body reads its inputs
                for source in dict.fromkeys(read):
                    self.readers[source].append(reader)


KERNELS = (*OWN_KERNELS, "call_dps_packed")
"""Calls whose operator is a function's name, the program's own or a library's."""

_COUNTED = re.compile(r"(?<=[a-z])_?\d+(?=_|$)")


def kernel_name(node: Node) -> str:
    """The operator of a call; for a kernel, without the numbers that distinguish equal ones."""
    return _COUNTED.sub("", node.op) if node.attrs.get("call") in KERNELS else node.op
