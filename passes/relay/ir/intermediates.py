"""A program that returns what is inside it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tvm import relay

from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import with_main


def with_intermediates(program: RelayProgram, name: str, exprs: Sequence[Any]) -> RelayProgram:
    """The program whose "main" takes what a function takes and returns a tuple of its inside.

    Args:
        program: in graph normal form.
        name: of the function.
        exprs: expressions of it, each of one tensor.
    """
    function = program.mod[name]
    main = relay.Function(function.params, relay.Tuple(list(exprs)))
    return replace(with_main(program, main), outputs=len(exprs), gradients=(), updates=())
