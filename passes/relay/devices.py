"""Marks that say which operators run on another device, and the copies between devices."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import tvm
from tvm import relay

from relascope.core.errors import EngineError
from relascope.passes.catalogue.entry import listed
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import (
    children,
    copied,
    op_name,
    post_order,
    rewrite_body,
    with_children,
    with_main,
)
from relascope.passes.relay.ir.span_recovery import with_origins

HOST = "cpu"


@listed("on_device marks", "ours, for PlanDevices", looking=True)
def on_device(
    program: RelayProgram,
    operators: str = "nn.dense nn.batch_matmul nn.conv2d",
    device: Literal["cuda", "opencl", "vulkan", "metal", "rocm"] = "cuda",
) -> RelayProgram:
    """Marks, wherever a value goes from one device to another, the device that computes it. For
    looking: relascope builds for one device.

    What is not named runs on the CPU, where the arguments lie; results stay where they are
    computed. Each reader gets a mark of its own: PlanDevices ends the process on one that two
    share.

    Before: It has one of the operators named.
    After: on_device stands on every edge between devices, one for each reader.

    Args:
        operators: Those that run on the device, with blanks between.
        device: The device beside the CPU.

    Raises:
        EngineError: kind "pass"; the program has none of these operators.
    """
    wanted = set(operators.split())
    calls = [e for e in post_order(program.main.body) if isinstance(e, relay.Call)]
    if not any(op_name(c) in wanted for c in calls):
        message = "The program has none of the operators that are to run elsewhere."
        hint = "Name operators that it has: on_device(operators=nn.dense)."
        raise EngineError("pass", message, operators, hint)
    places = {HOST: tvm.device(HOST, 0), device: tvm.device(device, 0)}

    def place(expr: Any) -> str:
        while isinstance(expr, relay.TupleGetItem):
            expr = expr.tuple_value
        return device if op_name(expr) in wanted else HOST

    def marked(before: Any, now: Any, reader: str) -> Any:
        """An operand, marked where its reader runs elsewhere; constants lie where they are read."""
        if isinstance(before, relay.Tuple):
            pairs = zip(before.fields, now.fields, strict=True)
            return relay.Tuple([marked(b, n, reader) for b, n in pairs], before.span)
        if isinstance(before, relay.Constant) or place(before) == reader:
            return now
        return relay.annotation.on_device(now, places[place(before)])

    def visit(call: Any, args: list[Any]) -> Any:
        here = place(call)
        fresh = [marked(b, n, here) for b, n in zip(call.args, args, strict=True)]
        same = all(a.same_as(b) for a, b in zip(args, fresh, strict=True))
        return None if same else with_children(call, [call.op, *fresh])

    main = program.main
    body = marked(main.body, rewrite_body(main.body, visit), HOST)
    return with_main(program, relay.Function(main.params, body, main.ret_type, [], main.attrs))


@listed("PlanDevices", "TVM", looking=True)
def plan_devices(
    program: RelayProgram, device: Literal["cuda", "opencl", "vulkan", "metal", "rocm"] = "cuda"
) -> RelayProgram:
    """Gives every value a device, and puts a copy wherever one goes from device to device. For
    looking, as on_device.

    What no mark says a place for lies on the CPU.

    Before: on_device marks stand in it, each read once.
    After: device_copy stands on every edge between devices.

    Args:
        device: The device beside the CPU.

    Raises:
        EngineError: kind "pass"; two readers share a mark, which ends TVM's process.
    """
    nodes = post_order(program.main)
    read = Counter(c.handle.value for e in nodes for c in children(e))
    shared = [e for e in nodes if op_name(e) == "on_device" and read[e.handle.value] > 1]
    if shared:
        message = "An on_device mark is read twice, which TVM's PlanDevices does not survive."
        hint = "Give each reader a mark of its own."
        raise EngineError("pass", message, op_name(shared[0].args[0]) or "on_device", hint)
    host = tvm.target.Target("llvm")
    targets = [tvm.target.Target(t, host=host) for t in ("llvm", _target(device))]
    fallback = {"relay.fallback_device_type": tvm.device(HOST, 0).device_type}
    with tvm.transform.PassContext(config=fallback) as context:
        config = tvm.target.make_compilation_config(context, targets)
        made = relay.transform.PlanDevices(config)(copied(program.mod))
        return with_origins(program, made)


def _target(device: str) -> str:
    # Without an architecture TVM looks for a GPU, and says so where there is none.
    return "cuda -arch=sm_80" if device == "cuda" else device
