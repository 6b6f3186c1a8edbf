"""Marks that say which operators run on another device."""

from __future__ import annotations

from typing import Any, Literal

import tvm
from tvm import relax
from tvm.relax.global_info import VDevice

from relascope.core.errors import EngineError
from relascope.passes.catalogue.entry import listed
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.ir.rewrite import Maker, bindings, op_name, rewrite, with_args

HOST = "cpu"


@listed("hint_on_device marks", "ours, for RealizeVDevice", looking=True)
def on_device(
    program: RelaxProgram,
    operators: str = "matmul nn.conv2d",
    device: Literal["cuda", "opencl", "vulkan", "metal", "rocm"] = "cuda",
) -> RelaxProgram:
    """Marks, wherever a value goes from one device to another, both. For looking: relascope builds
    for one device.

    What is not named runs on the CPU, where the arguments lie; results stay where they are
    computed, and constants lie where they are read. The module names both devices.

    Before: It has one of the operators named.
    After: Two hint_on_device stand on every edge between devices; the module names both.

    Args:
        operators: Those that run on the device, with blanks between.
        device: The device beside the CPU.

    Raises:
        EngineError: kind "pass"; the program has none of these operators.
    """
    wanted = set(operators.split())
    if not any(op_name(value) in wanted for _, value in bindings(program.main)):
        message = "The program has none of the operators that are to run elsewhere."
        hint = "Name operators that it has: on_device(operators=matmul)."
        raise EngineError("pass", message, operators, hint)
    places = {HOST: tvm.device(HOST, 0), device: tvm.device(device, 0)}
    known: dict[tuple[int, str], Any] = {}  # marked values, by variable and where they go

    def marked(operand: Any, here: str, maker: Maker) -> Any:
        if isinstance(operand, relax.Tuple):
            return relax.Tuple([marked(f, here, maker) for f in operand.fields])
        if not isinstance(operand, tvm.ir.Var):
            return operand
        value = maker.look(operand)
        while isinstance(value, relax.TupleGetItem):
            value = maker.look(value.tuple_value)
        there = device if op_name(value) in wanted else HOST
        if there == here:
            return operand
        key = operand.__chandle__(), here
        if key not in known:
            left = maker.emit(relax.op.hint_on_device(operand, places[there]))
            known[key] = maker.emit(relax.op.hint_on_device(left, places[here]))
        return known[key]

    def rule(call: Any, maker: Maker) -> Any:
        here = device if op_name(call) in wanted else HOST
        made = with_args(call, [marked(a, here, maker) for a in call.args])
        return None if made.same_as(call) else made

    made = rewrite(program, rule)
    made.mod.update_global_info("vdevice", [_virtual("llvm"), _virtual(device)])
    return made


def _virtual(kind: str) -> VDevice:
    # Without an architecture TVM looks for a GPU, and says so where there is none.
    target = {"kind": kind, "arch": "sm_80"} if kind == "cuda" else {"kind": kind}
    return VDevice(target, 0, "global")
