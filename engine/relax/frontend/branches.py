"""The value that decides each `if` of a module, and the module with chosen sides forced."""

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from relascope.engine.protocol.results import Branches
from relascope.engine.server.program_model import calling_themselves
from relascope.passes.relax.ir.rewrite import everything


def branches_of(mod: Any) -> tuple[Branches, dict[int, str]]:
    """The value that decides each `if` of a module; and the names of the computed values, by the
    handles of those `if`s that can be forced."""
    arguments = {p.__chandle__(): str(p.name) for p in mod["main"].params}
    looped, inputs, computed = set[int](), dict[str, None](), dict[int, str]()
    for one in _calling_themselves(mod):
        looped |= {branch.__chandle__() for branch in _met(one, relax.If)}
    for function in _functions(mod).values():
        for branch in _met(function, relax.If):
            if (name := arguments.get(branch.cond.__chandle__())) is not None:
                inputs[name] = None
            elif isinstance(branch.cond, tvm.ir.Var):  # a constant always takes one side
                computed[branch.__chandle__()] = str(branch.cond.name)
    free = {handle: name for handle, name in computed.items() if handle not in looped}
    return Branches((*inputs,), (*dict.fromkeys(free.values()),), len(computed) - len(free)), free


def forced(mod: Any, computed: Mapping[int, str], sides: Mapping[str, bool]) -> Any:
    """The module with one side forced in each `if` that a computed value decides. `computed` is as
    from `branches_of`, `sides` by the values' names; the first of `sides` is the default."""

    @mutator
    class Sides(PyExprMutator):
        def visit_if_(self, branch: Any) -> Any:
            made, name = self.visit_expr_post_order(branch), computed.get(branch.__chandle__())
            if name is None:
                return made
            side = relax.const(sides.get(name, next(iter(sides.values()))), "bool")
            return relax.If(side, made.true_branch, made.false_branch)

    for var, function in _functions(mod).items():
        mod[var] = Sides(mod).visit_expr(function)
    return relax.transform.Normalize()(mod)


def _functions(mod: Any) -> dict[Any, Any]:
    return {v: f for v, f in mod.functions.items() if isinstance(f, relax.Function)}


def _met(function: Any, kind: Any) -> list[Any]:
    """Expressions of a kind in a function, inner ones first."""
    return [one for one in everything(function) if isinstance(one, kind)]


def _calling_themselves(mod: Any) -> list[Any]:
    """The recursive functions, whose sides cannot be forced: the calls would never end."""
    functions = {str(v.name_hint): f for v, f in _functions(mod).items()}
    calls = {n: {str(g.name_hint) for g in _met(f, tvm.ir.GlobalVar)} for n, f in functions.items()}
    bindings = (
        binding
        for function in functions.values()
        for body in _met(function, relax.SeqExpr)
        for block in body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Function)
    )
    local = [b.value for b in bindings if any(map(b.var.same_as, _met(b.value, tvm.ir.Var)))]
    return [*(functions[n] for n in calling_themselves(calls)), *local]
