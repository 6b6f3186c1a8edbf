"""A Relax function that can be profiled, kernel by kernel.

The virtual machine calls a function of ours around every call (`set_instrument`). Variables are
named after their nodes, and passes up to FuseOps keep names. A second run of FuseOps, on calls of
distinct functions, shows the members of its groups. If a step of this fails, kernels have no nodes.
"""

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import tvm
from tvm import relax
from tvm.ir.instrument import pass_instrument

from relascope.engine.building.executables import tensor_of
from relascope.engine.building.options import BuildOptions, Function
from relascope.engine.measure.profile import LOST, See, Site, Tensors
from relascope.engine.relax.building import runtime
from relascope.engine.relax.draw.to_graph import counted_flops, tensor_types
from relascope.engine.relax.kernels.blas import symbol_of
from relascope.engine.relax.kernels.openblas import LIBRARY
from relascope.passes.relax.channels_last import FIRST, TURNED
from relascope.passes.relax.ir.rewrite import bindings, substituted

_NODE, _PLACE = "node_", "place_"
_NODES = re.compile(rf"{_NODE}(\d+)")


class Profiled:
    """See `engine.measure.profile.Profiled`."""

    memory_bytes: int | None = None  # the virtual machine allocates as it runs

    def __init__(self, profiled: Function, target: str) -> None:
        ids, function, mod = _numbered(profiled)
        self._types = {i: tensor_types(e.ty) for i, e in profiled.exprs.items()}
        seen = _Passes()
        executable = runtime.make(mod, BuildOptions(target), [seen])
        self._compiled = runtime.Compiled(executable, target, function)
        sites = _sites(seen.modules)
        self.note = "" if sites is not None else LOST
        self._sites = sites or []
        counted = _counted(seen.modules) if self._sites else {}
        self.kernels = tuple(
            Site(symbol, tuple(ids[k] for k in sorted(nodes)), counted.get(symbol))
            for symbol, nodes, _ in self._sites
        )

    def watch(self, values: Tensors, see: See) -> None:
        device = self._compiled.device
        wait = device.sync if device.type != "cpu" else lambda: None
        state = [0.0]
        symbols: list[str] = []
        counts = [written for _, _, written in self._sites]

        def around(callee: Any, symbol: str, before: bool, result: Any, *args: Any) -> None:
            now = time.perf_counter()
            if symbol.startswith("vm.builtin."):
                return
            if before:
                wait()
                state[0] = time.perf_counter()
                return
            if device.type != "cpu":
                wait()
                now = time.perf_counter()
            tensors = [tensor_of(a) for a in args if isinstance(a, tvm.runtime.Tensor)]
            place = len(symbols)
            split = len(tensors) - (counts[place] if place < len(counts) else 1)
            symbols.append(symbol)
            nodes = self.kernels[place].nodes if place < len(self.kernels) else ()
            wrote = [self._channels_first(t, nodes) for t in tensors[split:]]
            see(now - state[0], sum(t.nbytes for t in tensors[:split]), wrote)

        with self._compiled.on_another_machine() as machine:
            machine.set_instrument(around)
            self._compiled.run(values)
        if not self.kernels:
            self.kernels = tuple(Site(s, ()) for s in symbols)
        elif tuple(symbols) != tuple(k.name for k in self.kernels):
            self.note, self._sites = LOST, []
            self.kernels = tuple(Site(s, ()) for s in symbols)

    def _channels_first(self, tensor: torch.Tensor, nodes: Sequence[str]) -> torch.Tensor:
        """What a kernel wrote, with axes in the order of one of its nodes."""
        shapes = {t.shape for node in nodes for t in self._types[node]}
        turned = tensor.permute(FIRST) if tensor.ndim == 4 else tensor
        as_it_is = tuple(tensor.shape) in shapes or tuple(turned.shape) not in shapes
        return tensor if as_it_is else turned


def kernels_of(function: Function) -> tuple[tuple[str, ...], ...] | None:
    """The ids of the nodes in each kernel that FuseOps makes of a function; None if unknown."""
    ids, _, mod = _numbered(function)
    t = relax.transform
    for step in (t.Normalize(), t.LegalizeOps(), t.AnnotateTIROpPattern()):
        mod = step(mod)
    groups = _groups(mod, t.FuseOps()(mod))
    if groups is None:
        return None
    return tuple(tuple(ids[k] for k in sorted(nodes)) for _, nodes in groups)


@pass_instrument
class _Passes:
    """Keeps the module before and after each pass."""

    def __init__(self) -> None:
        self.modules: dict[str, Any] = {}

    def run_before_pass(self, mod: Any, info: Any) -> None:
        self.modules.setdefault(f"before {info.name}", mod)

    def run_after_pass(self, mod: Any, info: Any) -> None:
        self.modules.setdefault(f"after {info.name}", mod)


def _numbered(profiled: Function) -> tuple[list[str], Any, Any]:
    """The ids of a graph's nodes, the function with variables named by their numbers, and a module
    with it as "main"."""
    ids = [i for i, e in profiled.exprs.items() if isinstance(e, tvm.ir.Var)]
    names = {profiled.exprs[i].__chandle__(): f"{_NODE}{k}" for k, i in enumerate(ids)}
    function = profiled.program.mod[profiled.name]
    instead: dict[int, Any] = {}
    blocks = []
    for block in function.body.blocks:
        made = []
        for binding in block.bindings:
            old = binding.var
            new = type(old)(names.get(old.__chandle__(), "other"), old.ty)
            made.append(relax.VarBinding(new, substituted(binding.value, instead)))
            instead[old.__chandle__()] = new
        blocks.append(type(block)(made))
    body = relax.SeqExpr(blocks, substituted(function.body.body, instead))
    about = function.ret_ty, function.is_pure, function.attrs
    named = relax.Function(list(function.params), body, *about)
    return ids, named, runtime.module_of(profiled.program, profiled.name, named)


_Sites = list[tuple[str, frozenset[int], int]]
"""For each kernel call in order: its symbol, the numbers of its nodes, how many tensors it
writes."""


def _sites(modules: Mapping[str, Any]) -> _Sites | None:
    """The kernels of a function that was built; None if they cannot be matched."""
    fusing, views = ("before FuseOps", "after FuseOps", "after FuseTIR"), "RewriteDataflowReshape"
    wanted = (*fusing, f"before {views}", f"after {views}")
    if not modules.keys() >= {*wanted}:
        return None
    before, fused, lowered, plain, reshaped = (modules[w] for w in wanted)
    groups = _groups(before, fused)
    if groups is None:
        return None
    calls = [symbol for symbol, _ in _calls(lowered)]
    if calls != [symbol for symbol, _ in groups] or calls != [s for s, _ in _calls(plain)]:
        return None
    # Reshapes that are only views stop being kernels; every other binding stays in place.
    kept = [_symbol(value) for _, value in bindings(reshaped["main"])]
    found: _Sites = []
    position = 0
    for index, (_, value) in enumerate(bindings(plain["main"])):
        symbol = _symbol(value)
        if not symbol:
            continue
        if index >= len(kept) or kept[index] not in (symbol, ""):
            return None
        if kept[index]:
            found.append((symbol, groups[position][1], len(tensor_types(value.ty))))
        position += 1
    return found


def _counted(modules: Mapping[str, Any]) -> dict[str, int]:
    """The FLOPs that TVM counts in a kernel's loops, by its symbol; only kernels with loops that
    call no library."""
    functions = modules["before RewriteDataflowReshape"].functions
    loops = {v: f for v, f in functions.items() if isinstance(f, tvm.tirx.PrimFunc)}
    own = {v: f for v, f in loops.items() if LIBRARY not in f.attrs}
    found = {str(v.name_hint): counted_flops(f) for v, f in own.items()}
    return {name: flops for name, flops in found.items() if flops is not None}


def _symbol(value: Any) -> str:
    called = isinstance(value, tvm.ir.Call) and isinstance(value.op, tvm.ir.GlobalVar)
    return str(value.op.name_hint) if called else symbol_of(value)


def _calls(mod: Any) -> list[tuple[str, Any]]:
    found = [(_symbol(value), value) for _, value in bindings(mod["main"])]
    return [(symbol, value) for symbol, value in found if symbol]


def _groups(before: Any, after: Any) -> list[tuple[str, frozenset[int]]] | None:
    """The numbers of the nodes of each kernel of "main"; None if FuseOps makes other kernels when
    it runs again on the same module."""
    again = relax.transform.FuseOps()(_apart(before))
    numbers: dict[int, frozenset[int]] = {}
    pending: list[int] = []
    for place, (variable, value) in enumerate(bindings(before["main"])):
        if isinstance(value, tvm.ir.Call):
            numbers[place] = frozenset()
            if not str(variable.name).startswith(TURNED):  # a node only reads it
                pending.append(place)
        if node := _NODES.fullmatch(str(variable.name)):
            # What a pass bound for a node comes right before it.
            numbers |= dict.fromkeys(pending, frozenset({int(node[1])}))
            pending.clear()
    found: list[tuple[str, frozenset[int]]] = []
    calls, others = _calls(after), _calls(again)
    if len(calls) != len(others):
        return None
    for (symbol, _), (own, value) in zip(calls, others, strict=True):
        group = again[value.op] if isinstance(value.op, tvm.ir.GlobalVar) else None
        steps = bindings(group) if isinstance(group, relax.Function) else []
        inside = [_symbol(step) for _, step in steps] if steps else [own]
        places = [int(name.removeprefix(_PLACE)) for name in inside if name]
        found.append((symbol, frozenset().union(*(numbers[place] for place in places))))
    return found


def _apart(mod: Any) -> Any:
    """A module in which each call of "main" has its own function, named by its place."""
    main, builder, bound = mod["main"], relax.BlockBuilder(mod), []
    for place, (variable, value) in enumerate(bindings(main)):
        if symbol_of(value):
            (callee, *rest), name = value.args, f"{_PLACE}{place}"
            if isinstance(callee, tvm.ir.GlobalVar):
                callee = builder.add_func(mod[callee].with_attr(_PLACE, place), name)
            else:
                callee = relax.ExternFunc(name)
            value = tvm.ir.Call(value.op, [callee, *rest], value.attrs, value.ty_args)
        bound.append(relax.VarBinding(variable, value))
    body = relax.SeqExpr([relax.DataflowBlock(bound)], main.body.body)
    made = relax.Function(main.params, body, main.ret_ty, main.is_pure, main.attrs)
    functions = {**builder.get().functions, mod.get_global_var("main"): made}
    return relax.transform.Normalize()(tvm.IRModule(functions))
