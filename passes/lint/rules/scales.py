"""A result is multiplied by one number a channel, which its weight could hold."""

from collections.abc import Iterator

from relascope.core.graph import Graph, Kind, Node
from relascope.core.operators import FACTORS, SUMS, WEIGHTED
from relascope.passes.lint.subject import Finding, Subject

NAME = "scales"
TITLE = "Scales beside weights"


def find(subject: Subject) -> Iterator[Finding]:
    """A product, or quotient, of what a convolution or dense layer puts out and weights alone."""
    folding = subject.remedy("scale")
    if not folding or subject.graph.forward_outputs is not None:
        return  # weights that get a gradient stay as they are
    for node in subject.calls(FACTORS):
        left, right = (*node.edges, "", "")[:2]
        for data, scale in ((left, right), (right, left))[: 1 if node.op == "divide" else 2]:
            if not data or scale not in subject.weights or data in subject.weights:
                continue
            layer = _layer(subject, data)
            if layer is not None and _fits(subject.graph, layer, node, scale):
                ready = scale in subject.fixed and layer.edges[1] in subject.fixed
                remedy = ("" if ready else "bind|fold|") + folding
                message = f"The weight of {layer.op} could hold this factor."
                yield subject.finding([node.id, layer.id], message, remedy, [node.id])


def _layer(subject: Subject, node_id: str) -> Node | None:
    """The layer whose result this is, sums with weights aside, where nothing else reads it."""
    graph = subject.graph
    while len(graph.readers[node_id]) == 1 and node_id not in graph.outputs:
        node = graph.by_id[node_id]
        if node.kind is not Kind.CALL:
            return None
        if node.op in WEIGHTED and len(node.edges) > 1 and node.edges[1] in subject.weights:
            return node
        if node.op not in SUMS or len(node.edges) != 2:
            return None
        data = [e for e in node.edges if e not in subject.weights]
        if len(data) != 1:
            return None
        node_id = data[0]
    return None


def _fits(graph: Graph, layer: Node, node: Node, scale: str) -> bool:
    """Whether a factor has one number for each channel of what a layer puts out."""
    shape, result = graph.by_id[scale].outputs[0].shape, layer.outputs[0].shape
    if node.outputs[0].shape != result:
        return False
    layout = str(layer.attrs.get("data_layout", "NCHW")) if "conv" in layer.op else ""
    axis = layout.find("C") if layout else len(result) - 1
    if len(layout) not in (0, len(result)) or not 0 <= axis < len(result):
        return False  # a blocked layout
    padded = (*(1 for _ in range(len(result) - len(shape))), *shape)
    return all(d == (result[axis] if i == axis else 1) for i, d in enumerate(padded))
