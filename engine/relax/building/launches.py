"""What Relax's TVM launches on a GPU; see `engine.building.launches`."""

import math
from collections.abc import Iterator
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from relascope.engine.building.launches import Launches
from relascope.engine.relax.kernels.gpu_schedules import RULE


def launches() -> Launches:
    """What watches a build."""
    return Launches(_extents, _shared, _rule)


def _extents(function: Any) -> dict[str, int]:
    found: dict[str, int] = {}

    def see(node: Any) -> None:
        if node.attr_key == "thread_extent" and isinstance(node.value, tirx.IntImm):
            found[str(node.node.thread_tag)] = int(node.value)

    if isinstance(function, tirx.PrimFunc):
        tvm_ffi.structural_walk(function.body, [(tirx.AttrStmt, see)], order="post")
    return found


def _shared(function: Any) -> Iterator[int]:
    buffers: list[Any] = []

    def see(node: Any) -> None:
        if str(node.buffer.scope()).startswith("shared"):
            buffers.append(node.buffer)

    tvm_ffi.structural_walk(function.body, [(tirx.AllocBuffer, see)], order="post")
    for buffer in buffers:
        kind = tvm.DataType(str(buffer.dtype))
        yield math.prod(int(d) for d in buffer.shape) * kind.bits * kind.lanes // 8


def _rule(function: Any) -> str:
    rule = function.attrs.get(RULE)
    return "" if rule is None else f"DLight's {rule}"
