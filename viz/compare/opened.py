"""A graph with its fused functions opened: what each node really reads, and who really reads it;
and the names of operators as two graphs share them.
"""

import re
from collections import defaultdict

from relascope.core.graph import OWN_KERNELS, Graph, Node
from relascope.core.identity import flat, makers, read_by


class FlatBodies:
    """One graph, fused bodies as parts of it: `nodes` has all by id, those inside a function before
    it, without the function's arguments; `reads` for each the ids that it reads, in argument order,
    a literal as `=text`; `outputs` the ids of what makes the program's results; `readers` for each
    id who reads it, in graph order, each once: of a function, what is inside it reads."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = {n.id: n for n in flat(graph)}
        self.made_by = makers(graph)
        self.reads = {i: read_by(n, self.made_by) for i, n in self.nodes.items()}
        self.outputs = tuple(self.made_by.get(i, i) for i in graph.outputs)
        self.readers: dict[str, list[str]] = defaultdict(list)
        for reader, read in self.reads.items():
            if self.nodes[reader].body is None:  # what a function reads, its body reads
                for source in dict.fromkeys(read):
                    self.readers[source].append(reader)


KERNELS = (*OWN_KERNELS, "call_dps_packed")
"""Calls whose operator is a function's name, the program's own or a library's."""

_SHAPES = {
    "permute_dims": "transpose",
    "concat": "concatenate",
    "batch_matmul": "matmul",
    "dense": "matmul",
    "bias_add": "add",
}
_COUNTED = re.compile(r"(?<=[a-z])_?\d+(?=_|$)")


def common_word(node: Node) -> str:
    """The operator of a call under the name that both IRs know it by."""
    word = node.op.rpartition(".")[2]
    return _SHAPES.get(word, word)


def kernel_name(node: Node) -> str:
    """The operator of a call; of a kernel without the numbers that tell it from its equals."""
    return _COUNTED.sub("", node.op) if node.attrs.get("call") in KERNELS else node.op
