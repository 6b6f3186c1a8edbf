"""Weights as constants, and constant folding."""

from typing import Any

import numpy as np
import tvm
from tvm import relax

from relascope.core.operators import RESHAPES
from relascope.passes.catalogue.entry import listed
from relascope.passes.constants import EXACT, Array, cast, computed, is_exact
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.ir.rewrite import Maker, dtype, op_name, rewrite, shape, with_mod
from relascope.passes.relax.transpose_dedup import axes_of

_DONE = (*EXACT, *RESHAPES, "permute_dims", "concat", "astype")


@listed("BindParams", "TVM")
def bind(program: RelaxProgram) -> RelaxProgram:
    """Puts the weights into the program as constants, so that values that depend only on them can
    be computed now.

    The values also stay in `program.params`, as PyTorch has them.

    After: The weights are constants instead of arguments, so they have no gradient."""
    used = {str(p.name) for p in program.main.params}
    values = {k: v for k, v in program.params.items() if k in used}
    return with_mod(program, relax.transform.BindParams("main", values)(program.mod))


@listed("FoldConstant", "TVM; numpy moves data and computes plain arithmetic, which is faster")
def fold(program: RelaxProgram) -> RelaxProgram:
    """Computes every expression whose inputs are constants and stores the result.

    TVM builds and runs a kernel for each such operator, which takes longer than all other passes
    together. numpy therefore moves data and computes exactly rounded arithmetic first; TVM's pass
    does the rest.

    Before: The program has constants, such as those of bind.
    After: Values that depend only on constants are constants."""
    folded = rewrite(program, dict.fromkeys(_DONE, _folded))
    return with_mod(program, relax.transform.FoldConstant()(folded.mod))


def _folded(call: Any, maker: Maker) -> Any:
    operands = [a for a in call.args if not isinstance(a, relax.ShapeExpr)]
    if isinstance(operands[0], relax.Tuple):
        operands = list(operands[0].fields)
    if not operands or not all(isinstance(a, tvm.ir.GenericConst) for a in operands):
        return None
    made = _value(call, [a.value.numpy() for a in operands])
    if made is None:
        return None
    return relax.const(np.ascontiguousarray(made).reshape(shape(call)), dtype(call))


def _value(call: Any, operands: list[Array]) -> Array | None:
    """The value of a call; None if TVM must compute it."""
    name = op_name(call)
    if name in EXACT:
        return computed(name, dtype(call), operands) if is_exact(name, dtype(call)) else None
    if name in RESHAPES:
        return operands[0].reshape(shape(call))
    if name == "permute_dims":
        return np.transpose(operands[0], axes_of(call))
    if name == "astype":
        return cast(operands[0], dtype(call))
    axis = call.attrs.axis
    return None if axis is None else np.concatenate(operands, int(axis))
