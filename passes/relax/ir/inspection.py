"""Inspecting a Relax program: its problems, its intermediate values, and where they came from."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import tvm
from tvm import relax

from relascope.core.errors import lines_of
from relascope.core.graph import GRADIENT_OF, NodeOrigin
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.ir.rewrite import with_mod

_FITS = relax.analysis.BaseCheckResult.PASS


def problems(program: RelaxProgram) -> Iterator[str]:
    """Sentences on what TVM calls not well-formed, missing or wrong types of calls, and arguments
    that the program names and "main" lacks."""
    try:
        tvm.relax.analysis.well_formed(program.mod)
    except (tvm.error.TVMError, ValueError) as error:
        yield f"it is not well-formed: {lines_of(error)[-1]}"
        return
    taken = {str(p.name) for p in program.main.params}
    for named in (*program.inputs, *program.grad_outs, *(m.name for m in program.masks)):
        if named not in taken:
            yield f'"main" has no argument {named}, which the program names'
    for name, function in program.mod.functions.items():
        if isinstance(function, relax.Function):
            yield from _types(name.name_hint, function, program.mod)


def _types(where: str, function: Any, mod: Any) -> Iterator[str]:
    """Sentences on bindings whose type is not that of their value."""
    builder = relax.BlockBuilder(mod)
    for block in function.body.blocks:
        for binding in block.bindings:
            value = getattr(binding, "value", None)
            if not isinstance(value, tvm.ir.Call) or not isinstance(value.op, tvm.ir.Op):
                continue
            new = tvm.ir.Call(value.op, list(value.args), attrs=value.attrs, ty_args=value.ty_args)
            try:
                found = builder.normalize(new).ty
            except (tvm.error.TVMError, ValueError, TypeError) as error:
                yield f"the type of {binding.var.name} in {where} is refused: {lines_of(error)[-1]}"
                continue
            if relax.analysis.type_base_check(binding.var.ty, found) != _FITS:
                yield f"{binding.var.name} in {where} is {binding.var.ty}, but its value is {found}"


def with_intermediates(program: RelaxProgram, name: str, variables: Sequence[Any]) -> RelaxProgram:
    """The program whose "main" takes the arguments of the function `name` and returns the tuple of
    `variables`: its arguments, or variables that it binds, each of one tensor. Dataflow blocks,
    which hide their variables, are dissolved, so nothing is fused."""
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
    return [*function.params, *(b.var for block in function.body.blocks for b in block.bindings)]


def imported_order(program: RelaxProgram, variable: Any) -> int | None:
    """The position, from 0, in PyTorch's order of execution of the operator that a variable came
    from; None for gradients, and without a number in the name (see
    `engine.relax.frontend.importer`)."""
    name = str(getattr(variable, "name", ""))
    source = program.provenance.get(name, NodeOrigin()).source
    operator = source.rpartition("::")[2].strip("_")
    if not operator or source.startswith(GRADIENT_OF) or not name.startswith(f"{operator}_"):
        return None
    ordinal = name[len(operator) + 1 :].partition("_")[0]
    return int(ordinal) if ordinal.isdigit() else None
