"""Examples of the passes over functions and groups."""

from typing import Any

import tvm
from tvm import relay

from relascope.passes.catalogue.example import Example
from relascope.passes.relay.examples.building import Tensors


def _module(inlined: bool, called: tuple[str, ...], new: Tensors) -> Example:
    """Two functions, one of them perhaps marked to be inlined, and a "main" that calls some."""
    bodies = {"square": lambda x: relay.multiply(x, x), "positive": relay.nn.relu}
    mod = tvm.IRModule()
    for name, body in bodies.items():
        x = new.variable("x", (2, 3), new.dtype)
        function: Any = relay.Function([x], body(x))
        if inlined and name == "square":
            function = function.with_attr("Inline", tvm.tir.IntImm("int32", 1))
        mod[name] = function
    mod = relay.transform.InferType()(mod)  # a call asks for the type of what it calls
    z = result = new.var("z", 2, 3)
    for name in called:
        result = relay.add(result, mod.get_global_var(name)(z))
    mod["main"] = relay.Function([z], result)
    return Example(new.of_module(mod))


def inline(new: Tensors) -> Example:
    return _module(True, ("square", "positive"), new)


def remove_unused_functions(new: Tensors) -> Example:
    return _module(False, ("square",), new)


def defuse(new: Tensors) -> Example:
    return new.example(relay.exp(relay.nn.relu(new.var("x", 2, 3))), after="fuse")
