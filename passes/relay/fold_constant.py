"""Weights as constants, and constant folding."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relay

from relascope.core.operators import RESHAPES
from relascope.passes.catalogue.entry import listed
from relascope.passes.constants import EXACT, cast, computed, is_exact
from relascope.passes.relay.builtin import backward_fold_scale_axis, forward_fold_scale_axis
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import op_name, rewrite, shape, with_main, with_mod

_AXIS = re.compile(r"(\d*)([A-Za-z])")


def _in_layout(call: Any, value: np.ndarray) -> np.ndarray | None:
    """A value with plain axes ("OIHW") in another layout, perhaps blocked ("OIHW4i4o"), or None."""
    source, wanted = str(call.attrs.src_layout), _AXIS.findall(str(call.attrs.dst_layout))
    blocks = {axis.upper(): int(size) for size, axis in wanted if axis.islower()}
    if not source.isupper():
        return None
    split: list[tuple[str, int]] = []
    for axis, size in zip(source, value.shape, strict=True):
        block = blocks.get(axis)
        if size % (block or 1):
            return None  # the last block would have to be filled
        split += [(axis, size)] if block is None else [(axis, size // block), (axis.lower(), block)]
    names = [axis for axis, _ in split]
    return value.reshape([n for _, n in split]).transpose([names.index(a) for _, a in wanted])


_MOVES: dict[str, Callable[[Any, Sequence[np.ndarray]], np.ndarray | None]] = {
    "broadcast_to": lambda call, args: np.broadcast_to(args[0], shape(call)),
    "cast": lambda call, args: cast(args[0], str(call.attrs.dtype)),
    "concatenate": lambda call, args: np.concatenate(args, axis=int(call.attrs.axis)),
    "layout_transform": lambda call, args: _in_layout(call, args[0]),
    "repeat": lambda call, args: np.repeat(args[0], int(call.attrs.repeats), int(call.attrs.axis)),
    **dict.fromkeys(RESHAPES, lambda call, args: args[0].reshape(shape(call))),
    "transpose": lambda call, args: np.transpose(
        args[0], [int(a) for a in call.attrs.axes] if call.attrs.axes else None
    ),
}


@listed("bind parameters", "TVM, relay.build_module.bind_params_by_name")
def bind(program: RelayProgram) -> RelayProgram:
    """Puts the weights into the program as constants, so that values that depend only on them can
    be computed now.

    The values also stay in `program.params`, as PyTorch has them.

    After: The weights are constants instead of arguments, so they have no gradient.
    """
    used = {p.name_hint for p in program.main.params}
    values = {k: v for k, v in program.params.items() if k in used}
    return with_main(program, relay.build_module.bind_params_by_name(program.main, values))


@listed("FoldConstant", "TVM; numpy moves data and computes plain arithmetic, which is faster")
def fold(program: RelayProgram) -> RelayProgram:
    """Computes every expression whose inputs are constants and stores the result.

    TVM's FoldConstant compiles each such expression separately, which takes a second or more for a
    transposed weight. numpy moves data and computes plain arithmetic, with the same bits; TVM does
    the rest.

    Before: The program has constants, such as those of bind.
    After: Values that depend only on constants are constants.
    """
    return with_mod(program, relay.transform.FoldConstant()(rewrite(program, folded).mod))


def folded(call: Any, args: list[Any]) -> Any:
    """A call of constants as a constant, if numpy computes the same bits; a `Visit` of
    `rewrite`."""
    if op_name(call) in _MOVES:
        return _moved(call, args)
    kind = str(call.checked_type.dtype) if op_name(call) in EXACT else ""
    if not is_exact(op_name(call), kind) or not all(isinstance(a, relay.Constant) for a in args):
        return None
    return relay.const(computed(op_name(call), kind, [a.data.numpy() for a in args]), kind)


def _moved(call: Any, args: list[Any]) -> Any:
    operands = list(args[0].fields) if isinstance(args[0], relay.Tuple) else args
    if not operands or not all(isinstance(a, relay.Constant) for a in operands):
        return None
    moved = _MOVES[op_name(call)](call, [a.data.numpy() for a in operands])
    if moved is None:
        return None
    result = np.ascontiguousarray(moved).reshape(shape(call))
    return relay.const(result, str(result.dtype))


@listed("FoldScaleAxis", "TVM, with its three parts called one by one")
def fold_scale_axis(program: RelayProgram) -> RelayProgram:
    """Folds a factor per channel into weights, backward and forward, and then folds constants:
    batch norm disappears into its convolution.

    BackwardFoldScaleAxis, ForwardFoldScaleAxis and FoldConstant run one after the other. TVM's pass
    of this name is the same three, but alone it silently does nothing at the default optimisation
    level, because it skips passes above that level.

    Before: Weights and scales are constants, and batch norm is plain arithmetic: bind,
        simplify_inference and fold have run.
    After: No convolution or dense layer has a scale that its weight could absorb.
    """
    return fold(forward_fold_scale_axis(backward_fold_scale_axis(program)))
