"""Sums scattered into zeros, such as an embedding's gradient, as kernels that make the zeros, too.

TVM's kernel copies what it adds to, which takes the memory of the result twice.
"""

import functools
import math
from typing import Any

from tvm import relay, te, tir, topi
from tvm.relay.op import strategy

from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import op_name, rewrite


@functools.cache
def register() -> None:
    theirs = strategy.generic.scatter_nd_strategy
    theirs.register("cpu", functools.partial(_chosen, theirs.__wrapped__), True)


def into_zeros(program: RelayProgram) -> RelayProgram:
    """The program with such sums, and their zeros, as functions of their own."""

    def visit(call: Any, args: list[Any]) -> Any:
        sums = op_name(call) == "scatter_nd" and str(call.attrs.mode) == "add"
        if not sums or op_name(call.args[0]) != "zeros":
            return None
        params = [relay.Var(f"p{i}", a.checked_type) for i, a in enumerate(call.args[1:])]
        body = relay.scatter_nd(call.args[0], *params, "add")
        kernel = relay.Function(params, body, call.checked_type)
        return kernel.with_attr("Primitive", tir.IntImm("int32", 1))(*args[1:])

    return rewrite(program, visit)


def _chosen(theirs: Any, attrs: Any, inputs: Any, out_type: Any, target: Any) -> Any:
    made = inputs[0].op
    value = getattr(made.body[0], "value", None) if isinstance(made, te.ComputeOp) else None
    if value != 0 or attrs.mode != "add":
        return theirs(attrs, inputs, out_type, target)
    ours = relay.op.OpStrategy()
    schedule = strategy.generic.wrap_topi_schedule(topi.generic.schedule_extern)
    ours.add_implementation(_compute, schedule, "relascope.scattered")
    return ours


def _compute(attrs: Any, inputs: Any, out_type: Any) -> list[Any]:
    size, given = [int(d) for d in out_type.shape], inputs[1:]
    axes, *places = (int(d) for d in given[0].shape)
    rows, width = math.prod(places), math.prod(size[axes:])

    def body(ins: Any, outs: Any) -> Any:
        made = tir.ir_builder.create()
        (index, updates), out = map(made.buffer_ptr, ins), made.buffer_ptr(outs[0])
        with made.for_range(0, math.prod(size), kind="parallel") as i:
            out[i] = tir.const(0, out_type.dtype)
        with made.for_range(0, rows) as row, made.for_range(0, width) as column:
            at: Any = 0
            for axis in range(axes):
                at = at * size[axis] + index[row + axis * rows].astype("int64")
            out[at * width + column] += updates[row * width + column]
        return made.get()

    return [te.extern([size], given, body, dtype=out_type.dtype, name="scattered")]
