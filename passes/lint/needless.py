"""Needless work, and work that another operator could do as well."""

import json
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

from relascope.core import operators
from relascope.core.graph import Graph, Kind, Literal, Node, reached
from relascope.passes.catalogue import parameters
from relascope.passes.cost import is_random, is_view
from relascope.passes.lint.subject import Finding, Subject, is_transpose, linter, order_of


@linter("Constant work", "Values that depend only on weights are computed in every call.")
def constants(subject: Subject) -> Iterator[Finding]:
    """The last nodes that depend only on weights and constants, with what only they need."""
    claimed: set[str] = set()
    for node in subject.graph.nodes:
        if not _is_last(subject, node):
            continue
        inside = [i for i in _behind(subject, node) if i not in claimed]
        claimed.update(inside)
        nodes = [subject.graph.by_id[i] for i in inside]
        if all(is_view(n) or (n.outputs[0].elements or 0) <= 1 for n in nodes):
            continue  # views, and single numbers, cost nothing
        read = dict.fromkeys(e for i in inside for e in subject.graph.edges[i])
        names = [n.name for n in (subject.graph.by_id[e] for e in read) if n.kind is Kind.PARAMETER]
        what = ", ".join(names[:3]) + (" and more" if names[3:] else "")
        message = f"This is computed from {what or 'a constant'} in every call."
        remedy = subject.remedy("constant" if subject.fixed.issuperset(inside) else "weights")
        yield subject.finding([node.id, *inside], message, remedy, inside)


def _is_last(subject: Subject, node: Node) -> bool:
    """Whether a live call depends on weights alone, and an output or a reader does not."""
    known, graph = subject.weights, subject.graph
    if not _works(node) or node.id not in known or node.id not in subject.live:
        return False
    return node.id in graph.outputs or not known.issuperset(graph.readers[node.id])


def _works(node: Node) -> bool:
    return node.kind is Kind.CALL and bool(node.edges)


def _behind(subject: Subject, node: Node) -> list[str]:
    """The calls from which a node that depends on weights alone is computed, itself first."""
    edges, by_id = subject.graph.edges, subject.graph.by_id
    return list(reached([node.id], lambda i: (e for e in edges[i] if _works(by_id[e]))))


@linter("Duplicates", "The same value is computed more than once.")
def duplicates(subject: Subject) -> Iterator[Finding]:
    """Calls of one operator on equal operands after the first, by value numbering (Cocke)."""
    numbers: dict[str, int] = {}
    first: dict[Hashable, str] = {}
    for node in subject.graph.nodes:
        known = first.setdefault(_value_key(node, numbers), node.id)
        numbers[node.id] = numbers.get(known, len(numbers))
        if known == node.id or node.kind is not Kind.CALL or not node.edges:
            continue
        if is_view(node) or node.id not in subject.live:
            continue
        message = f"{node.op} computes a value that already exists."
        remedy = _merging(subject, node, subject.graph.by_id[known])
        yield subject.finding([node.id, known], message, remedy, [node.id])


def _merging(subject: Subject, node: Node, known: Node) -> str:
    """The pass that merges duplicates: Relay's cse does not recognise equal constants."""
    pairs = zip(node.edges, known.edges, strict=True)
    apart = any(a != b and subject.graph.by_id[a].kind is Kind.CONSTANT for a, b in pairs)
    other = subject.remedy("duplicates of constants") if apart else ""
    return other or subject.remedy("duplicates")


def _value_key(node: Node, numbers: dict[str, int]) -> Hashable:
    if node.kind is Kind.CONSTANT and "digest" in node.attrs:
        return "constant", str(node.attrs["digest"]), node.outputs
    if node.kind in (Kind.CALL, Kind.TUPLE, Kind.ITEM) and not is_random(node):
        read = tuple(i.text if isinstance(i, Literal) else numbers[i] for i in node.inputs)
        attrs = json.dumps(node.attrs, sort_keys=True, default=str)
        return node.kind, node.op, attrs, read, node.outputs
    return node.id


_BRANCHES = {"combine_dense": 3, "combine_batch_matmul": 3, "combine_conv2d": 3}
"""The default of the least number of products that Relay's passes join."""
_COUNTED = ("channels", "units")  # attributes that say how wide a weight is, which may differ


@linter("Parallel products", "Several products read one operand, one after the other.")
def parallel(subject: Subject) -> Iterator[Finding]:
    """Products that one product with concatenated weights could replace."""
    if subject.graph.forward_outputs is not None:
        return  # their weights get gradients one by one
    groups: dict[Hashable, list[Node]] = {}
    for node in subject.calls(operators.WEIGHTED):
        key = _shared_operand(subject, node)
        if key is not None:
            groups.setdefault(key, []).append(node)
    for group in groups.values():
        if len(group) > 1 and (remedy := subject.remedy(group[0].op)):
            yield _side_by_side(subject, group, remedy)


def _side_by_side(subject: Subject, group: Sequence[Node], remedy: str) -> Finding:
    graph, advice = subject.graph, ""
    if graph.ir == "relax" and any(graph.by_id[n.edges[1]].kind is Kind.CONSTANT for n in group):
        advice = "Put it before bind: it works only until the weights are constants."
    elif graph.ir == "relay" and len(group) < _BRANCHES.get(remedy, 0):
        remedy = f"{remedy}(branches={len(group)})"
    if len({n.edges[0] for n in group}) > 1:  # through several views, which must become one
        remedy = f"{subject.remedy('duplicates')}|{remedy}"
    read = subject.base(group[0].edges[0])
    again = (len(group) - 1) * (read.bytes or 0)
    what = f"{len(group)} products read {read.title or 'one operand'}, each with its own weight"
    message = f"{what}; one product would read it once."
    found = subject.finding([n.id for n in group], message, remedy, (), advice)
    return replace(found, bytes=again, seconds=subject.work.machine.seconds(0, again))


def _shared_operand(subject: Subject, node: Node) -> Hashable | None:
    """A key that products share if one product can replace them; None for other nodes."""
    left, right = (*node.edges, "")[:2]
    if right not in subject.weights or left in subject.weights:
        return None
    weight, attrs = subject.graph.by_id[right].outputs[0], dict(node.attrs)
    for name in _COUNTED:
        attrs.pop(name, None)
    if "conv" in node.op:
        if attrs.get("groups", 1) != 1:
            return None
        across: tuple[int | str, ...] = weight.shape[1:]
    elif node.op == "matmul" or not (attrs.get("transpose_b") or node.op == "nn.dense"):
        across = weight.shape[:-1]
    else:
        across = (*weight.shape[:-2], weight.shape[-1])
    # A view counts as its operand, and products of equal shape read one such view.
    base, shape = subject.base(left).id, subject.graph.by_id[left].outputs[0]
    told = json.dumps(attrs, sort_keys=True, default=str)
    return node.op, base, shape, across, weight.dtype, told


@linter(
    "Scales next to weights",
    "A result is multiplied by one number per channel, which its weight could absorb.",
)
def scales(subject: Subject) -> Iterator[Finding]:
    """Products or quotients of a convolution's or dense layer's output and weights alone."""
    folding = subject.remedy("scale")
    if not folding or subject.graph.forward_outputs is not None:
        return  # weights with a gradient stay as they are
    for node in subject.calls(operators.FACTORS):
        left, right = (*node.edges, "", "")[:2]
        for data, scale in ((left, right), (right, left))[: 1 if node.op == "divide" else 2]:
            if not data or scale not in subject.weights or data in subject.weights:
                continue
            layer = _layer(subject, data)
            if layer is not None and _fits(subject.graph, layer, node, scale):
                ready = scale in subject.fixed and layer.edges[1] in subject.fixed
                remedy = ("" if ready else "bind|fold|") + folding
                message = f"The weight of {layer.op} could absorb this factor."
                yield subject.finding([node.id, layer.id], message, remedy, [node.id])


def _layer(subject: Subject, node_id: str) -> Node | None:
    """The layer whose result this is, sums with weights aside, if nothing else reads it."""
    graph = subject.graph
    while len(graph.readers[node_id]) == 1 and node_id not in graph.outputs:
        node = graph.by_id[node_id]
        if node.kind is not Kind.CALL:
            return None
        weighted = node.op in operators.WEIGHTED and len(node.edges) > 1
        if weighted and node.edges[1] in subject.weights:
            return node
        if node.op not in operators.SUMS or len(node.edges) != 2:
            return None
        data = [e for e in node.edges if e not in subject.weights]
        if len(data) != 1:
            return None
        node_id = data[0]
    return None


def _fits(graph: Graph, layer: Node, node: Node, scale: str) -> bool:
    """Whether a factor has one number for each channel of a layer's output."""
    shape, result = graph.by_id[scale].outputs[0].shape, layer.outputs[0].shape
    if node.outputs[0].shape != result:
        return False
    layout = str(layer.attrs.get("data_layout", "NCHW")) if "conv" in layer.op else ""
    axis = layout.find("C") if layout else len(result) - 1
    if len(layout) not in (0, len(result)) or not 0 <= axis < len(result):
        return False  # a blocked layout
    padded = (*(1 for _ in range(len(result) - len(shape))), *shape)
    return all(d == (result[axis] if i == axis else 1) for i, d in enumerate(padded))


@linter("Paddings", "A tensor is padded in memory for a convolution that could pad it itself.")
def paddings(subject: Subject) -> Iterator[Finding]:
    """Zero paddings of the image of a convolution that can pad it itself."""
    graph, remedy = subject.graph, subject.remedy("padding")
    if not remedy:
        return
    for node in subject.calls(operators.PADS):
        if len(graph.readers[node.id]) != 1:
            continue
        reader = graph.by_id[graph.readers[node.id][0]]
        if "conv2d" not in reader.op or node.attrs.get("pad_mode") != "constant":
            continue
        if reader.edges[0] != node.id or node.id in graph.outputs or not _zeros(subject, node.id):
            continue
        if not subject.together(node.id, reader.id):
            message = f"The {reader.op} that reads this could pad it itself."
            yield subject.finding([node.id, reader.id], message, remedy, [node.id])


def _zeros(subject: Subject, pad: str) -> bool:
    """Whether a node pads with zeros, and not along the axes of images or channels."""
    node = subject.graph.by_id[pad]
    layout = str(subject.graph.by_id[subject.graph.readers[pad][0]].attrs.get("data_layout", ""))
    width = node.attrs.get("pad_width") or []
    if len(layout) != len(width):
        return False
    value = [subject.graph.by_id[e].attrs.get("value") for e in node.edges[1:]]
    at_images = [w for w, axis in zip(width, layout, strict=True) if axis in "NC" and any(w)]
    return not at_images and all(v is not None and float(v) == 0 for v in value)


@linter("Operators that change nothing", "A sum with zeros, a product with ones or the like.")
def no_ops(subject: Subject) -> Iterator[Finding]:
    """x + 0, x * 1, and transposes that leave the axes in order."""
    for node in subject.calls(operators.TRANSPOSES | operators.SUMS | operators.FACTORS):
        if is_transpose(node) and order_of(node) == tuple(range(len(order_of(node)))):
            what, message = "idle transpose", "This transpose keeps the order of the axes."
        elif node.op in operators.SUMS and _leaves(subject, node, 0.0, operators.ZEROS):
            what, message = "zeros", "This adds zeros."
        elif node.op in operators.FACTORS and _leaves(subject, node, 1.0, operators.ONES):
            what, message = "ones", "This multiplies by ones."
        else:
            continue
        yield subject.finding([node.id], message, subject.remedy(what))


def _leaves(subject: Subject, node: Node, number: float, filled: frozenset[str]) -> bool:
    """Whether an operand is uniformly this number and the other has the result's type."""
    for place, given in enumerate(node.inputs[:2]):
        other = node.inputs[1 - place] if len(node.inputs) > 1 else given
        if place == 0 and node.op in ("subtract", "divide"):
            continue
        if not isinstance(other, str):
            continue
        alike = subject.graph.by_id[other].outputs[:1] == node.outputs[:1]
        if alike and _is(subject, given, number, filled):
            return True
    return False


def _is(subject: Subject, given: str | Literal, number: float, filled: frozenset[str]) -> bool:
    if isinstance(given, Literal):
        return parameters.number(given.text) == number
    node = subject.graph.by_id[given]
    while node.op in operators.RESHAPES | operators.BROADCASTS and node.edges:
        node = subject.graph.by_id[node.edges[0]]
    if node.kind is Kind.CONSTANT:
        return parameters.number(str(node.attrs.get("value", ""))) == number
    return node.op in filled


@linter("Dead code", "No output needs the value.")
def dead(subject: Subject) -> Iterator[Finding]:
    """The last calls of each dead part, with all of it as their cost."""
    graph, claimed = subject.graph, set(subject.live)
    for node in reversed(graph.nodes):
        if node.kind is not Kind.CALL or node.id in claimed or graph.readers[node.id]:
            continue
        part = [i for i in graph.ancestors([node.id]) if i not in claimed]
        claimed.update(part)
        calls = [i for i in part if graph.by_id[i].kind is Kind.CALL]
        message = f"No output needs this {node.op}."
        yield subject.finding([node.id, *calls], message, subject.remedy("dead"))
