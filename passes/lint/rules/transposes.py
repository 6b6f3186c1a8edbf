"""A matrix is written out transposed, though its reader could read it as it lies."""

from collections.abc import Iterator, Sequence

from relascope.core.graph import Kind, Node
from relascope.core.operators import BROADCASTS, TRANSPOSES
from relascope.passes.cost import is_product, is_view
from relascope.passes.lint.subject import Finding, Subject, axes_of, is_transpose, turns_matrix

NAME = "transposes"
TITLE = "Transposed copies"


def find(subject: Subject) -> Iterator[Finding]:
    """Transposes that another order of writing spares."""
    graph = subject.graph
    for node in subject.calls(TRANSPOSES):
        if node.id in subject.weights:
            continue  # constant work
        source = graph.by_id[node.edges[0]]
        if is_transpose(source) and not subject.together(source.id, node.id):
            yield _twice(subject, source, node)
        elif turns_matrix(node):
            yield from _matrix(subject, source, node)


def _twice(subject: Subject, first: Node, second: Node) -> Finding:
    inner, outer = axes_of(first), axes_of(second)
    both = tuple(inner[a] for a in outer)
    if both == tuple(range(len(both))):
        message, spared = "The second transpose undoes the first.", [first.id, second.id]
    else:
        message, spared = "Two transposes in a row could be one.", [second.id]
    if len(subject.graph.readers[first.id]) > 1:
        spared = [second.id]
    remedy = subject.remedy("transpose of transpose")
    return subject.finding([second.id, first.id], message, remedy, spared)


def _matrix(subject: Subject, source: Node, node: Node) -> Iterator[Finding]:
    """A matrix that is turned before a product, or behind one."""
    graph = subject.graph
    last = _shown(subject, node)
    readers = [graph.by_id[r] for r in graph.readers[last.id]]
    if readers and all(map(_multiplies, readers)) and last.id not in graph.outputs:
        # Else the library reads it as it lies, or the copy is made for other reasons too.
        if not subject.reads_turned and subject.alone(node.id):
            yield _before(subject, source, node, last, readers)
    elif (
        _multiplies(source)
        and graph.readers[source.id] == (node.id,)
        and source.id not in graph.outputs
        and not subject.together(source.id, node.id)
        and (remedy := subject.remedy("transpose of a product"))
    ):
        message = "A product is written out once more, transposed; the product of the transposed "
        message += "operands is the same."
        yield subject.finding([node.id, source.id], message, remedy, [node.id])


def _multiplies(node: Node) -> bool:
    return node.kind is Kind.CALL and is_product(node)


def _before(
    subject: Subject, source: Node, node: Node, last: Node, products: Sequence[Node]
) -> Finding:
    """A matrix that is turned before products, which read it as `last`."""
    remedy = ""
    if all(r.edges[1:2] == (last.id,) and r.edges[0] != last.id for r in products):
        weight = len(node.outputs[0].shape) == 2 and products[0].op == "nn.batch_matmul"
        remedy = subject.remedy("transposed weight" if weight else "transposed operand")
    message = f"{source.title or source.kind.value} is written out transposed for "
    message += f"{products[0].op}, which could read it as it lies."
    advice = "" if remedy else "A target with a BLAS (-libs=) reads a matrix either way."
    nodes = [node.id, *(p.id for p in products)]
    return subject.finding(nodes, message, remedy, [node.id], advice)


def _shown(subject: Subject, node: Node) -> Node:
    """What a reader sees of a value: the last of the views and non-repeating broadcasts."""
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
