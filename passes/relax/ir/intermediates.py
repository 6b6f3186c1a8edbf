"""A program that returns what is inside it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import tvm
from tvm import relax

from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.ir.rewrite import with_mod


def with_intermediates(program: RelaxProgram, name: str, variables: Sequence[Any]) -> RelaxProgram:
    """The program whose "main" takes what a function takes and returns a tuple of its inside.

    A variable of a dataflow block is not seen outside of it, so there are no such blocks in what
    this returns, and nothing is fused when it is built.

    Args:
        name: of the function.
        variables: arguments of it, or variables that it binds, each of one tensor.
    """
    function = program.mod[name]
    open_ = relax.transform.ToNonDataflow()(tvm.IRModule({"main": function}))["main"]
    pairs = zip(_variables(function), _variables(open_), strict=True)
    outside = {before.__chandle__(): after for before, after in pairs}
    wanted = [outside[v.__chandle__()] for v in variables]
    body = relax.SeqExpr(open_.body.blocks, relax.Tuple(wanted))
    main = relax.Function(open_.params, body, tvm.ir.TupleType([v.ty for v in wanted]))
    others = {g: f for g, f in program.mod.functions.items() if g.name_hint not in (name, "main")}
    mod = tvm.IRModule({**others, "main": main.with_attr("global_symbol", "main")})
    return replace(with_mod(program, mod), outputs=len(variables), gradients=(), updates=())


def _variables(function: Any) -> list[Any]:
    """Arguments, then bound variables in order."""
    bound = [b.var for block in function.body.blocks for b in block.bindings]
    return [*function.params, *bound]
