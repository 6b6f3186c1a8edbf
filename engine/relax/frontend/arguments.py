"""Which arguments of a node a converter reads, and the dtype in which PyTorch computes them."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Node

# Options that change no value, and those that the result's type shows.
_ALWAYS = (
    "memory_format device layout pin_memory dtype implicit non_blocking copy size generator self "
    "cudnn_enable cudnn_enabled"
)

_ALONE = {"where.self": 0, "masked_fill.Scalar": 1, "masked_fill.Tensor": 1}
"""Elementwise operators with a mask, and the mask's place."""

_AS_RESULT = (
    "floor_divide.default floor_divide.Scalar prelu.default log_sigmoid.default "
    "log_sigmoid_forward.default mean.default mean.dim prod.default prod.dim_int cumprod.default "
    "cumsum.default logsumexp.default softmax.int log_softmax.int"
)
"""Not marked as elementwise in PyTorch, but computed in the dtype of the result."""

_NO_BOOL = (
    "max.default min.default amax.default amin.default max.dim min.dim argmax.default "
    "argmin.default sort.default topk.default argsort.default"
)
"""Operators for which TVM has no kernels on bool."""


class _Arguments(tuple[Any, ...]):
    """A node's arguments; records the places of those that are read."""

    read: set[int | str]

    def __getitem__(self, place: Any) -> Any:
        places = range(len(self))[place]
        self.read.update([places] if isinstance(places, int) else places)
        return super().__getitem__(place)

    def __iter__(self) -> Iterator[Any]:
        self.read.update(range(len(self)))
        return super().__iter__()


class _Options(dict[str, Any]):
    read: set[int | str]

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)


class Reading:
    """A node of an FX graph, for one converter; records which arguments it reads."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._read: set[int | str] = set()
        self.args, self.kwargs = self.noted(node.args), _Options(node.kwargs)
        self.kwargs.read = self._read

    def __getattr__(self, name: str) -> Any:
        return getattr(self.node, name)

    def noted(self, values: Any) -> _Arguments:
        made = _Arguments(values)
        made.read = self._read
        return made

    def normalized_arguments(self, _: Any) -> tuple[_Arguments, _Options]:
        return self.args, self.kwargs

    def left_out(self) -> list[str]:
        """Names of arguments with non-default values that were not read."""
        schema = getattr(self.node.target, "_schema", None)
        if schema is None:
            return []
        names = [a.name for a in schema.arguments if not a.kwarg_only]
        given: dict[str, Any] = dict(zip(names, enumerate(self.node.args), strict=False))
        given |= {name: (name, value) for name, value in self.node.kwargs.items()}
        defaults = {a.name: a.default_value for a in schema.arguments}
        return [
            name
            for name, (place, value) in given.items()
            if place not in self._read
            and name not in _ALWAYS.split()
            and value is not None
            and value != defaults[name]
        ]


def in_common(node: Node) -> dict[Node, torch.dtype]:
    """The tensors that an operator computes in another dtype than their own, and that dtype. Relax
    has other promotion rules, and no kernels for bool: it sums bools as integers. A number in a
    file is a float64 tensor without dimensions."""
    name, kind = node.target.__name__, node.meta["val"]  # type: ignore[union-attr]
    places = [i for i, a in enumerate(node.args) if isinstance(a, Node) and i != _ALONE.get(name)]
    operands: list[Any] = [node.args[i] for i in places]
    if name in _NO_BOOL.split():
        dtype = operands[0].meta["val"].dtype
        dtype = torch.int32 if dtype == torch.bool else dtype
    elif name in _AS_RESULT.split():
        dtype = kind[0].dtype if isinstance(kind, tuple) else kind.dtype
    elif name.startswith("logical_") or torch.Tag.pointwise not in getattr(node.target, "tags", ()):
        return {}
    elif kind.dtype != torch.bool:
        dtype = kind.dtype
    elif name.startswith("bitwise_") or name in _ALONE:
        return {}
    else:
        given: list[Any] = [v.meta["val"] if isinstance(v, Node) else v for v in node.args]
        given = [v for v in given if isinstance(v, torch.Tensor | int | float)]
        dtype = torch.result_type(*given) if len(given) == 2 else operands[0].meta["val"].dtype
        dtype = torch.int32 if dtype == torch.bool else dtype
    return {n: dtype for n in operands if n.meta["val"].dtype != dtype}
