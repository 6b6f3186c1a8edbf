"""Copies of captures to the host and back.

A GPU's captures wait in pinned memory of PyTorch's, and its stream copies them. On the CPU the host
is simulated: memory of TVM's own, beside the device's."""

from typing import Any

import torch
import tvm

from relascope.engine.building.executables import tensor_of
from relascope.passes.cuts.split_program import FROM_HOST, TO_HOST


def register() -> None:
    """Let programs that were split with captures on the host find the copies."""
    tvm.register_global_func(TO_HOST, _to_host, override=True)
    tvm.register_global_func(FROM_HOST, _from_host, override=True)


def _to_host(tensor: Any) -> Any:
    if tensor.device.type == "cpu":
        return tensor.copyto(tvm.cpu())
    value = tensor_of(tensor)
    pinned = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
    return tvm.runtime.from_dlpack(pinned.copy_(value, non_blocking=True))


def _from_host(tensor: Any, out: Any) -> None:
    tensor_of(out).copy_(tensor_of(tensor), non_blocking=True)
