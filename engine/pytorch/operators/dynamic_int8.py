"""PyTorch's operators with dynamically quantized int8 weights, in plain operators.

The input is quantized as a whole, by its smallest and largest value, to 7 or 8 bits; the products
of whole numbers are exact. PyTorch's CPU kernels (fbgemm) round once per multiplication and
addition together, so these run in float64 here: equal inputs give equal bits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table

from relascope.engine.files.operators import DYNAMIC_INT8

_LEAST_SCALE = torch.tensor(6.1e-5).item()
_EXACT = 2**24
"""Whole numbers below this are exact in float32."""
Product = Callable[..., Tensor]
"""A function of an input, weights, their scales and a bias."""


def int8_function(schema: Any, args: Sequence[Any]) -> tuple[Callable[..., Any], list[Any]] | None:
    """A function that computes an operator of `DYNAMIC_INT8`, and its arguments; None for another
    operator. Packed parameters among `args` are objects of PyTorch's."""
    if schema.name not in DYNAMIC_INT8:
        return None
    if "linear" in schema.name:
        x, packed, reduced = args
        form, given = _product_of(packed, reduced)
        return (lambda *rest: form(*rest).relu()) if "relu" in schema.name else form, [x, *given]
    x, hidden, packed, *how = args[:9]
    cells = [cell.__getstate__()[0] for cell in packed] if schema.overload_name == "input" else []
    dropout, training = how[2:4]
    if not all(kind == "quantized_dynamic" for kind, *_ in cells) or (training and dropout):
        cells = []
    products = [_product_of(one, bool(cell[3][0])) for cell in cells for one in cell[4]]
    name = schema.name.removeprefix("aten::quantized_")
    run = partial(_recurrent, name, [form for form, _ in products], how)
    return run, [x, hidden, [given for _, given in products]]


def _product_of(packed: Any, reduced: bool) -> tuple[Product, list[Tensor | None]]:
    """The product with packed weights, and its arguments after the input."""
    weight, bias = torch.ops.quantized.linear_unpack(packed)
    if weight.qscheme() == torch.per_tensor_affine:
        scales, zeros = torch.tensor([weight.q_scale()]), torch.tensor([weight.q_zero_point()])
    else:
        scales, zeros = weight.q_per_channel_scales(), weight.q_per_channel_zero_points()
    held = weight.int_repr()
    if zeros.any():
        held = held.float() - zeros.float().unsqueeze(1)
    # qnnpack takes 8 bits whatever the argument is.
    most = 127 if reduced and torch.backends.quantized.engine != "qnnpack" else 255
    largest = held.double().abs().sum(1).max().item() * (most + 1)
    form = partial(_product, most, torch.float32 if largest < _EXACT else torch.float64)
    return form, [held, scales.float(), None if bias is None else bias.detach()]


def _product(
    most: int, exact: torch.dtype, x: Tensor, weight: Tensor, scales: Tensor, bias: Tensor | None
) -> Tensor:
    wide = torch.float64
    low, high = x.amin().clamp(max=0.0).to(wide), x.amax().clamp(min=0.0).to(wide)
    step = (high - low) / most
    zero = torch.where(step > 0, (-low / step).round(), 0.0)
    scale = step.clamp(min=_LEAST_SCALE).float()
    level = (x.to(wide) * (1 / scale).to(wide) + zero).float().round().clamp(0.0, 255.0)
    whole = torch.matmul((level - zero.float()).to(exact), weight.to(exact).t()).float()
    made = whole.to(wide) * (scale * scales).to(wide)
    return (made if bias is None else made + bias.to(wide)).float()


@dataclass(frozen=True)
class _Int8Weight:
    """Stands for a weight of `linear` in PyTorch's own decomposition of a recurrent network."""

    form: Product
    weight: Tensor
    scales: Tensor
    dtype, device = torch.int8, torch.device("cpu")

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any, kwargs: Any = None) -> Tensor:
        x, one, bias = args
        return one.form(x, one.weight, one.scales, bias)


def _recurrent(name: str, forms: list[Product], how: list[Any], x: Any, h: Any, given: Any) -> Any:
    if not given:
        raise NotImplementedError("it has packed sequences, dropout or weights other than int8")
    weights = [_Int8Weight(form, *held[:2]) for form, held in zip(forms, given, strict=True)]
    biases = [held[2] for held in given]
    pairs = zip(weights[::2], weights[1::2], biases[::2], biases[1::2], strict=True)
    params = [part for pair in pairs for part in pair]
    return decomposition_table[getattr(torch.ops.aten, name).input](x, h, params, *how)
