"""Relay modules with control flow, on TVM's virtual machine: its graph executor has none."""

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relay
from tvm.runtime.vm import VirtualMachine

from relascope.core.errors import EngineError

_CONTROL = (relay.If, relay.Match, relay.RefCreate)
_FUNCTIONS = (tvm.ir.Op, tvm.ir.GlobalVar, relay.Function, relay.Constructor)


def has_control_flow(mod: tvm.IRModule) -> bool:
    """Whether a function of a module branches, keeps state, or calls what it computes."""
    called = (call.op for call in _met(mod, relay.Call))
    return bool(_met(mod, _CONTROL)) or not all(isinstance(op, _FUNCTIONS) for op in called)


def _met(mod: tvm.IRModule, kind: Any) -> list[Any]:
    found: list[Any] = []
    for function in mod.functions.values():
        if isinstance(function, relay.Function):
            relay.analysis.post_order_visit(function, found.append)
    return [one for one in found if isinstance(one, kind)]


class VmModule:
    """A module that was built for a target; a call runs "main" on arrays and gives its results,
    flat.

    Raises:
        EngineError: kind "target"; a function inside of another calls itself.
    """

    def __init__(self, mod: tvm.IRModule, target: Any, device: Any) -> None:
        for let in _met(mod, relay.Let):
            if let.var in relay.analysis.free_vars(let.value):
                message = (
                    f"The function {let.var.name_hint} inside of another calls itself, on which "
                )
                hint = "Make it a function of the module."
                raise EngineError("target", f"{message}TVM's passes fail.", str(target.kind), hint)
        # Which it needs, and does itself from level 1 on.
        for step in (relay.transform.ToANormalForm(), relay.transform.LambdaLift()):
            mod = step(relay.transform.InferType()(mod))
        self._machine = VirtualMachine(relay.vm.compile(mod, target=target), device)

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        made = self._machine.invoke("main", *arrays)
        return list(made) if isinstance(made, tvm.runtime.container.ADT) else [made]
