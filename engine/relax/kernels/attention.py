"""Attention by PyTorch inside functions that TVM builds; see `engine.relax.kernels.blas`.

softmax(q k^T scale + mask) v, with the transposes of heads, becomes one call of PyTorch's CPU
kernel, which never holds all scores (Dao et al., "FlashAttention", NeurIPS 2022). If a mask hides
all keys of a row, the row is zero, as in PyTorch; as separate operators it would be NaN.
"""

import collections
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from relascope.engine.building.executables import tensor_of
from relascope.engine.cpu_kernels.schedules import FEW_FLOPS
from relascope.passes.relax.ir.rewrite import everything, op_name
from relascope.passes.relax.transpose_dedup import axes_of

_NAME = "relascope.attention"
_FLOATS = ("float32", "float64")
_HEADS = [0, 2, 1, 3]
"""From (batch, tokens, heads, size) to (batch, heads, tokens, size), and back."""


@dataclass(frozen=True)
class _Attention:
    """An attention in a program. `lies` says whether q, k and v have tokens before heads, `back`
    whether the result does."""

    given: tuple[Any, ...]
    scale: float
    lies: tuple[bool, ...]
    back: bool = False

    def call(self, kind: Any) -> Any:
        letters = "".join("ht"[lie] for lie in (*self.lies, self.back))
        symbol = f"{_NAME} {self.scale!r} {letters}"
        run = functools.partial(_run, self.scale, self.lies, self.back)
        tvm.register_global_func(symbol, run, override=True)
        return relax.op.call_dps_packed(symbol, self.given, kind)


def dispatch(mod: Any) -> Any:
    mod = relax.transform.Normalize()(mod)  # every call has its type
    rewriter = _AttentionRewriter(mod)
    made = {}
    for name, function in mod.functions.items():
        made[name] = function
        if isinstance(function, relax.Function):
            rewriter.reader = _AttentionFinder(function)
            made[name] = rewriter.visit_expr(function)
    return relax.transform.DeadCodeElimination()(tvm.IRModule(made, attrs=mod.attrs))


@mutator
class _AttentionRewriter(PyExprMutator):
    reader: Any = None

    def visit_call_(self, call: Any) -> Any:
        found = self.reader.attention(call)
        return self.visit_expr_post_order(call if found is None else found.call(call.ty))


class _AttentionFinder:
    def __init__(self, function: Any) -> None:
        self.values: dict[Any, Any] = {
            b.var: b.value for block in function.body.blocks for b in block.bindings
        }
        met = (e for e in everything(function.body) if isinstance(e, tvm.ir.Var))
        self.uses = collections.Counter[Any](met)

    def attention(self, call: Any) -> _Attention | None:
        """The attention that a call ends; None if it ends none."""
        if op_name(call) == "permute_dims" and axes_of(call) == _HEADS:
            inner = self.alone(call.args[0], "matmul")
            found = None if inner is None else self.product(inner)
            return None if found is None else replace(found, back=True)
        return self.product(call) if op_name(call) == "matmul" else None

    def product(self, call: Any) -> _Attention | None:
        """The attention that ends in a product of weights and values; None if there is none."""
        weights = self.alone(call.args[0], "nn.softmax")
        if weights is None or int(weights.attrs.axis) not in (-1, 3) or int(call.ty.ndim) != 4:
            return None
        mask: tuple[Any, ...] = ()
        scaled = self.scaled(weights.args[0])
        added = self.alone(weights.args[0], "add")
        if added is not None:
            sides = list(map(self.scaled, added.args))
            place = 0 if sides[0] is not None else 1
            mask, scaled = (added.args[1 - place],), sides[place]
        if scaled is None:
            return None
        product, scale = scaled
        key = self.turned(product.args[1])
        if key is None or not self.fits(call, product, mask):
            return None
        query, value = self.heads(product.args[0]), self.heads(call.args[1])
        given, lies = zip(query, key, value, strict=True)
        return _Attention((*given, *mask), scale, lies)

    def fits(self, call: Any, product: Any, mask: Sequence[Any]) -> bool:
        """Whether PyTorch has a kernel for these types that is worth calling."""
        tensors = (call, product, *call.args, *product.args, *mask)
        known = all(isinstance(d, tvm.tirx.IntImm) for t in tensors for d in t.ty.shape or (None,))
        dtypes = {str(t.ty.dtype) for t in tensors}
        if not known or len(dtypes) > 1 or not dtypes <= set(_FLOATS):
            return False
        outer = [[int(d) for d in list(t.ty.shape)[:-2]] for t in tensors[:6]]
        *_, rows, size = map(int, call.ty.shape)
        keys, width = int(product.ty.shape[-1]), int(product.args[0].ty.shape[-1])
        flops = 2 * math.prod(outer[0]) * rows * keys * (size + width)
        same = all(o == outer[0] for o in outer) and size == width
        return same and flops >= FEW_FLOPS

    def bound(self, value: Any) -> Any:
        """What a variable is bound to; None for an argument or another expression."""
        return self.values.get(value) if isinstance(value, tvm.ir.Var) else None

    def alone(self, value: Any, name: str) -> Any | None:
        """The call of an operator that a variable is bound to, if it has only one reader."""
        made = self.bound(value)
        return made if op_name(made) == name and self.uses[value] == 1 else None

    def scaled(self, value: Any) -> tuple[Any, float] | None:
        """A product and the number that scales it; None for anything else."""
        product = self.alone(value, "matmul")
        if product is not None:
            return product, 1.0
        for name in ("multiply", "divide"):
            made = self.alone(value, name)
            sides = () if made is None else (made.args, made.args[::-1])
            for inner, number in sides[: 1 if name == "divide" else 2]:
                product = self.alone(inner, "matmul")
                if product is not None and isinstance(number, tvm.ir.GenericConst):
                    values = number.value.numpy()
                    if values.size == 1:
                        scale = float(values.reshape(()))
                        return product, scale if name == "multiply" else 1 / scale
        return None

    def heads(self, value: Any) -> tuple[Any, bool]:
        """A tensor before the transpose that moves heads to the front, and whether there is one."""
        made = self.bound(value)
        if op_name(made) != "permute_dims" or axes_of(made) != _HEADS:
            return value, False
        return made.args[0], True

    def turned(self, value: Any) -> tuple[Any, bool] | None:
        """The same for keys whose last two axes are swapped; None if they are not."""
        made = self.bound(value)
        if op_name(made) != "permute_dims":
            return None
        axes = axes_of(made)
        if axes == [0, 2, 3, 1]:
            return made.args[0], True
        return self.heads(made.args[0]) if axes == [0, 1, 3, 2] else None


def _run(
    scale: float, lies: tuple[bool, ...], back: bool, q: Any, k: Any, v: Any, *more: Any
) -> None:
    tensors = [tensor_of(t) for t in (q, k, v)]
    query, key, value = (
        t.transpose(1, 2) if lie else t for t, lie in zip(tensors, lies, strict=True)
    )
    *mask, out = map(tensor_of, more)
    found = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask[0] if mask else None, scale=scale
    )
    out.copy_(found.transpose(1, 2) if back else found)
