"""Kernels that may write their result over an argument: element by element, in its place."""

import json
from collections.abc import Mapping
from itertools import chain
from typing import Any

import tvm

from relascope.passes.relay.ir.rewrite import children, everything, op_name, shape

_ATTRIBUTE = "overwritable"
_BROADCAST = 1  # the last of TVM's patterns for fusion by which elements keep their places
_RESHAPES = ("reshape", "expand_dims", "squeeze")


def noted(built: Any) -> Any:
    """A library for the graph executor, with each kernel's `overwritable` inputs in its plan."""
    layout, known = json.loads(built.get_graph_json()), built.function_metadata
    for node in layout["nodes"]:
        name = node.get("attrs", {}).get("func_name")
        for function in known[name].relay_primfuncs.values() if name in known else ():
            node["attrs"][_ATTRIBUTE] = " ".join(map(str, sorted(_overwritable(function))))
    built.graph_json = json.dumps(layout)
    about = built.graph_json, built.lib, built.libmod_name, *chain(*built.params.items())
    built.module = tvm.get_global_func("tvm.graph_executor_factory.create")(*about)
    return built


def overwritable(node: Mapping[str, Any]) -> list[int]:
    """Places of the inputs of a plan's node over which its kernel may write its one result, if they
    have as many bytes: no element that it writes depends on another of theirs, however its loops
    are scheduled."""
    return [*map(int, node.get("attrs", {}).get(_ATTRIBUTE, "").split())]


def _overwritable(function: Any) -> set[int]:
    depend = {p.handle.value: {place} for place, p in enumerate(function.params)}
    moved: set[int] = set()
    for expr in everything(function.body):
        read = depend.setdefault(expr.handle.value, set())
        for part in children(expr):
            if mine := depend[part.handle.value]:
                read |= mine
                moved |= set() if _keeps_places(expr, part) else mine
    return depend[function.body.handle.value] - moved


def _keeps_places(call: Any, argument: Any) -> bool:
    """Whether each element of a call's result depends on that of an argument in its place only."""
    name = op_name(call)
    if not name or not all(isinstance(e.checked_type, tvm.ir.TensorType) for e in (call, argument)):
        return False
    by_element = call.op.get_attr("TOpPattern") <= _BROADCAST and shape(argument) == shape(call)
    return name in _RESHAPES or by_element
