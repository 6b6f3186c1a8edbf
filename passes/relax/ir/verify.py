"""What is wrong with a Relax program beside its numbers."""

from collections.abc import Iterator
from typing import Any

import tvm
from tvm import relax

from relascope.core.errors import lines_of
from relascope.passes.relax.ir.program import RelaxProgram

_FITS = relax.analysis.BaseCheckResult.PASS


def problems(program: RelaxProgram) -> Iterator[str]:
    """Sentences, one a problem: what TVM calls not well-formed, types of calls that are missing or
    not what TVM infers anew, and arguments that the program tells of and "main" does not have."""
    try:
        tvm.relax.analysis.well_formed(program.mod)
    except (tvm.error.TVMError, ValueError) as error:
        yield f"it is not well-formed: {lines_of(error)[-1]}"
        return
    taken = {str(p.name) for p in program.main.params}
    for told in (*program.inputs, *program.grad_outs, *(m.name for m in program.masks)):
        if told not in taken:
            yield f'"main" has no argument {told}, which the program tells of'
    for name, function in program.mod.functions.items():
        if isinstance(function, relax.Function):
            yield from _types(name.name_hint, function, program.mod)


def _types(where: str, function: Any, mod: Any) -> Iterator[str]:
    """Bindings whose type is not that of what they are bound to."""
    builder = relax.BlockBuilder(mod)
    for block in function.body.blocks:
        for binding in block.bindings:
            value = getattr(binding, "value", None)
            if not isinstance(value, tvm.ir.Call) or not isinstance(value.op, tvm.ir.Op):
                continue
            again = tvm.ir.Call(
                value.op, list(value.args), attrs=value.attrs, ty_args=value.ty_args
            )
            try:
                found = builder.normalize(again).ty
            except (tvm.error.TVMError, ValueError, TypeError) as error:
                yield f"the type of {binding.var.name} in {where} is refused: {lines_of(error)[-1]}"
                continue
            if relax.analysis.type_base_check(binding.var.ty, found) != _FITS:
                yield f"{binding.var.name} in {where} is {binding.var.ty}, and its value is {found}"
