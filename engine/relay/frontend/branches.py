"""The value that decides each `if` of a module, and the module with chosen sides forced."""

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relay

from relascope.engine.protocol.results import Branches
from relascope.engine.server.program_model import calling_themselves
from relascope.passes.relay.ir.rewrite import everything


def branches_of(mod: tvm.IRModule) -> Branches:
    """The value that decides each `if` of a module. Computed values have no names in Relay, so the
    `if`s that they decide are called `if_0` and so on, in the order of the module."""
    inputs = dict.fromkeys(str(b.cond.name_hint) for b in _branches(mod) if _by_input(mod, b))
    computed = [b for b in _branches(mod) if not _by_input(mod, b)]
    free = _free(mod)
    return Branches((*inputs,), (*free.values(),), len(computed) - len(free))


def forced(mod: tvm.IRModule, sides: Mapping[str, bool]) -> tvm.IRModule:
    """The module with one side forced in each `if` that a computed value decides, by the names of
    `branches_of`; the first of `sides` is the default."""
    free, first = _free(mod), next(iter(sides.values()))

    class Sides(relay.ExprMutator):
        def visit_if(self, branch: Any) -> Any:
            made, name = super().visit_if(branch), free.get(branch.handle.value)
            if name is None:
                return made
            side = relay.const(sides.get(name, first), "bool")
            return relay.If(side, made.true_branch, made.false_branch)

    made = tvm.IRModule(mod.functions, mod.type_definitions)
    for var, function in _functions(mod).items():
        made[var] = Sides().visit(function)
    return relay.transform.InferType()(made)


def _free(mod: tvm.IRModule) -> dict[int, str]:
    """The names, by handle, of the `if`s that a computed value decides and that can be forced:
    those in functions that call themselves cannot, because the calls would never end."""
    functions = {str(v.name_hint): f for v, f in _functions(mod).items()}
    calls = {n: {str(g.name_hint) for g in _met(f, tvm.ir.GlobalVar)} for n, f in functions.items()}
    again = [functions[n] for n in calling_themselves(calls)]
    lets = [let for f in functions.values() for let in _met(f, relay.Let)]
    again += [let.value for let in lets if let.var in relay.analysis.free_vars(let.value)]
    looped = {branch.handle.value for f in again for branch in _met(f, relay.If)}
    own = (b.handle.value for b in _branches(mod) if not _by_input(mod, b))
    return {handle: f"if_{k}" for k, handle in enumerate(h for h in own if h not in looped)}


def _by_input(mod: tvm.IRModule, branch: Any) -> bool:
    return any(branch.cond.same_as(p) for p in mod["main"].params)


def _branches(mod: tvm.IRModule) -> list[Any]:
    met = (b for f in _functions(mod).values() for b in _met(f, relay.If))
    return [b for b in met if not isinstance(b.cond, relay.Constant)]  # which has one side


def _functions(mod: tvm.IRModule) -> dict[Any, Any]:
    return {v: f for v, f in mod.functions.items() if isinstance(f, relay.Function)}


def _met(function: Any, kind: Any) -> list[Any]:
    """Expressions of a kind in a function, inner ones first."""
    return [e for e in everything(function) if isinstance(e, kind)]
