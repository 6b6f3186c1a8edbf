"""Operators of a trace that change a tensor in place, and whether Relay may take them as pure.

A trace names the result of `x.add_(1)` anew and reads that from there on, so as a pure operator it
means the same, unless something else still sees the storage: another view of it, taken before.
TVM's frontend converts all of them as pure.
"""

from __future__ import annotations

from typing import Any

from engine.flat_trace import FlatTrace
from engine.session import EngineError

# TVM's frontend follows an in-place copy into a tensor through these, and no other views.
_FOLLOWED = ("aten::slice", "aten::select", "aten::unsqueeze")
_HINT = (
    "Write it without changing a tensor in place (x = x + y for x += y, torch.cat, torch.where)."
)


def check_in_place(flat: FlatTrace) -> None:
    """Refuse a change in place that something reads through another view.

    Args:
        flat: the trace.

    Raises:
        EngineError: kind "operator"; names the changing operator and its module.
    """
    nodes = list(flat.graph.nodes())
    changing = [i for i, n in enumerate(nodes) if _changes(n)]
    if not changing:
        return
    aliases = flat.graph.alias_db()
    order = {v.debugName(): i for i, n in enumerate(nodes) for v in n.outputs()}
    for index in changing:
        node = nodes[index]
        target = node.inputsAt(0)
        if node.kind() == "aten::copy_" and _copy_is_followed(node):
            continue
        for later in (*nodes[index + 1 :], flat.graph.return_node()):
            for value in later.inputs():
                before = order.get(value.debugName(), -1) < index
                if before and _is_tensor(value) and aliases.may_contain_alias(value, target):
                    raise EngineError(
                        "operator",
                        f"{node.kind()} changes a tensor in place that {later.kind()} reads "
                        "afterwards through another view; Relay has no such change.",
                        flat.origin(node).where, _HINT,
                    )  # fmt: skip


def _changes(node: Any) -> bool:
    kind = node.kind()
    return kind.startswith("aten::") and kind.endswith("_") and not kind.endswith("__")


def _is_tensor(value: Any) -> bool:
    return bool(value.type().kind() == "TensorType")


def _copy_is_followed(node: Any) -> bool:
    """Whether the frontend redirects later reads of the tensor that a copy writes into."""
    target = node.inputsAt(0).node()
    while target.kind() in _FOLLOWED:
        target = target.inputsAt(0).node()
    made_here = target.kind() != "prim::Param"
    return made_here and not node.output().uses()
