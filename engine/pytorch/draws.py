"""Operators that draw random numbers: each draw becomes an input that PyTorch fills."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from relascope.passes.cuts.joint import DRAW_PREFIX, MASK_PREFIX
from relascope.passes.program import Mask

_FILLS: dict[str, tuple[str, dict[str, float]]] = {
    "rand": ("uniform_", {}),
    "randn": ("normal_", {}),
    "randint": ("random_", {"low": 0, "high": 0}),
    "uniform": ("uniform_", {"from": 0.0, "to": 1.0}),
    "normal": ("normal_", {"mean": 0.0, "std": 1.0}),
    "normal_functional": ("normal_", {"mean": 0.0, "std": 1.0}),
    "exponential": ("exponential_", {"lambd": 1.0}),
    "bernoulli": ("bernoulli_", {"p": 0.5}),
    "cauchy": ("cauchy_", {"median": 0.0, "sigma": 1.0}),
    "geometric": ("geometric_", {"p": 0.5}),
    "log_normal": ("log_normal_", {"mean": 1.0, "std": 2.0}),
    "randperm": ("randperm", {}),
}
"""By operator, the method that draws the same into a tensor, and its arguments with defaults."""
NAMES = (
    "rand.default randn.default randint.default randint.low rand_like.default randn_like.default "
    "randint_like.default randint_like.low_dtype uniform.default normal_functional.default "
    "exponential.default bernoulli.p cauchy.default geometric.default log_normal.default "
    "randperm.default"
)
"""What importers meet of these: their forms that change no argument."""
_DROPOUTS = ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")


def draw_of(schema: Any, given: Sequence[Any], named: Mapping[str, Any]) -> Mask | None:
    """What an operator draws: without a name, shape and dtype; None if nothing, or nothing that a
    method of a tensor repeats.

    Args:
        schema: of the operator, in place or not.
        given, named: its arguments, as plain values where they are known.
    """
    name = schema.name.removeprefix("aten::").removesuffix("_")
    if name in _DROPOUTS:
        _, rate, train = given
        return Mask("", float(rate), (), "") if train and rate else None
    method, defaults = _FILLS.get(name.removesuffix("_like"), ("", {}))
    if not method:
        return None
    values = {**defaults, **dict(zip((a.name for a in schema.arguments), given, strict=False))}
    values |= named
    arguments = tuple(values[n] for n in defaults)
    takes_p = any(a.name == "p" for a in schema.arguments)
    if name == "bernoulli" and not takes_p:  # uniform numbers, compared with a tensor
        return Mask("", 0.0, (), "", draw="uniform_")
    plain = all(isinstance(a, int | float) for a in arguments)
    return Mask("", 0.0, (), "", draw=method, given=arguments) if plain else None


def draw_in_trace(node: Any) -> Mask | None:
    """What a node of a trace draws, with what the trace knows of its shape and memory."""
    name = node.kind().removeprefix("aten::").removesuffix("_")
    if name.removesuffix("_like") not in (*_FILLS, *_DROPOUTS):  # before schemas are read
        return None
    given = [v.toIValue() for v in node.inputs()]
    made = draw_of(torch._C.parse_schema(node.schema()), given, {})
    if made is None:
        return None
    kind = (node.output() if made.draw else node.inputsAt(0)).type()
    order: tuple[int, ...] = ()
    if kind.sizes() is not None and kind.strides() is not None:
        lying = torch.empty_strided(kind.sizes(), kind.strides(), device="meta")
        strides = torch.empty_like(lying).stride()
        order = tuple(sorted(range(len(strides)), key=lambda axis: -strides[axis]))
    order = () if order == tuple(range(len(order))) else order
    dtype = str(kind.dtype() or torch.get_default_dtype()).removeprefix("torch.")
    return replace(made, shape=tuple(kind.sizes() or ()), dtype=dtype, order=order)


def draw_in_fx(node: torch.fx.Node) -> Mask | None:
    """What a node of an FX graph draws; its `meta` has a value without memory, and its origin."""
    schema = getattr(node.target, "_schema", None)
    made = None if schema is None else draw_of(schema, node.args, node.kwargs)
    if made is None:
        return None
    value = node.meta["val"]
    dtype, place = str(value.dtype).removeprefix("torch."), node.meta["origin"].ordinal
    return replace(made, shape=tuple(value.shape), dtype=dtype, ordinal=place)


def filled(mask: Mask, device: torch.device | str = "cpu") -> torch.Tensor:
    """The numbers of a draw that is no dropout, lying in memory as PyTorch's do."""
    axes = mask.order or tuple(range(len(mask.shape)))
    sizes, kind = [mask.shape[a] for a in axes], getattr(torch, mask.dtype)
    places = [axes.index(a) for a in range(len(axes))]
    view = torch.empty(sizes, dtype=kind, device=device).permute(places)
    if mask.draw == "randperm":
        return torch.randperm(sizes[0], dtype=kind, device=device)
    numbers: torch.Tensor = getattr(view, mask.draw)(*mask.given)
    return numbers.contiguous()


def named(mask: Mask, before: Sequence[Mask]) -> Mask:
    """A draw with the name of its input, which counts those of its kind."""
    count = sum(bool(m.draw) == bool(mask.draw) for m in before)
    return replace(mask, name=f"{DRAW_PREFIX if mask.draw else MASK_PREFIX}{count}")
