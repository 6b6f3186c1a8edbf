"""FoldConstant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relax

from passes.relax.program import RelaxProgram
from passes.relax.rewrite import Maker, dtype, op_name, rewrite, shape, with_mod
from passes.relax.transpose_dedup import axes_of

Array = np.ndarray[Any, Any]

_RESHAPED = ("reshape", "expand_dims", "squeeze")
_COMPUTED: Mapping[str, Callable[..., Array]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide,
    "sqrt": np.sqrt, "negative": np.negative,
}  # fmt: skip


def fold_constant(program: RelaxProgram) -> RelaxProgram:
    """Compute what depends on constants alone.

    TVM builds and runs a kernel for each such operator, which takes longer than all other passes
    together. What only moves data, and the arithmetic that is exactly rounded in any library, is
    done by numpy first; TVM's pass does the rest.
    """
    return with_mod(program, relax.transform.FoldConstant()(rewrite(program, _computed).mod))


def _computed(call: Any, maker: Maker) -> Any:
    compute = _how(call)
    operands = [a for a in call.args if not isinstance(a, relax.ShapeExpr)]
    if operands and isinstance(operands[0], relax.Tuple):
        operands = list(operands[0].fields)
    if compute is None or not all(isinstance(a, tvm.ir.GenericConst) for a in operands):
        return None
    with np.errstate(all="ignore"):  # an infinity is a result like any other
        made = compute(*(a.value.numpy() for a in operands))
    return relax.const(np.ascontiguousarray(made).reshape(shape(call)), dtype(call))


def _how(call: Any) -> Callable[..., Array] | None:
    """How numpy computes what a call does; None where TVM shall."""
    name = op_name(call)
    if name in _COMPUTED and dtype(call) in ("float32", "float64"):
        return _COMPUTED[name]
    if name in _RESHAPED:
        return lambda array: array.reshape(shape(call))
    if name == "permute_dims":
        return lambda array: np.transpose(array, axes_of(call))
    if name == "concat" and call.attrs.axis is not None:
        return lambda *arrays: np.concatenate(arrays, int(call.attrs.axis))
    return None
