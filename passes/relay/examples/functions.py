"""Examples of the passes over functions, groups and devices."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relay

from relascope.passes.catalogue.example import Example, Make
from relascope.passes.relay.builtin import fuse
from relascope.passes.relay.examples.building import of_module, program, var
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.on_device import on_device


def _module(inlined: bool, called: tuple[str, ...], dtype: str) -> RelayProgram:
    """Two functions, one of them perhaps marked to be inlined, and a "main" that calls some."""
    bodies = {"square": lambda x: relay.multiply(x, x), "positive": relay.nn.relu}
    mod = tvm.IRModule()
    for name, body in bodies.items():
        x = var("x", 2, 3, dtype=dtype)
        function: Any = relay.Function([x], body(x))
        if inlined and name == "square":
            function = function.with_attr("Inline", tvm.tir.IntImm("int32", 1))
        mod[name] = function
    mod = relay.transform.InferType()(mod)  # a call asks for the type of what it calls
    z = var("z", 2, 3, dtype=dtype)
    result = z
    for name in called:
        result = relay.add(result, mod.get_global_var(name)(z))
    mod["main"] = relay.Function([z], result)
    return of_module(mod)


def _inline(dtype: str) -> Example:
    return Example(_module(True, ("square", "positive"), dtype))


def _remove_unused_functions(dtype: str) -> Example:
    return Example(_module(False, ("square",), dtype))


_ELSEWHERE = "sqrt exp"


def _on_two_devices(dtype: str) -> RelayProgram:
    x, y = var("x", 1, 10, dtype=dtype), var("y", 1, 10, dtype=dtype)
    both = relay.add(x, y)
    return program([x, y], relay.exp(relay.subtract(relay.sqrt(both), relay.log(both))))


def _on_device(dtype: str) -> Example:
    return Example(_on_two_devices(dtype), (("operators", _ELSEWHERE),))


def _plan_devices(dtype: str) -> Example:
    return Example(on_device(_on_two_devices(dtype), _ELSEWHERE))


def _defuse(dtype: str) -> Example:
    x = var("x", 2, 3, dtype=dtype)
    return Example(fuse(program([x], relay.exp(relay.nn.relu(x)))))


EXAMPLES: dict[str, Make] = {
    "inline": _inline,
    "remove_unused_functions": _remove_unused_functions,
    "on_device": _on_device,
    "plan_devices": _plan_devices,
    "defuse": _defuse,
}
