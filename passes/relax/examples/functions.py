"""Examples of the passes over functions and devices."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from relascope.passes.catalogue.example import Example
from relascope.passes.relax.examples.building import Emit, Tensors, after, program
from relascope.passes.relax.ir.program import RelaxProgram


def inline(new: Tensors) -> Example:
    builder = relax.BlockBuilder()
    inner, y = new.var("x", 2, 3), new.var("y", 2, 3)
    with builder.function("squared", [inner], private=True):
        with builder.dataflow():
            out = builder.emit_output(relax.op.multiply(inner, inner), name_hint="result")
        squared = builder.emit_func_output(out)
    with builder.function("main", [y]):
        with builder.dataflow():
            a = builder.emit(tvm.ir.Call(squared, [y]), name_hint="a")
            out = builder.emit_output(relax.op.add(a, y), name_hint="result")
        builder.emit_func_output(out)
    return Example(RelaxProgram(builder.get(), {}, ("y",), 1))


_ELSEWHERE = "sqrt exp"


def _on_two_devices(new: Tensors) -> RelaxProgram:
    x, y = new.var("x", 1, 10), new.var("y", 1, 10)

    def body(emit: Emit) -> Any:
        both = emit("both", relax.op.add(x, y))
        root, log = emit("root", relax.op.sqrt(both)), emit("log", relax.op.log(both))
        return relax.op.exp(emit("less", relax.op.subtract(root, log)))

    return program([x, y], body)


def on_device(new: Tensors) -> Example:
    return Example(_on_two_devices(new), (("operators", _ELSEWHERE),))


def plan_devices(new: Tensors) -> Example:
    return Example(after(f"on_device(operators={_ELSEWHERE})", _on_two_devices(new)))
