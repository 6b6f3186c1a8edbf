"""Examples of the passes over functions."""

import tvm
from tvm.relax import BlockBuilder, op

from relascope.passes.catalogue.example import Example
from relascope.passes.relax.examples.building import Tensors
from relascope.passes.relax.ir.program import RelaxProgram


def inline(new: Tensors) -> Example:
    builder = BlockBuilder()
    inner, y = new.var("x", 2, 3), new.var("y", 2, 3)
    with builder.function("squared", [inner], private=True):
        with builder.dataflow():
            out = builder.emit_output(op.multiply(inner, inner), name_hint="result")
        squared = builder.emit_func_output(out)
    with builder.function("main", [y]):
        with builder.dataflow():
            a = builder.emit(tvm.ir.Call(squared, [y]), name_hint="a")
            out = builder.emit_output(op.add(a, y), name_hint="result")
        builder.emit_func_output(out)
    return Example(RelaxProgram(builder.get(), {}, ("y",), 1))
