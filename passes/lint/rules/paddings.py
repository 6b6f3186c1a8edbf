"""A tensor is written out padded for a convolution that could pad by itself."""

from collections.abc import Iterator

from relascope.core.operators import PADS
from relascope.passes.lint.subject import Finding, Subject

NAME = "paddings"
TITLE = "Paddings"


def find(subject: Subject) -> Iterator[Finding]:
    """Zeros around the image of a convolution that can put them there itself."""
    graph, remedy = subject.graph, subject.remedy("padding")
    if not remedy:
        return
    for node in subject.calls(PADS):
        if len(graph.readers[node.id]) != 1:
            continue
        reader = graph.by_id[graph.readers[node.id][0]]
        if "conv2d" not in reader.op or node.attrs.get("pad_mode") != "constant":
            continue
        if reader.edges[0] != node.id or node.id in graph.outputs or not _zeros(subject, node.id):
            continue
        if not subject.together(node.id, reader.id):
            message = f"The {reader.op} that reads this could pad by itself."
            yield subject.finding([node.id, reader.id], message, remedy, [node.id])


def _zeros(subject: Subject, pad: str) -> bool:
    """Whether it pads with zeros, and not at the axes of images and channels."""
    node = subject.graph.by_id[pad]
    layout = str(subject.graph.by_id[subject.graph.readers[pad][0]].attrs.get("data_layout", ""))
    width = node.attrs.get("pad_width") or []
    if len(layout) != len(width):
        return False
    value = [subject.graph.by_id[e].attrs.get("value") for e in node.edges[1:]]
    at_images = [w for w, axis in zip(width, layout, strict=True) if axis in "NC" and any(w)]
    return not at_images and all(v is not None and float(v) == 0 for v in value)
