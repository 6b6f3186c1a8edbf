"""Examples of the passes over functions and devices."""

from __future__ import annotations

from typing import Any

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


_ELSEWHERE = "sqrt exp"


def _on_two_devices(new: Tensors) -> Any:
    both = new.bind("both", op.add(new.var("x", 1, 10), new.var("y", 1, 10)))
    root, log = new.bind("root", op.sqrt(both)), new.bind("log", op.log(both))
    return op.exp(new.bind("less", op.subtract(root, log)))


def on_device(new: Tensors) -> Example:
    return new.example(_on_two_devices(new), params=(("operators", _ELSEWHERE),))


def plan_devices(new: Tensors) -> Example:
    return new.example(_on_two_devices(new), after=f"on_device(operators={_ELSEWHERE})")
