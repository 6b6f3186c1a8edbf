"""A graph with its fused functions opened: what each node really reads, and who really reads it."""

from collections import defaultdict

from relascope.core.graph import Graph
from relascope.core.identity import flat, makers


class FlatBodies:
    """One graph, fused bodies as parts of it.

    Attributes:
        nodes: all by id, those inside a function before it, without the function's arguments.
        reads: for each node the ids that it reads, in argument order; a literal is `=text`.
        outputs: ids of what makes the program's results.
        readers: for each id who reads it, in graph order, each once. Of a function, what is inside
            it reads.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = {n.id: n for n in flat(graph)}
        self.made_by = makers(graph)
        self.reads = {
            n.id: tuple(
                self.made_by.get(i, i) if isinstance(i, str) else f"={i.text}" for i in n.inputs
            )
            for n in self.nodes.values()
        }
        self.outputs = tuple(self.made_by.get(i, i) for i in graph.outputs)
        self.readers: dict[str, list[str]] = defaultdict(list)
        for reader, read in self.reads.items():
            if self.nodes[reader].body is None:  # what a function reads, its body reads
                for source in dict.fromkeys(read):
                    self.readers[source].append(reader)

    def value(self, ident: str) -> str:
        """The node that makes what readers of this one read."""
        return self.made_by.get(ident, ident)
