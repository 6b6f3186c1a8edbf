"""Inputs of a trace that are tuples, lists and dicts of tensors: each tensor is an input.

Their names are those that `torch.export` gives them: `cache_0_1`, `batch_image`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from relascope.core.errors import EngineError

Nested = Any
"""None for a tensor; else by key, or by index, what stands there."""
_HINT = "Trace a module whose inputs are tensors, or tuples, lists or dicts of them."


def nesting(module: torch.jit.ScriptModule) -> list[tuple[str, Nested]]:
    """How tensors nest in the arguments of a trace's forward(), with the arguments' names.

    What reads a list or dict says what it holds. Of a live trace, names may be there twice.

    Raises:
        EngineError: kind "input"; an argument holds something else, or nothing says what it holds.
    """
    names = [a.name for a in module.forward.schema.arguments]  # type: ignore[attr-defined]
    values = zip(names, module.graph.inputs(), strict=True)
    return [(n, _nested(v.type(), [v], n)) for n, v in [*values][1:]]


def leaves(nested: Nested, name: str) -> Iterator[str]:
    """The names of the tensors in an argument."""
    if nested is None:
        yield name
    else:
        for key, part in nested.items():
            yield from leaves(part, f"{name}_{key}")


def built(nested: Nested, tensors: Iterator[Any]) -> Any:
    """An argument put together from its tensors, in order; containers are dicts by key or index."""
    if nested is None:
        return next(tensors)
    return {key: built(part, tensors) for key, part in nested.items()}


def taken(node: Any, container: dict[Any, Any]) -> list[Any] | None:
    """The results of an operator that takes a container apart; None of another operator.

    Raises:
        EngineError: kind "input"; the container has no such part.
    """
    kind = node.kind()
    if kind in ("prim::TupleUnpack", "prim::ListUnpack"):
        return list(container.values())
    if kind in ("aten::__getitem__", "prim::TupleIndex"):
        key = _key(node, len(container))
        if key not in container:
            message = f"forward() reads an argument's part {key!r}, which it does not have."
            raise EngineError("input", message, "forward()", _HINT)
        return [container[key]]
    return None


def _key(node: Any, count: int) -> Any:
    key = node.inputsAt(1).toIValue()
    return key + count if isinstance(key, int) and key < 0 else key


def _nested(kind: Any, values: Sequence[Any], name: str) -> Nested:
    """What an argument of a type holds.

    Args:
        values: in the graph that are this argument.
    """
    if kind.kind() == "TensorType":
        return None
    readers = [u.user for v in values for u in v.uses()]
    parts: dict[Any, list[Any]] = {}
    types: dict[Any, Any] = {}
    if kind.kind() == "TupleType":
        types = dict(enumerate(kind.elements()))
    elif kind.kind() not in ("ListType", "DictType"):
        raise _refused(name, kind)
    for node in readers:
        if node.kind() in ("prim::TupleUnpack", "prim::ListUnpack"):
            for index, value in enumerate(node.outputs()):
                parts.setdefault(index, []).append(value)
        elif node.kind() in ("aten::__getitem__", "prim::TupleIndex"):
            parts.setdefault(_key(node, len(types)), []).append(node.output())
    if None in parts:  # a key that is computed
        raise _refused(name, kind)
    if not types:
        inner = kind.getValueType() if kind.kind() == "DictType" else kind.getElementType()
        types = dict.fromkeys(parts, inner)
        if not types or (kind.kind() == "ListType" and sorted(types) != list(range(len(types)))):
            raise _refused(name, kind)
        if kind.kind() == "ListType":
            types = {index: inner for index in range(len(types))}
    return {key: _nested(t, parts.get(key, ()), f"{name}_{key}") for key, t in types.items()}


def _refused(name: str, kind: Any) -> EngineError:
    message = f"forward() takes something else than tensors: {name}: {kind.annotation_str}."
    return EngineError("input", message, f"{name}: {kind.annotation_str}", _HINT)
