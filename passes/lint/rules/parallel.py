"""Products with several weights read one operand, one after the other."""

import json
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

from relascope.core.graph import Kind, Node
from relascope.core.operators import WEIGHTED
from relascope.passes.lint.subject import Finding, Subject

NAME = "parallel"
TITLE = "Parallel products"
_BRANCHES = {"combine_dense": 3, "combine_batch_matmul": 3, "combine_conv2d": 3}
"""How many products Relay's passes join at least, unless they are told."""
_COUNTED = ("channels", "units")  # attributes that say how wide a weight is, which may differ


def find(subject: Subject) -> Iterator[Finding]:
    """Two products or more that one product with their weights side by side would do."""
    if subject.graph.forward_outputs is not None:
        return  # their weights get gradients one by one
    groups: dict[Hashable, list[Node]] = {}
    for node in subject.calls(WEIGHTED):
        key = _key(subject, node)
        if key is not None:
            groups.setdefault(key, []).append(node)
    for group in groups.values():
        if len(group) > 1 and (remedy := subject.remedy(group[0].op)):
            yield _finding(subject, group, remedy)


def _finding(subject: Subject, group: Sequence[Node], remedy: str) -> Finding:
    graph, advice = subject.graph, ""
    constant = any(graph.by_id[n.edges[1]].kind is Kind.CONSTANT for n in group)
    if graph.ir == "relax" and constant:
        advice = "It takes them before the weights are constants: put it in front of bind."
    elif graph.ir == "relay" and len(group) < _BRANCHES.get(remedy, 0):
        remedy = f"{remedy}(branches={len(group)})"
    if len({n.edges[0] for n in group}) > 1:  # by several views of it, which must be one
        remedy = f"{subject.remedy('duplicates')}|{remedy}"
    read = subject.base(group[0].edges[0])
    again = (len(group) - 1) * (read.bytes or 0)
    what = f"{len(group)} products read {read.title or 'one operand'} with a weight each"
    message = f"{what}; one product reads it once."
    found = subject.finding([n.id for n in group], message, remedy, (), advice)
    return replace(found, bytes=again, seconds=subject.work.machine.seconds(0, again))


def _key(subject: Subject, node: Node) -> Hashable | None:
    """What products have in common that can be one; None of what is no such product."""
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
    # A view of the operand is the operand, and products of equal shape read one such view.
    base, shape = subject.base(left).id, subject.graph.by_id[left].outputs[0]
    told = json.dumps(attrs, sort_keys=True, default=str)
    return node.op, base, shape, across, weight.dtype, told
