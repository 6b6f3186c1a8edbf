"""Examples of the passes over functions and devices."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from relascope.passes.catalogue.example import Example, Make
from relascope.passes.relax.examples.building import Emit, program, var
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.on_device import on_device


def _inline(dtype: str) -> Example:
    builder = relax.BlockBuilder()
    inner, y = var("x", 2, 3, dtype=dtype), var("y", 2, 3, dtype=dtype)
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


def _on_two_devices(dtype: str) -> RelaxProgram:
    x, y = var("x", 1, 10, dtype=dtype), var("y", 1, 10, dtype=dtype)

    def body(emit: Emit) -> Any:
        both = emit("both", relax.op.add(x, y))
        root, log = emit("root", relax.op.sqrt(both)), emit("log", relax.op.log(both))
        return relax.op.exp(emit("less", relax.op.subtract(root, log)))

    return program([x, y], body)


def _on_device(dtype: str) -> Example:
    return Example(_on_two_devices(dtype), (("operators", _ELSEWHERE),))


def _plan_devices(dtype: str) -> Example:
    return Example(on_device(_on_two_devices(dtype), _ELSEWHERE))


EXAMPLES: dict[str, Make] = {
    "inline": _inline,
    "on_device": _on_device,
    "plan_devices": _plan_devices,
}
