"""A Relax function that can be profiled, kernel by kernel.

The virtual machine calls a function of ours around every call (`set_instrument`). Variables are
named after their nodes, and passes keep names up to FuseOps; members of its groups are found as the
same calls of the same values. If a step of this fails, no kernel is said to compute anything.
"""

import time
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir.instrument import pass_instrument

from relascope.engine.building.executables import tensor_of
from relascope.engine.building.options import BuildOptions, Function
from relascope.engine.measure.profile import LOST, See, Site, Tensors
from relascope.engine.relax.building import runtime
from relascope.engine.relax.draw.to_graph import counted_flops, tensor_types
from relascope.engine.relax.kernels.blas import symbol_of
from relascope.engine.relax.kernels.openblas import LIBRARY
from relascope.passes.relax.ir.rewrite import bindings, substituted

_NODE = "node_"


class Profiled:
    """See `engine.measure.profile.Profiled`."""

    memory_bytes: int | None = None  # the virtual machine makes room as it runs

    def __init__(self, profiled: Function, target: str) -> None:
        ids, function, mod = _numbered(profiled)
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
        wait = device.sync if device.type != "cpu" else _nothing
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
            split = len(tensors) - (counts[len(symbols)] if len(symbols) < len(counts) else 1)
            symbols.append(symbol)
            see(now - state[0], sum(t.nbytes for t in tensors[:split]), tensors[split:])

        machine = self._compiled.machine
        machine.set_instrument(around)
        try:
            self._compiled.run(values)
        finally:
            machine.set_instrument(_ignore)
        if not self.kernels:
            self.kernels = tuple(Site(s, ()) for s in symbols)
        elif tuple(symbols) != tuple(k.name for k in self.kernels):
            self.note, self._sites = LOST, []
            self.kernels = tuple(Site(s, ()) for s in symbols)


def kernels_of(function: Function) -> tuple[tuple[str, ...], ...] | None:
    """What FuseOps makes one kernel each of a function: ids of nodes; None where it is lost."""
    ids, _, mod = _numbered(function)
    t = relax.transform
    for step in (t.Normalize(), t.LegalizeOps(), t.AnnotateTIROpPattern()):
        mod = step(mod)
    groups = _groups(mod, t.FuseOps()(mod))
    if groups is None:
        return None
    return tuple(tuple(ids[k] for k in sorted(nodes)) for _, nodes in groups)


def _nothing() -> None:
    """There is nothing to wait for."""


def _ignore(*_: Any) -> None:
    """Nobody watches."""


@pass_instrument
class _Passes:
    """Keeps the module as it is before and after the passes that matter here."""

    def __init__(self) -> None:
        self.modules: dict[str, Any] = {}

    def run_before_pass(self, mod: Any, info: Any) -> None:
        self.modules.setdefault(f"before {info.name}", mod)

    def run_after_pass(self, mod: Any, info: Any) -> None:
        self.modules.setdefault(f"after {info.name}", mod)


def _numbered(profiled: Function) -> tuple[list[str], Any, Any]:
    """The ids of a graph's nodes; the function with variables named by their numbers; a module with
    it as "main"."""
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
"""Of each call of a kernel in order: its symbol, the numbers of its nodes, how many tensors it
writes."""


def _sites(modules: Mapping[str, Any]) -> _Sites | None:
    """The kernels of a function that was built, or None where the build is not understood."""
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
    # Reshapes that are only another view stop being kernels; every other binding stays in place.
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
    """By a kernel's symbol, the FLOPs that TVM counts in its loops, if it has any and calls no
    library."""
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
    """By kernel of "main", the numbers of its nodes. Both functions compute the same calls of the
    same values, the second in FuseOps' groups."""
    values = _Values()
    numbers: dict[int, frozenset[int]] = {}
    pending: set[int] = set()
    places: dict[tuple[Any, ...], deque[int]] = defaultdict(deque)
    tokens: dict[int, Any] = {
        p.__chandle__(): ("argument", i) for i, p in enumerate(before["main"].params)
    }
    for place, (variable, value) in enumerate(bindings(before["main"])):
        number = _number(variable)
        if isinstance(value, tvm.ir.Call):
            places[values.key(value, tokens)].append(place)
            numbers[place] = frozenset()
            tokens[variable.__chandle__()] = ("call", place)
            pending.add(place)
        else:
            tokens[variable.__chandle__()] = values.token(value, tokens)
        if number is not None:
            # What a pass bound on the way to a node stands right before it.
            for one in pending:
                numbers[one] = frozenset({number})
            pending.clear()
    found: list[tuple[str, frozenset[int]]] = []
    tokens = {p.__chandle__(): ("argument", i) for i, p in enumerate(after["main"].params)}
    for variable, value in bindings(after["main"]):
        group = _called(value, after)
        inner = dict(tokens)
        computed: set[int] = set()
        if group is None:
            steps: Sequence[tuple[Any, Any]] = [(variable, value)]
        else:
            for parameter, given in zip(group.params, value.args, strict=True):
                inner[parameter.__chandle__()] = values.token(given, tokens)
            steps = bindings(group)
        for name, step in steps:
            if isinstance(step, tvm.ir.Call):
                left = places.get(values.key(step, inner))
                if not left:
                    return None
                place = left.popleft()
                inner[name.__chandle__()] = ("call", place)
                computed |= numbers[place]
            else:
                inner[name.__chandle__()] = values.token(step, inner)
        result = variable if group is None else group.body.body
        tokens[variable.__chandle__()] = values.token(result, inner)
        symbol = _symbol(value)
        if symbol:
            found.append((symbol, frozenset(computed)))
    return found


def _called(value: Any, mod: Any) -> Any | None:
    """The group that a bound value calls, or None."""
    if isinstance(value, tvm.ir.Call) and isinstance(value.op, tvm.ir.GlobalVar):
        function = mod[value.op]
        return function if isinstance(function, relax.Function) else None
    return None


def _number(variable: Any) -> int | None:
    name = str(variable.name)
    digits = name.removeprefix(_NODE)
    return int(digits) if name.startswith(_NODE) and digits.isdigit() else None


class _Values:
    """Names values by how they are computed, the same in two functions.

    A call is known by its place in the first function, so names do not grow with the graph.
    """

    def key(self, call: Any, tokens: Mapping[int, Any]) -> tuple[Any, ...]:
        """What a call computes: equal keys are equal calls of equal values."""
        op = str(getattr(call.op, "name_hint", "") or getattr(call.op, "name", ""))
        return op, str(call.ty), tuple(self.token(a, tokens) for a in call.args)

    def token(self, expr: Any, tokens: Mapping[int, Any]) -> Any:
        """A value's name, given those of variables."""
        if isinstance(expr, tvm.ir.Var):
            return tokens[expr.__chandle__()]
        if isinstance(expr, tvm.ir.GlobalVar):
            return "function", str(expr.name_hint)
        if isinstance(expr, relax.Tuple):
            return "tuple", tuple(self.token(f, tokens) for f in expr.fields)
        if isinstance(expr, relax.TupleGetItem):
            source = self.token(expr.tuple_value, tokens)
            if source[0] == "tuple":
                return source[1][int(expr.index)]
            return "item", source, int(expr.index)
        return "other", int(tvm_ffi.structural_hash(expr))
