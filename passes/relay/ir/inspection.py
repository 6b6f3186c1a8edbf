"""Inspecting a Relay program: its problems other than wrong numbers, and intermediate values."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import tvm
from tvm import relay

from relascope.core.errors import lines_of
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import copied, with_main


def problems(program: RelayProgram) -> Iterator[str]:
    """Sentences on variables bound twice or nowhere, missing or wrong types, and arguments that the
    program names and "main" lacks."""
    for name, function in program.mod.functions.items():
        where = name.name_hint
        for free in relay.analysis.free_vars(function):
            yield f"{free.name_hint} is read in {where} but bound nowhere"
        if not relay.analysis.well_formed(function):
            yield f"a variable of {where} is bound twice"
        if isinstance(function, relay.Function) and function._checked_type_ is None:
            yield f"{where} has no types"
    taken = {p.name_hint for p in program.main.params}
    for named in (*program.inputs, *program.grad_outs, *(m.name for m in program.masks)):
        if named not in taken:
            yield f'"main" has no argument {named}, which the program names'
    try:
        fresh = relay.transform.InferType()(copied(program.mod))
    except tvm.error.TVMError as error:
        yield f"its types cannot be inferred: {lines_of(error)[-1]}"
        return
    before, after = program.main._checked_type_, fresh["main"].checked_type
    if before is not None and not tvm.ir.structural_equal(before, after):
        yield f'the type of "main" is {before}, but inference gives {after}'


def with_intermediates(program: RelayProgram, name: str, exprs: Sequence[Any]) -> RelayProgram:
    """The program, in graph normal form, whose "main" takes the arguments of the function `name`
    and returns a tuple of expressions in it: `exprs`, each of one tensor."""
    main = relay.Function(program.mod[name].params, relay.Tuple(list(exprs)))
    return replace(with_main(program, main), outputs=len(exprs), gradients=(), updates=())
