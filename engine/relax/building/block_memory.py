"""The memory of a Relax function with one block and static shapes: the order of its kernels, and
arguments that it gives up after their last reader.

Each tensor has memory from the kernel that writes it to its last reader. TVM's allocator keeps the
memory for the next tensor of that size. All other functions use TVM's own plan, whose storages live
longer; one storage for everything between kernels would exist beside all results and captures.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import relax

from relascope.engine.relax.building.in_place import overwritable
from relascope.engine.relax.draw.to_graph import tensor_types
from relascope.passes.cuts.split_program import TO_HOST
from relascope.passes.kernel_memory import KernelLives
from relascope.passes.relax.ir.rewrite import everything, op_name

SPENT = "relascope.spent"
"""The attribute of a function with such a plan: names of the parameters that it takes out of one
array, its last argument, so that their memory is freed after their last reader, unless somebody
else holds it."""
RETURNED = "relascope_returned"
"""A function of such a module that returns the places in that array of what may be returned."""
_MAKE = frozenset({"call_tir", "call_dps_packed", "builtin.alloc_tensor"})
_UNORDERED = frozenset({"call_tir_inplace", "call_inplace_packed"})


def spending(function: Any, spent: Sequence[str]) -> Any:
    """A function with the attribute, if its memory can be planned so."""
    found = everything(function)
    (*more, block) = list(function.body.blocks) or [None]
    plain = not more and isinstance(block, relax.DataflowBlock)
    if not plain or any(op_name(e) in _UNORDERED or isinstance(e, relax.If) for e in found):
        return function
    kinds = [p.ty for p in function.params] + [b.var.ty for b in block.bindings]
    tensors = list(map(tensor_types, kinds))
    if not all(tensors) or any(t.bytes is None for these in tensors for t in these):
        return function
    return function.with_attr(SPENT, list(spent))


def spent_by(function: Any) -> tuple[str, ...] | None:
    """Names of the parameters; None if TVM plans its memory."""
    attrs = dict(function.attrs or {})
    return tuple(map(str, attrs[SPENT])) if SPENT in attrs else None


def _nbytes(kind: Any) -> int:
    return sum(t.bytes or 0 for t in tensor_types(kind))


class _Block:
    """The bindings of a function with one block, and the storages of each variable. A storage is
    named by the index of the binding that makes it, that of argument k by -1 - k."""

    def __init__(self, function: Any) -> None:
        self.bindings = [b for block in function.body.blocks for b in block.bindings]
        self.of = {p.__chandle__(): {-1 - k} for k, p in enumerate(function.params)}
        self.sizes = {-1 - k: _nbytes(p.ty) for k, p in enumerate(function.params)}
        self.read: dict[int, set[int]] = {}
        self.sources: dict[int, set[int]] = {}
        at: dict[int, int] = {}
        for index, binding in enumerate(self.bindings):
            variables = [v.__chandle__() for v in relax.analysis.free_vars(binding.value)]
            self.sources[index] = {at[v] for v in variables if v in at}
            read = set[int]().union(*(self.of.get(v, ()) for v in variables))
            self.read[index], own = read, set[int]()
            if op_name(binding.value) in _MAKE:
                own, self.sizes[index] = {index}, _nbytes(binding.var.ty)
            elif _is_copy_out(binding.value):
                own, self.sizes[index] = {index}, 0
            # Whatever else a runtime function returns may be a view of what it reads.
            name = binding.var.__chandle__()
            self.of[name], at[name] = own or read, index
        returned = (v.__chandle__() for v in relax.analysis.free_vars(function.body.body))
        self.kept = set[int]().union(*(self.of.get(v, ()) for v in returned))

    def over(self, functions: Mapping[Any, Any]) -> dict[int, dict[int, Any]]:
        """By the place of each kernel's call the storages that it may write its result over, and
        the argument in each."""
        found: dict[int, dict[int, Any]] = {}
        for index, binding in enumerate(self.bindings):
            kernel, args = _kernel(functions, binding)
            places = overwritable(kernel) if kernel is not None else ()
            held = [self.of.get(a.__chandle__(), set()) for a in args]
            for place in places:
                its, kinds = held[place], [t for p in (place, -1) for t in tensor_types(args[p].ty)]
                alone = len(its) == 1 and all(p in places for p, of in enumerate(held) if of & its)
                same = {t.bytes for t in kinds} == {self.sizes.get(s) for s in its if s >= 0}
                if alone and same and len({t.dtype for t in kinds}) == 1:
                    found.setdefault(index, {}).update(dict.fromkeys(its, args[place]))
        return found


def _kernel(functions: Mapping[Any, Any], binding: Any) -> tuple[Any, Sequence[Any]]:
    """The kernel that is called, or None, and its arguments with the result as the last."""
    value = binding.value
    args: Sequence[Any] = getattr(value, "args", ())
    callee = getattr(value, "op", None)
    if op_name(value) == "call_tir":
        callee, args = args[0], [*args[1].fields, binding.var]
    kernel = functions[callee] if isinstance(callee, tvm.ir.GlobalVar) else None
    return (kernel, args) if isinstance(kernel, tvm.tirx.PrimFunc) else (None, ())


def _is_copy_out(value: Any) -> bool:
    """Whether a result is in memory of the host."""
    callee = value.args[0] if op_name(value) == "call_pure_packed" else getattr(value, "op", None)
    return isinstance(callee, relax.ExternFunc) and str(callee.global_symbol) == TO_HOST


def _with(function: Any, params: Sequence[Any], block: Any) -> Any:
    body = relax.SeqExpr([block], function.body.body)
    about = function.ret_ty, function.is_pure, function.attrs
    return relax.Function(list(params), body, *about)


@tvm.transform.module_pass(opt_level=0, name="relascope.best_order")
def least_memory(mod: Any, context: Any) -> Any:
    """Order the kernels of "main" to hold the least memory, while they are pure and fused."""
    main, spent = mod["main"], spent_by(mod["main"])
    if spent is None or len(main.body.blocks) > 1:
        return mod
    block = _Block(main)
    given = {-1 - k for k, p in enumerate(main.params) if str(p.name) in spent}
    sizes = {s: size if s in given or s >= 0 else 0 for s, size in block.sizes.items()}
    order = range(len(block.bindings))
    made = {index: {index} & block.sizes.keys() for index in order}
    held = block.sources, block.read, made, sizes, block.kept, given, block.over(mod.functions)
    bindings = [block.bindings[index] for index in KernelLives(order, *held).best_order]
    mod = _with_main(mod, _with(main, main.params, relax.DataflowBlock(bindings)))
    return relax.transform.Normalize()(mod)


@tvm.transform.module_pass(opt_level=0, name="relascope.plan_memory")
def plan_memory(mod: Any, context: Any) -> Any:
    """Make "main" give up its `SPENT` arguments; modules without them get TVM's plan."""
    main, spent = mod["main"], spent_by(mod["main"])
    if spent is None:
        return relax.transform.StaticPlanBlockMemory()(mod)
    block, array = _Block(main), relax.Var("spent", relax.AnyType())
    places = {name: place for place, name in enumerate(spent)}
    names = [str(p.name) for p in main.params]
    returned = [places[n] for k, n in enumerate(names) if n in places and -1 - k in block.kept]
    first = {p.__chandle__() for p in main.params if str(p.name) in places}
    bindings = []

    def take(expr: Any) -> None:
        for variable in relax.analysis.free_vars(expr):
            if variable.__chandle__() in first:
                first.remove(variable.__chandle__())
                given = array, tvm.tirx.const(places[str(variable.name)], "int64")
                bindings.append(_packed(variable, "tuple_getitem", given))
                bindings.append(_packed(_nothing(), "tuple_reset_item", given))

    last = {storage: index for index, read in block.read.items() for storage in read}
    again: dict[int, Any] = {}  # by the place of the binding that makes a result its memory
    for index, those in block.over(mod.functions).items():
        made = block.of[block.bindings[index].value.args[-1].__chandle__()]
        free = [a for s, a in those.items() if last[s] == index and s not in block.kept]
        again |= dict.fromkeys(made, free[0]) if free else {}
    for index, binding in enumerate(block.bindings):
        take(binding.value)
        if index in again:
            given, shape = again[index], binding.value.args[0]
            same = tensor_types(given.ty) == tensor_types(binding.var.ty)
            binding = (
                relax.VarBinding(binding.var, given)
                if same
                else _packed(binding.var, "reshape", (given, shape))
            )
        if op_name(binding.value) == "reshape":
            # TVM frees what a function of the machine returns, but not an operator's view.
            binding = _packed(binding.var, "reshape", binding.value.args)
        bindings.append(binding)
    take(main.body.body)
    params = [p for p in main.params if str(p.name) not in places] + [array] * bool(spent)
    mod = _with_main(mod, _with(main, params, relax.BindingBlock(bindings)))
    mod[RETURNED] = relax.Function([], relax.ShapeExpr(returned), is_pure=True)
    return relax.transform.Normalize()(mod)


def _nothing() -> Any:
    return relax.Var("_", relax.TupleType([]))


def _packed(variable: Any, name: str, args: Sequence[Any]) -> Any:
    """A variable bound to the result of a function of the machine."""
    callee = relax.ExternFunc(f"vm.builtin.{name}")
    return relax.VarBinding(variable, tvm.ir.Call(callee, list(args), None, [variable.ty]))


def _with_main(mod: Any, main: Any) -> Any:
    made = tvm.IRModule(dict(mod.functions.items()), attrs=mod.attrs)
    made.update_func(made.get_global_var("main"), main)
    return made
