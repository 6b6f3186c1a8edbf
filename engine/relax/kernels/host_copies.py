"""Copies of captures to the host and back. On the CPU the host is simulated: memory of TVM's own,
beside that which counts as the device's."""

from typing import Any

import tvm

from relascope.passes.cuts.split_program import FROM_HOST, TO_HOST


def register() -> None:
    """Let programs that were split with captures on the host find the copies."""
    tvm.register_global_func(TO_HOST, _to_host, override=True)
    tvm.register_global_func(FROM_HOST, _from_host, override=True)


def _to_host(tensor: Any) -> Any:
    return tensor.copyto(tvm.cpu())


def _from_host(tensor: Any, out: Any) -> None:
    tensor.copyto(out)
