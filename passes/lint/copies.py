"""Needless copies in memory: transposed, or in another layout or type."""

from collections.abc import Iterator, Sequence

from relascope.core.graph import Kind, Node
from relascope.core.operators import BROADCASTS, CASTS, LAYOUTS, TRANSPOSES
from relascope.passes.cost import is_product, is_view
from relascope.passes.lint.subject import Finding, Subject, is_transpose, linter, order_of


@linter(
    "Transposed copies",
    "A matrix is written out transposed, but its reader could read it in place.",
)
def transposes(subject: Subject) -> Iterator[Finding]:
    """Transposes that another order of operations avoids."""
    graph = subject.graph
    for node in subject.calls(TRANSPOSES):
        if node.id in subject.weights:
            continue  # constant work
        source, order = graph.by_id[node.edges[0]], order_of(node)
        if is_transpose(source) and not subject.together(source.id, node.id):
            both = tuple(order_of(source)[a] for a in order)
            undone = both == tuple(range(len(both)))
            message = "The second transpose undoes the first."
            message = message if undone else "Two transposes in a row could be one."
            yield _twice(subject, source, node, message, undone, "transpose of transpose")
        elif len(order) > 1 and order == (*range(len(order) - 2), len(order) - 1, len(order) - 2):
            yield from _matrix(subject, source, node)


def _twice(
    subject: Subject, first: Node, second: Node, message: str, both: bool, hazard: str
) -> Finding:
    """Two operators in a row, one of them needless; `both` if nothing else reads the first."""
    only = subject.graph.readers[first.id] == (second.id,)
    spared = [first.id, second.id] if both and only else [second.id]
    return subject.finding([second.id, first.id], message, subject.remedy(hazard), spared)


def _matrix(subject: Subject, source: Node, node: Node) -> Iterator[Finding]:
    graph, last = subject.graph, _shown(subject, node)
    readers = [graph.by_id[r] for r in graph.readers[last.id]]
    if readers and all(map(_multiplies, readers)) and last.id not in graph.outputs:
        # Otherwise the library reads it in place, or something else needs the copy, too.
        if not subject.reads_turned and subject.alone(node.id):
            yield _turned_before(subject, source, node, last, readers)
    elif (
        _multiplies(source)
        and graph.readers[source.id] == (node.id,)
        and source.id not in graph.outputs
        and not subject.together(source.id, node.id)
        and (remedy := subject.remedy("transpose of a product"))
    ):
        message = "A product is written out transposed: multiply its transposed operands instead."
        yield subject.finding([node.id, source.id], message, remedy, [node.id])


def _multiplies(node: Node) -> bool:
    return node.kind is Kind.CALL and is_product(node)


def _turned_before(
    subject: Subject, source: Node, node: Node, last: Node, products: Sequence[Node]
) -> Finding:
    """A matrix that is transposed before products, which read it as `last`."""
    remedy = ""
    if all(r.edges[1:2] == (last.id,) and r.edges[0] != last.id for r in products):
        weight = len(node.outputs[0].shape) == 2 and products[0].op == "nn.batch_matmul"
        remedy = subject.remedy("transposed weight" if weight else "transposed operand")
    message = f"{source.title or source.kind.value} is written out transposed for "
    message += f"{products[0].op}, which could read it without the transpose."
    advice = "" if remedy else "A target with a BLAS (-libs=) reads a matrix in either layout."
    return subject.finding([node.id, *(p.id for p in products)], message, remedy, [node.id], advice)


def _shown(subject: Subject, node: Node) -> Node:
    """A value as its reader sees it: the last of its views and non-repeating broadcasts."""
    graph = subject.graph
    while len(graph.readers[node.id]) == 1 and node.id not in graph.outputs:
        reader = graph.by_id[graph.readers[node.id][0]]
        same = is_view(reader) or (
            reader.op in BROADCASTS and reader.outputs[0].elements == node.outputs[0].elements
        )
        if reader.kind is not Kind.CALL or not same:
            break
        node = reader
    return node


@linter(
    "Layout changes", "A tensor is written out in another layout, then in a third one, or back."
)
def layouts(subject: Subject) -> Iterator[Finding]:
    """A layout_transform of a layout_transform."""
    graph = subject.graph
    for node in subject.calls(LAYOUTS):
        first = graph.by_id[node.edges[0]]
        if first.op not in LAYOUTS or subject.together(first.id, node.id):
            continue
        undone = first.attrs.get("src_layout") == node.attrs.get("dst_layout")
        message = "Two layout changes in a row could be one."
        message = "The second layout change undoes the first." if undone else message
        yield _twice(subject, first, node, message, undone, "layouts")


@linter(
    "Casts",
    "A tensor is converted to another type needlessly, or the program computes in float64 but the "
    "model does not.",
)
def casts(subject: Subject) -> Iterator[Finding]:
    """Casts of casts, casts to the same type, and operators in a wider type than the model."""
    graph = subject.graph
    for node in subject.calls(CASTS):
        source = graph.by_id[node.edges[0]]
        if _dtype(source) == _dtype(node):
            message = f"This casts a {_dtype(node)} tensor to its own type."
            yield subject.finding([node.id], message, subject.remedy("idle cast"))
        elif source.op in CASTS and not subject.together(source.id, node.id):
            before = _dtype(graph.by_id[source.edges[0]])
            message = f"Two casts in a row, {before} to {_dtype(source)} to {_dtype(node)}"
            message += ", restore the original type." if before == _dtype(node) else "."
            yield _twice(subject, source, node, message, True, "cast of cast")
    if "float64" not in (t.dtype for i in graph.inputs for t in graph.by_id[i].outputs):
        yield from _wide(subject)


def _dtype(node: Node) -> str:
    return node.outputs[0].dtype if node.outputs else ""


def _wide(subject: Subject) -> Iterator[Finding]:
    """The nodes whose tensors are the first in float64, single numbers aside."""
    graph = subject.graph
    for node in graph.nodes:
        if node.kind is not Kind.CALL or node.id not in subject.live or node.id in subject.fixed:
            continue
        if _dtype(node) != "float64" or (node.outputs[0].elements or 0) < 2:
            continue
        read = [graph.by_id[e] for e in node.edges]
        if any(_dtype(r) == "float64" and r.id not in subject.fixed for r in read):
            continue  # it began before
        message = "From here on, this computes in float64, but the model's arguments are narrower."
        advice = "Cast in the model, where its float64 value comes from."
        yield subject.finding([node.id], message, "", advice=advice)
