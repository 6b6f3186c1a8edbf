"""Constant folding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relay

from passes.relay.program import RelayProgram
from passes.relay.rewrite import op_name, rewrite, shape, with_mod

_MOVES: dict[str, Callable[[Any, Sequence[np.ndarray]], np.ndarray]] = {
    "broadcast_to": lambda call, args: np.broadcast_to(args[0], shape(call)),
    "concatenate": lambda call, args: np.concatenate(args, axis=int(call.attrs.axis)),
    "expand_dims": lambda call, args: args[0].reshape(shape(call)),
    "reshape": lambda call, args: args[0].reshape(shape(call)),
    "squeeze": lambda call, args: args[0].reshape(shape(call)),
    "transpose": lambda call, args: np.transpose(
        args[0], [int(a) for a in call.attrs.axes] if call.attrs.axes else None
    ),
}
# IEEE arithmetic that is rounded once: the same bits wherever it is computed.
_COMPUTES: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add,
    "divide": np.divide,
    "multiply": np.multiply,
    "negative": np.negative,
    "sqrt": np.sqrt,
    "subtract": np.subtract,
}
_FLOATS = ("float32", "float64")


def fold_constant(program: RelayProgram) -> RelayProgram:
    """Compute every expression whose inputs are constants, and store the result.

    TVM's FoldConstant compiles each such expression by itself, a second and more for a weight that
    is only transposed. Numpy does what only moves data and plain arithmetic, with the same bits;
    TVM does the rest.
    """
    return with_mod(program, relay.transform.FoldConstant()(rewrite(program, _folded).mod))


def _folded(call: Any, args: list[Any]) -> Any:
    if op_name(call) in _MOVES:
        return _moved(call, args)
    compute = _COMPUTES.get(op_name(call))
    kind = str(call.checked_type.dtype) if compute is not None else ""
    if kind not in _FLOATS or not all(isinstance(a, relay.Constant) for a in args):
        return None
    assert compute is not None
    with np.errstate(all="ignore"):  # NaN and infinity are values here as they are in TVM
        return relay.const(np.asarray(compute(*(a.data.numpy() for a in args)), kind), kind)


def _moved(call: Any, args: list[Any]) -> Any:
    move = _MOVES.get(op_name(call))
    if move is None:
        return None
    operands = list(args[0].fields) if isinstance(args[0], relay.Tuple) else args
    if not operands or not all(isinstance(a, relay.Constant) for a in operands):
        return None
    values = [a.data.numpy() for a in operands]
    result = np.ascontiguousarray(move(call, values)).reshape(shape(call))
    return relay.const(result, str(values[0].dtype))
