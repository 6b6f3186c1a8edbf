"""Relay modules with control flow on TVM's virtual machine; the graph executor runs none."""

from collections.abc import Iterator, Sequence
from typing import Any

import tvm
from tvm import relay
from tvm.runtime.vm import VirtualMachine

from relascope.core.errors import EngineError
from relascope.passes.relay.ir.rewrite import everything

_CONTROL = (relay.If, relay.Match, relay.RefCreate)
_FUNCTIONS = (tvm.ir.Op, tvm.ir.GlobalVar, relay.Function, relay.Constructor)


def has_control_flow(mod: tvm.IRModule) -> bool:
    """Whether a function of a module branches, keeps state, or calls a computed function."""
    return any(
        isinstance(one, _CONTROL)
        or (isinstance(one, relay.Call) and not isinstance(one.op, _FUNCTIONS))
        for one in _everything(mod)
    )


def _everything(mod: tvm.IRModule) -> Iterator[Any]:
    for function in mod.functions.values():
        if isinstance(function, relay.Function):
            yield from everything(function)


class VmModule:
    """A module built for a target; a call runs "main" on arrays and returns its results, flat.
    Raises EngineError of kind "target" if an inner function calls itself."""

    def __init__(self, mod: tvm.IRModule, target: Any, device: Any) -> None:
        for one in _everything(mod):
            if isinstance(one, relay.Let) and one.var in relay.analysis.free_vars(one.value):
                why = f"TVM's passes fail: the inner function {one.var.name_hint} calls itself."
                hint = "Make it a function of the module."
                raise EngineError("target", why, str(target.kind), hint)
        # The virtual machine needs these passes; from level 1 on, its compiler runs them itself.
        for step in (relay.transform.ToANormalForm(), relay.transform.LambdaLift()):
            mod = step(relay.transform.InferType()(mod))
        self._machine = VirtualMachine(relay.vm.compile(mod, target=target), device)

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        made = self._machine.invoke("main", *arrays)
        return list(made) if isinstance(made, tvm.runtime.container.ADT) else [made]
