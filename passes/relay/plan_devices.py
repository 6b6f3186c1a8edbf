"""Copies between devices."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import tvm
from tvm import relay

from relascope.core.errors import EngineError
from relascope.passes.catalogue.entry import listed
from relascope.passes.relay.builtin import applied
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import children, op_name, post_order
from relascope.passes.relay.on_device import HOST


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
        raise EngineError(
            "pass",
            "An on_device mark is read twice, which TVM's PlanDevices does not survive.",
            op_name(shared[0].args[0]) or "on_device",
            "Give each reader a mark of its own.",
        )
    host = tvm.target.Target("llvm")
    targets = [tvm.target.Target(t, host=host) for t in ("llvm", _target(device))]
    fallback = {"relay.fallback_device_type": tvm.device(HOST, 0).device_type}
    with tvm.transform.PassContext(config=fallback) as context:
        config = tvm.target.make_compilation_config(context, targets)
        return applied(program, relay.transform.PlanDevices(config))


def _target(device: str) -> str:
    # Without an architecture TVM looks for a GPU, and says so where there is none.
    return "cuda -arch=sm_80" if device == "cuda" else device
