"""A Relay function that can be profiled, kernel by kernel.

TVM's debugging executor runs the graph executor's kernels one at a time. Each call's span is its
node's number. Up to FuseOps, every pass of `relay.build` keeps spans except ToBasicBlockNormalForm,
which is left out here: without control flow it changes nothing. The kernels are compared with the
ordinary build's.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
import tvm
from tvm import relay
from tvm.ir.instrument import pass_instrument

from relascope.engine.building.options import BuildOptions, Function
from relascope.engine.measure.profile import LOST, See, Site, Tensors
from relascope.engine.relay.building import runtime
from relascope.engine.relay.building.storages import entry_bytes
from relascope.engine.relay.building.templates import groups
from relascope.passes.relay.builtin import fuse
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import post_order, rewrite_body
from relascope.passes.relay.ir.spans import key

_DROPS_SPANS = "ToBasicBlockNormalForm"
_VIEW = "__nop"


class Profiled:
    """See `engine.measure.profile.Profiled`; `groups` has FuseOps' call of each kernel."""

    def __init__(self, profiled: Function, target: str) -> None:
        ids, program, options = list(profiled.exprs), _numbered(profiled), BuildOptions(target)
        function = program.main
        seen = _Passes()
        looked = replace(options, disabled=(*options.disabled, _DROPS_SPANS))
        library = runtime.make(runtime.prepared(program, function, options), looked, [seen])
        layout = json.loads(library.get_graph_json())
        self._nodes = layout["nodes"]
        self._entries = layout["node_row_ptr"]
        self._sizes = entry_bytes(layout)
        self._device = tvm.device(str(runtime.parse(options.target).kind), 0)
        self._module = library["debug_create"]("default", self._device)
        self._arguments = [p.name_hint for p in function.params]
        names = _names(self._nodes)
        self._kernels = [i for i, name in names.items() if name != _VIEW]
        known = _groups(seen.modules, self._nodes)
        self.groups = None if known is None else [known[i] for i in self._kernels]
        ordinary = runtime.library(program, options)
        built = runtime.Compiled(ordinary, target, function)
        self.memory_bytes: int | None = built.storages.nbytes + built.result_bytes
        self.note = "" if known is not None else LOST
        plain = json.loads(ordinary.get_graph_json())["nodes"]
        if list(_names(plain).values()) != list(names.values()):
            self.note = (
                "TVM built different kernels for profiling, so these times are not those of the "
                "program that is timed from end to end."
            )
        inside = {i: sorted(_inside(known[i].op.body)) if known else [] for i in self._kernels}
        self.kernels = tuple(
            Site(names[i].removeprefix("tvmgen_default_"), tuple(ids[k] for k in numbers))
            for i, numbers in inside.items()
        )

    def watch(self, values: Tensors, see: See) -> None:
        known = {n["name"] for n in self._nodes if n["op"] == "null"}
        for name in self._arguments:
            if name in known:
                array = runtime.as_array(values[name].detach().contiguous(), self._device)
                self._module["set_input"](name, array)
        execute, kernels = self._module["execute_node"], set(self._kernels)
        for index, node in enumerate(self._nodes):
            self._device.sync()
            began = time.perf_counter()
            execute(index)
            self._device.sync()
            seconds = time.perf_counter() - began
            if index in kernels:
                read = sum(self._sizes[self._entries[i] + k] for i, k, *_ in node["inputs"])
                count = int(node["attrs"]["num_outputs"])
                see(seconds, read, [self._tensor(index, k) for k in range(count)])

    def _tensor(self, node: int, output: int) -> torch.Tensor:
        return runtime.as_tensor(self._module["get_node_output"](node, output))


def kernels_of(function: Function) -> tuple[tuple[str, ...], ...]:
    """The ids of the nodes in each kernel that FuseOps makes of a function."""
    ids, calls = list(function.exprs), groups(fuse(_numbered(function)).main)
    return tuple(tuple(ids[k] for k in sorted(_inside(c.op.body))) for c in calls)


def _inside(body: Any) -> set[int]:
    found: set[int] = set()

    def number(expr: Any) -> None:
        if isinstance(expr, relay.Call) and key(expr).isdigit():
            found.add(int(key(expr)))

    relay.analysis.post_order_visit(body, number)
    return found


def _names(nodes: list[Any]) -> dict[int, str]:
    """The name of the kernel that each of the executor's nodes runs."""
    return {i: str(n["attrs"]["func_name"]) for i, n in enumerate(nodes) if n["op"] == "tvm_op"}


def _numbered(profiled: Function) -> RelayProgram:
    """A program whose "main" is the function, with each call's place in the graph as its only
    origin."""
    numbers = {e.handle.value: k for k, e in enumerate(profiled.exprs.values())}
    function = profiled.program.mod[profiled.name]

    def spanned(call: Any, args: list[Any]) -> Any:
        number = numbers.get(call.handle.value)
        span = None
        if number is not None:
            span = tvm.ir.Span(tvm.ir.SourceName(str(number)), 0, 0, 0, 0)
        return relay.Call(call.op, args, call.attrs, call.type_args, span)

    body = rewrite_body(function.body, spanned)
    mod = tvm.IRModule({"main": relay.Function(function.params, body, None, [], function.attrs)})
    return replace(profiled.program, mod=relay.transform.InferType()(mod))


@pass_instrument
class _Passes:
    def __init__(self) -> None:
        self.modules: dict[str, Any] = {}

    def run_after_pass(self, mod: Any, info: Any) -> None:
        if info.name in ("FuseOps", "LowerTE"):
            self.modules[info.name] = mod


def _groups(modules: Mapping[str, Any], nodes: list[Any]) -> dict[int, Any] | None:
    """The call that FuseOps made for each of the executor's nodes; None if they do not match. Nodes
    and calls come in the same order, producers first."""
    if "FuseOps" not in modules or "LowerTE" not in modules:
        return None
    fused = groups(modules["FuseOps"]["main"])
    lowered = [e for e in post_order(modules["LowerTE"]["main"]) if isinstance(e, relay.Call)]
    run = _names(nodes)
    if not len(fused) == len(lowered) == len(run):
        return None
    found: dict[int, Any] = {}
    for group, call, (index, name) in zip(fused, lowered, run.items(), strict=True):
        if str(group.checked_type) != str(call.checked_type):
            return None
        if name not in (_VIEW, str(call.args[0].name_hint)):
            return None
        found[index] = group
    return found
