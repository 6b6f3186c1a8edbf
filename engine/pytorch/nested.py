"""Nested inputs and outputs, taken apart into tensors.

Names are as in `torch.export`: `cache_0_1`, `batch_image`. A module's pytrees and dataclasses are
opened, and numbers in them are constants; what a trace's containers hold, their readers tell.
"""

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from itertools import count
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from relascope.core.errors import EngineError


class Nest(NamedTuple):
    """How values nest; without a kind, a leaf. A container of this kind is rebuilt from `context`
    and parts."""

    kind: Any = None
    context: Any = None
    parts: tuple[Any, ...] = ()


_LEAF = Nest()
_CONSTANTS = (
    *(bool, int, float, complex, str, bytes, Enum, slice, range, type(None), type(...)),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)
_OPEN = "Use tensors and numbers in tuples, lists, dicts or dataclasses, or register the class "
_OPEN += "with torch.utils._pytree.register_pytree_node."


def opened(value: Any, name: str = "") -> tuple[list[tuple[str, Any]], Nest]:
    """The leaves of a value with their names, in order, and how they nest."""
    node = pytree.SUPPORTED_NODES.get(kind := pytree._get_node_type(value))
    keys: Iterable[str]
    if node is not None:
        parts, context = node.flatten_fn(value)
        with_keys = node.flatten_with_keys_fn
        keys = [_word(k) for k, _ in with_keys(value)[0]] if with_keys else map(str, count())
    elif is_dataclass(value) and not isinstance(value, type | torch.nn.Module):
        context = tuple(f.name for f in fields(value) if hasattr(value, f.name))
        keys, parts = context, [getattr(value, name) for name in context]
    else:
        return [(name, value)], _LEAF
    named = zip(keys, parts)  # noqa: B905
    made = [opened(part, f"{name}_{key}" if name else key) for key, part in named]
    nest = Nest(kind, context, tuple(inner for _, inner in made))
    return [leaf for leaves, _ in made for leaf in leaves], nest


def closed(nest: Nest, values: Iterator[Any]) -> Any:
    """The inverse of `opened`, with other leaves."""
    if nest.kind is None:
        return next(values)
    parts = [closed(part, values) for part in nest.parts]
    if node := pytree.SUPPORTED_NODES.get(nest.kind):
        return node.unflatten_fn(parts, nest.context)
    made = object.__new__(nest.kind)
    for name, part in zip(nest.context, parts, strict=True):
        object.__setattr__(made, name, part)
    return made


def is_constant(value: Any) -> bool:
    """Whether a leaf is a constant, or a size: a tensor in a trace, and otherwise a number."""
    if isinstance(value, torch.Tensor) and torch.jit.is_tracing() and not value.dim():
        made: Any = torch._C._get_value_trace(value)  # type: ignore[attr-defined]
        return bool(made.node().kind() == "prim::NumToTensor")
    return isinstance(value, _CONSTANTS)


def same_constant(leaf: Any, other: Any) -> bool:
    """Whether two leaves are the same to a program, which tells 1 from 1.0, and 0.0 from -0.0."""
    if leaf is other:
        return True
    return type(leaf) is type(other) and is_constant(leaf) and repr(leaf) == repr(other)


def flat_tensors(value: Any) -> tuple[torch.Tensor, ...]:
    """The tensors in what forward() returns, in order; numbers, texts and None are left out, and
    anything else is refused (kind "operator")."""
    found = [(name, leaf) for name, leaf in opened(value)[0] if not is_constant(leaf)]
    for name, leaf in found:
        if not isinstance(leaf, torch.Tensor):
            message = f"The model returns a value of type {type(leaf).__name__}, not a tensor."
            raise EngineError("operator", message, f"forward(){name and f': {name}'}", _OPEN)
    return tuple(leaf for _, leaf in found)


class Slot(int):
    """The index of an input among the tensors of a call."""


@dataclass(frozen=True)
class Arguments:
    """The arguments of a call of forward(), taken apart: their tensors, each once, with names;
    `name=value` of other values that are not defaults; how each argument nests; and the leaves of
    all arguments, with a slot in place of each tensor."""

    names: tuple[str, ...]
    tensors: tuple[torch.Tensor, ...]
    fixed: tuple[str, ...]
    signature: inspect.Signature
    bound: dict[str, Nest]
    leaves: tuple[Any, ...]

    def call(self, tensors: Sequence[torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        values = (tensors[v] if isinstance(v, Slot) else deepcopy(v) for v in self.leaves)
        arguments = {name: closed(nest, values) for name, nest in self.bound.items()}
        made = inspect.BoundArguments(self.signature, arguments)
        return made.args, made.kwargs

    def notes(self) -> list[str]:
        """A sentence about what is fixed, if anything."""
        said = f"Arguments that are not tensors are fixed: {', '.join(self.fixed)}."
        return [said] if self.fixed else []


def constant(name: str, value: Any) -> Any:
    """An input's leaf that is not a tensor: a program's constant, or refused (kind "input")."""
    if is_constant(value):
        return value
    message = f"The input {name} is of type {type(value).__name__}: neither a tensor nor a number."
    raise EngineError("input", message, name, _OPEN)


def call_apart(
    forward: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    kept: Callable[[str, Any], Any] = constant,
) -> Arguments:
    """Take a call of a module's forward() apart; `kept` gets the name and value of a leaf that is
    not a tensor, and returns what every run gets in its place, or refuses it."""
    signature = _signature(forward, args, kwargs)
    names: dict[int, str] = {}
    tensors: list[torch.Tensor] = []
    fixed: list[str] = []
    leaves: list[Any] = []
    bound: dict[str, Nest] = {}
    for root, value in signature.bind(*args, **kwargs).arguments.items():
        parameter = signature.parameters[root]
        free = parameter.kind is parameter.VAR_KEYWORD
        found, bound[root] = opened(value, "" if free else root)
        inside = free or any(isinstance(v, torch.Tensor) for _, v in found)
        if not inside and not same_constant(value, parameter.default):
            fixed += [f"{root}={str(value)[:40]}"] if value is not None else []
        for name, leaf in found:
            if not isinstance(leaf, torch.Tensor):
                leaves.append(kept(name, leaf))
                fixed += [f"{name}={str(leaf)[:40]}"] if inside and leaf is not None else []
                continue
            if id(leaf) not in names:
                names[id(leaf)] = name
                tensors.append(leaf)
            leaves.append(Slot([*names].index(id(leaf))))
    parts = unlike(names.values()), tuple(tensors), tuple(fixed)
    return Arguments(*parts, signature, bound, tuple(leaves))


def _signature(
    forward: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> inspect.Signature:
    """A signature of forward() that fits the call."""
    place, word = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    names = getattr(getattr(forward, "__self__", None), "arg_names", None)  # of a program's module
    if names is None:
        signature = inspect.signature(forward)
        try:
            signature.bind(*args, **kwargs)
        except TypeError:  # a decorator changes the call
            names = [f"input_{i}" for i in range(len(args))]
        else:
            return signature
    named = [inspect.Parameter(n, place) for n in names[: len(args)]]
    return inspect.Signature([*named, *(inspect.Parameter(n, word) for n in kwargs)])


def unlike(names: Iterable[str]) -> tuple[str, ...]:
    """The names as identifiers, each once."""
    words = (re.sub(r"\W", "_", name) for name in names)
    return apart(w if re.match(r"[A-Za-z_]", w) else f"input_{w}" for w in words)


def apart(names: Iterable[str], taken: Collection[str] = ()) -> tuple[str, ...]:
    result: list[str] = []
    for name in names:
        while name in taken or name in result:
            name += "_"
        result.append(name)
    return tuple(result)


def taking(module: torch.nn.Module, call: Arguments, path: str = "") -> torch.nn.Module:
    """A module as one that takes tensors and returns a tuple of tensors; shares all but its hooks.
    With a path, it is a submodule, which may also return other values."""
    piece: torch.nn.Module = type(module).__new__(type(module))
    hooks = {name: copy(module.__dict__[name]) for name in _HOOKS}
    piece.__dict__.update({**module.__dict__, **hooks})

    def flat(module: Any, args: Any, output: Any) -> tuple[torch.Tensor, ...]:
        if not path:
            return flat_tensors(output)
        if tensors := tuple(v for _, v in opened(output)[0] if isinstance(v, torch.Tensor)):
            return tensors
        message = f"This module returns a {type(output).__name__} without tensors."
        raise EngineError("input", message, path, "Open the module around it.")

    piece.register_forward_pre_hook(
        lambda module, tensors, _: call.call(tensors), prepend=True, with_kwargs=True
    )
    piece.register_forward_hook(flat)
    return piece


_HOOKS = [
    *("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
    *("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs"),
]

Nested = Any
"""A trace's argument: None for a tensor, otherwise its parts by key or index."""
_HINT = "Trace a module whose inputs are tensors, or tuples, lists or dicts of them."


def _word(key: Any) -> str:
    for name in ("key", "idx", "name"):
        key = getattr(key, name, key)
    return re.sub(r"\W", "_", str(key))


def nesting(module: torch.jit.ScriptModule) -> list[tuple[str, Nested]]:
    """How tensors nest in the arguments of a trace's forward(), with the arguments' names, which
    may repeat in a live trace. The readers of a list or dict tell what it holds; if it has none, or
    is something else, it is refused (kind "input")."""
    names = [a.name for a in module.forward.schema.arguments]  # type: ignore[attr-defined]
    values = zip(names, module.graph.inputs(), strict=True)
    return [(n, _nested(v.type(), [v], n)) for n, v in [*values][1:]]


def leaves(nested: Nested, name: str) -> Iterator[str]:
    paths: Any = pytree.tree_leaves_with_path(nested)
    for path, _ in paths:
        yield "_".join([name, *(str(key.key) for key in path)])


def built(nested: Nested, tensors: Iterator[Any]) -> Any:
    """An argument put together from its tensors, in order; containers are dicts by key or index."""
    return pytree.tree_map(lambda leaf: next(tensors), nested)


def taken(node: Any, container: dict[Any, Any]) -> list[Any] | None:
    """The results of an operator that takes a container apart; None for another operator. A missing
    part is refused (kind "input")."""
    kind = node.kind()
    if kind in ("prim::TupleUnpack", "prim::ListUnpack"):
        return list(container.values())
    if kind in ("aten::__getitem__", "prim::TupleIndex"):
        key = _key(node, len(container))
        if key not in container:
            message = f"forward() reads item {key!r} of an argument that has no such item."
            raise EngineError("input", message, "forward()", _HINT)
        return [container[key]]
    return None


def _key(node: Any, count: int) -> Any:
    key = node.inputsAt(1).toIValue()
    return key + count if isinstance(key, int) and key < 0 else key


def _nested(kind: Any, values: Sequence[Any], name: str) -> Nested:
    """What an argument of a type holds; `values` are this argument in the graph."""
    if kind.kind() == "TensorType":
        return None
    types: dict[Any, Any] = {}
    if kind.kind() == "TupleType":
        types = dict(enumerate(kind.elements()))
    elif kind.kind() not in ("ListType", "DictType"):
        raise _refused(name, kind)
    parts = _read_parts(values, len(types))
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


def _read_parts(values: Sequence[Any], count: int) -> dict[Any, list[Any]]:
    """The parts of a container that are read, by key or index."""
    parts: dict[Any, list[Any]] = {}
    for node in (use.user for value in values for use in value.uses()):
        if node.kind() in ("prim::TupleUnpack", "prim::ListUnpack"):
            for index, value in enumerate(node.outputs()):
                parts.setdefault(index, []).append(value)
        elif node.kind() in ("aten::__getitem__", "prim::TupleIndex"):
            parts.setdefault(_key(node, count), []).append(node.output())
    return parts


def _refused(name: str, kind: Any) -> EngineError:
    message = f"forward() takes an input that is not a tensor: {name}: {kind.annotation_str}."
    return EngineError("input", message, f"{name}: {kind.annotation_str}", _HINT)
