"""Operators that draw random numbers: each draw becomes an input that PyTorch fills."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from relascope.passes.cuts.joint import DRAW_PREFIX, MASK_PREFIX
from relascope.passes.program import Mask

FILLS: dict[str, tuple[str, dict[str, float]]] = {
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
    "multinomial": ("exponential_", {}),
}
"""By operator: the tensor method that draws the same, and its arguments with defaults."""
_aten = torch.ops.aten
_DROPOUTS = ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
_ATTENTION = "scaled_dot_product_attention"
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
DRAWING = frozenset((*FILLS, *_DROPOUTS))
"""Names of functions that draw, without the suffixes "_" and "_like"."""
DROPPING = tuple(f"aten::{name}" for name in (_ATTENTION, *_RECURRENT))
"""Operators with a dropout inside, which is on if they draw."""


def draw_of(schema: Any, given: Sequence[Any], named: Mapping[str, Any]) -> Mask | None:
    """What an operator, in place or not, draws with these arguments, which are plain values where
    known: a Mask without name, shape and dtype. None if it draws nothing, or nothing that a tensor
    method can repeat."""
    name = schema.name.removeprefix("aten::").removesuffix("_")
    values = dict(zip((a.name for a in schema.arguments), given, strict=False)) | dict(named)
    if name == _ATTENTION:
        rate = values.get("dropout_p")
        return Mask("", float(rate), (), "") if rate else None
    if name in _DROPOUTS:
        rate = values["train"] and values["p"]
        if not rate or (rate == 1 and name != "dropout"):
            return None
        whole = Mask("", 0.0, (), "", draw="bernoulli_", given=(1 - rate,))
        return Mask("", float(rate), (), "") if name == "dropout" else whole
    method, defaults = FILLS.get(name.removesuffix("_like"), ("", {}))
    if not method:
        return None
    takes_p = any(a.name == "p" for a in schema.arguments)
    several = values.get("replacement") and values["num_samples"] > 1
    if (name == "bernoulli" and not takes_p) or several:  # compared with a tensor
        return Mask("", 0.0, (), "", draw="uniform_")
    arguments = tuple(values.get(n, default) for n, default in defaults.items())
    if name == "normal":  # of tensors: around 0, and with deviation 1 if that is a tensor
        numbers = [a if isinstance(a, int | float) else None for a in arguments]
        if None in numbers:
            arguments = 0.0, 1.0 if numbers[1] is None else numbers[1]
    plain = all(isinstance(a, int | float) for a in arguments)
    return Mask("", 0.0, (), "", draw=method, given=arguments) if plain else None


def draws_in_trace(node: Any) -> list[Mask]:
    """What a node of a trace draws, with the shape, dtype and memory order that the trace knows."""
    name = node.kind().removeprefix("aten::").removesuffix("_")
    reads = name in (*_DROPOUTS, _ATTENTION, "multinomial")
    if name in _RECURRENT:
        return _between_layers(node)
    if not reads and name.removesuffix("_like") not in FILLS:  # before schemas are read
        return []
    given = [v.toIValue() for v in node.inputs()]
    made = draw_of(torch._C.parse_schema(node.schema()), given, {})
    if made is None:
        return []
    kind = (node.inputsAt(0) if reads else node.output()).type()
    sizes, dtype = tuple(kind.sizes() or ()), kind.dtype() or torch.get_default_dtype()
    order: tuple[int, ...] = ()
    if name.startswith("feature_"):
        sizes = _of_features(sizes)
    elif name == _ATTENTION:
        sizes = (*sizes[:-1], (node.inputsAt(1).type().sizes() or (0, 0))[-2])
    elif name == "multinomial" and made.draw == "uniform_":
        sizes, dtype = (*sizes[:-1], given[1]), torch.float64
    elif kind.sizes() is not None and kind.strides() is not None:
        lying = torch.empty_strided(kind.sizes(), kind.strides(), device="meta")
        strides = torch.empty_like(lying).stride()
        order = tuple(sorted(range(len(strides)), key=lambda axis: -strides[axis]))
    order = () if order == tuple(range(len(order))) else order
    return [replace(made, shape=sizes, dtype=str(dtype).removeprefix("torch."), order=order)]


def _between_layers(node: Any) -> list[Mask]:
    """The dropouts of an LSTM, GRU or RNN, on the output of each layer but the last, by steps."""
    *_, layers, rate, train, _, batch_first = (v.toIValue() for v in node.inputs())
    if not train or not rate or not isinstance(batch_first, bool):  # else the sequences are packed
        return []
    kind = node.outputsAt(0).type()
    sizes, dtype = list(kind.sizes() or ()), kind.dtype() or torch.get_default_dtype()
    sizes[:2] = reversed(sizes[:2]) if batch_first else sizes[:2]
    kept, name = (1 - rate,), str(dtype).removeprefix("torch.")
    return [Mask("", 0.0, tuple(sizes), name, draw="bernoulli_", given=kept)] * (layers - 1)


def numbers_of(mask: Mask, device: torch.device | str = "cpu") -> torch.Tensor:
    """The numbers of a draw other than a dropout, in PyTorch's memory order."""
    axes = mask.order or tuple(range(len(mask.shape)))
    sizes, kind = [mask.shape[a] for a in axes], getattr(torch, mask.dtype)
    places = [axes.index(a) for a in range(len(axes))]
    view = torch.empty(sizes, dtype=kind, device=device).permute(places)
    if mask.draw == "randperm":
        return torch.randperm(sizes[0], dtype=kind, device=device)
    numbers: torch.Tensor = getattr(view, mask.draw)(*mask.given)
    return numbers.contiguous()


def numbered(mask: Mask, before: Sequence[Mask]) -> Mask:
    """A draw with the name of its input, numbered among those of its kind."""
    count = sum(bool(m.draw) == bool(mask.draw) for m in before)
    return replace(mask, name=f"{DRAW_PREFIX if mask.draw else MASK_PREFIX}{count}")


def _of_features(sizes: Sequence[int]) -> tuple[int, ...]:
    """The shape of a mask that drops whole channels."""
    return (*sizes[:2], *[1] * (len(sizes) - 2))


def _bernoulli(p: Tensor, **_: Any) -> Tensor:
    return (_aten.uniform.default(torch.empty_like(p)) < p).to(p.dtype)


def _multinomial(p: Tensor, count: int, replacement: bool = False, **_: Any) -> Tensor:
    """As PyTorch draws on the CPU: the largest quotients by exponential numbers, or the places of
    uniform numbers among cumulative sums. Where PyTorch raises (a negative number, NaN, a sum of
    0), the result is arbitrary.
    """
    p = p.detach()
    if count == 1 or not replacement:
        quotients = p / _aten.exponential.default(torch.empty_like(p))
        return quotients.argmax(-1, True) if count == 1 else quotients.topk(count).indices
    sums = (p if p.dtype == torch.float64 else p.float()).cumsum(-1)
    ends = (sums / sums[..., -1:])[..., :-1].double()
    drawn = torch.rand((*p.shape[:-1], count), dtype=torch.float64, device=p.device)
    return (ends.unsqueeze(-2) < drawn.unsqueeze(-1)).sum(-1)


def _normal(mean: Any, std: Any = 1.0, **_: Any) -> Tensor:
    """`normal` with a tensor as mean or deviation."""
    tensors = [v for v in (mean, std) if isinstance(v, Tensor)]
    sizes, dtype = torch.broadcast_shapes(*(t.shape for t in tensors)), tensors[0].dtype
    drawn = torch.empty(sizes, dtype=dtype, device=tensors[0].device)
    if not isinstance(std, Tensor):
        return _aten.normal_functional.default(drawn, 0.0, std) + mean.detach()
    scaled = _aten.normal_functional.default(drawn) * std.detach()
    return scaled.to(dtype) + (mean.detach() if isinstance(mean, Tensor) else mean)


def _dropped(name: str, x: Tensor, rate: float, train: bool) -> Tensor:
    """Dropouts of whole channels, and those that keep the mean and variance of SELU's results."""
    if not rate or not train:
        return x
    if rate == 1:
        return x * 0.0
    features = name.startswith("feature_")
    drawn = x.new_empty(_of_features(x.shape)) if features else torch.empty_like(x)
    kept = _aten.bernoulli.p(drawn, 1 - rate)
    if "alpha" not in name:
        return x * (kept / (1 - rate))
    alpha = 1.7580993408473766  # SELU's limit
    scale = 1 / math.sqrt((alpha * alpha * rate + 1) * (1 - rate))
    shift = (kept - 1) * (alpha * scale) + alpha * scale * rate
    return x * (kept * scale) + shift


COMPOSED: dict[str, Callable[..., Tensor]] = {
    "bernoulli.default": _bernoulli,
    "multinomial.default": _multinomial,
    **{f"normal.{given}": _normal for given in ("Tensor_Tensor", "Tensor_float", "float_Tensor")},
    **{f"{name}.default": partial(_dropped, name) for name in _DROPOUTS[1:]},
}
"""By operator that computes with what it draws: a function of plain draws and other operators."""
