"""Operators of a trace that change a tensor in place, and whether they may be taken as pure.

A trace names the result of `x.add_(1)` anew and reads that from there on, so as a pure operator it
means the same, unless something else still sees the storage: another view of it, taken before.
TVM's IRs have pure operators only, so both importers convert all of them as pure.
"""

from __future__ import annotations

from typing import Any

from relascope.core.errors import EngineError
from relascope.engine.pytorch.flat_trace import FlatTrace
from relascope.engine.pytorch.model import Model

# Any operator with a new result serves to stand between an input and its readers.
_COPY = "aten::neg"
# The importers follow an in-place copy into a tensor through these, and no other views.
FOLLOWED = ("aten::slice", "aten::select", "aten::unsqueeze")
_HINT = (
    "Write it without changing a tensor in place (x = x + y for x += y, torch.cat, torch.where)."
)


def check_in_place(model: Model, follows_copies: bool) -> None:
    """Refuse a change in place that something reads through another view.

    A change of an input is noted: the program computes with it, but does not carry it out. So is
    one of a part of a buffer; see `changed_buffers` for the others.

    Args:
        model: its trace is read, and not changed.
        follows_copies: whether the importer redirects later reads of a tensor of which a part was
            written, as TVM's own frontend of Relay does.

    Raises:
        EngineError: kind "operator"; names the changing operator and its module.
    """
    flat = model.flat
    if not any(map(changes_in_place, flat.graph.nodes())):
        return
    graph, arguments = _with_copied_inputs(flat)
    nodes = list(graph.nodes())
    changing = [i for i, n in enumerate(nodes) if changes_in_place(n)]
    aliases = graph.alias_db()
    buffers = changed_buffers(model)
    order = {v.debugName(): i for i, n in enumerate(nodes) for v in n.outputs()}
    for index in changing:
        node = nodes[index]
        target = node.inputsAt(0)
        for name, argument in arguments.items():
            if buffers.get(node.output().debugName()) == name:
                continue
            if aliases.may_contain_alias(argument, target):
                model.note(
                    f"The model changes {name} in place ({flat.origin(node).where}). The program "
                    "computes with the change, but leaves the tensor as it was."
                )
        base = _followed(node) if follows_copies else None
        for later in (*nodes[index + 1 :], graph.return_node()):
            for value in later.inputs():
                before = value.debugName() != base and order.get(value.debugName(), -1) < index
                if before and _is_tensor(value) and aliases.may_contain_alias(value, target):
                    message = f"{node.kind()} changes a tensor in place that {later.kind()} reads"
                    message += " afterwards through another view; TVM's IRs have no such change."
                    raise EngineError("operator", message, flat.origin(node).where, _HINT)


def changed_buffers(model: Model) -> dict[str, str]:
    """The operators that change a whole buffer in place, such as a counter of batches.

    Returns:
        By the debug name of the operator's result, which is the new value, the buffer's name.
    """
    flat = model.flat
    arguments = zip((*flat.input_names, *flat.tensors), flat.graph.inputs(), strict=True)
    owner = {value.debugName(): name for name, value in arguments if name in model.buffers}
    found = {}
    for node in flat.graph.nodes():
        if changes_in_place(node) and node.kind() != "aten::copy_":
            name = owner.get(node.inputsAt(0).debugName())
            if name is not None:
                found[node.output().debugName()] = owner[node.output().debugName()] = name
    return found


def _with_copied_inputs(flat: FlatTrace) -> tuple[Any, dict[str, Any]]:
    """A copy of the graph whose inputs are copied first, and the copies by the inputs' names.

    torch's alias analysis must assume that any two inputs of a graph are one tensor.
    """
    graph = flat.graph.copy()
    first = next(iter(graph.nodes()))
    copies = {}
    for name, value in zip((*flat.input_names, *flat.tensors), graph.inputs(), strict=True):
        if not value.uses():
            continue
        clone = graph.create(_COPY, [value], 1)
        clone.insertBefore(first)
        value.replaceAllUsesAfterNodeWith(clone, clone.output())
        copies[name] = clone.output()
    return graph, copies


def changes_in_place(node: Any) -> bool:
    """Whether an operator of a trace changes its argument."""
    kind = node.kind()
    return kind.startswith("aten::") and kind.endswith("_") and not kind.endswith("__")


def _is_tensor(value: Any) -> bool:
    return bool(value.type().kind() == "TensorType")


def _followed(node: Any) -> str | None:
    """The tensor that a copy writes into, by name, if the importers redirect later reads of it."""
    if node.kind() != "aten::copy_" or node.output().uses():
        return None
    value = node.inputsAt(0)
    while value.node().kind() in FOLLOWED:
        value = value.node().inputsAt(0)
    source = value.node()
    made_here = source.kind() != _COPY or source.inputsAt(0).node().kind() != "prim::Param"
    return str(value.debugName()) if made_here else None
