"""Batch norm in eval mode spelled out, for it has no gradient in Relax."""

from __future__ import annotations

from typing import Any

from tvm import relax

from relascope.passes.catalogue.entry import listed
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.ir.rewrite import Maker, dtype, op_name, rewrite, shape


@listed("batch norm spelled out", "ours", required=True)
def decompose_batch_norm(program: RelaxProgram) -> RelaxProgram:
    """Writes batch norm in eval mode as (x - mean) / sqrt(variance + eps) * weight + bias, which
    has a gradient.

    Mean and variance are the running ones: batch norm in train mode was spelled out at import.

    Before: Batch norm is in eval mode.
    After: There is no nn.batch_norm.
    """
    return rewrite(program, _spelled_out)


def _spelled_out(call: Any, maker: Maker) -> Any:
    if op_name(call) != "nn.batch_norm":
        return None
    op, attrs = relax.op, call.attrs
    x, gamma, beta, mean, variance = call.args
    axis = int(attrs.axis) % len(shape(x))
    along = [size if i == axis else 1 for i, size in enumerate(shape(x))]

    def laid(vector: Any) -> Any:
        return op.reshape(vector, along)

    deviation = op.sqrt(op.add(variance, relax.const(float(attrs.epsilon), dtype(x))))
    result = op.divide(op.subtract(x, laid(mean)), laid(deviation))
    if bool(attrs.scale):
        result = op.multiply(result, laid(gamma))
    if bool(attrs.center):
        result = op.add(result, laid(beta))
    return relax.Tuple([maker.emit(result), mean, variance])
