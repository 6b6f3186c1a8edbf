"""What Relay's TVM launches on a GPU; see `engine.building.launches`."""

import math
from collections.abc import Iterator
from typing import Any

from relascope.engine.building.launches import Launches
from relascope.engine.relay.tvm.boot import boot

boot()

import tvm
from tvm import tir


def launches() -> Launches:
    """What watches a build."""
    return Launches(_extents, _shared)


def _extents(function: Any) -> dict[str, int]:
    found: dict[str, int] = {}

    def see(node: Any) -> None:
        if isinstance(node, tir.AttrStmt) and node.attr_key == "thread_extent":
            found[str(node.node.thread_tag)] = int(node.value)

    if isinstance(function, tir.PrimFunc):
        tir.stmt_functor.post_order_visit(function.body, see)
    return found


def _shared(function: Any) -> Iterator[int]:
    allocated: list[Any] = []

    def see(node: Any) -> None:
        if isinstance(node, tir.Allocate):
            allocated.append(node)

    tir.stmt_functor.post_order_visit(function.body, see)
    for node in allocated:
        if not str(node.buffer_var.type_annotation.storage_scope).startswith("shared"):
            continue
        kind = tvm.DataType(node.dtype)
        yield math.prod(int(d) for d in node.extents) * kind.bits * kind.lanes // 8
