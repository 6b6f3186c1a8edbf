"""Fewer gradients than all."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.ir.rewrite import bindings, function_of, results, with_main


def keep_gradients(program: RelaxProgram, wanted: Collection[str]) -> RelaxProgram:
    """A joint program that returns the gradients of some arguments only.

    Args:
        program: after the gradient.
        wanted: names of arguments; those without a gradient are ignored.
    """
    main = program.main
    bound = bindings(main)
    returned = results(main, bound)
    kept = [
        (name, gradient)
        for name, gradient in zip(program.gradients, returned[program.outputs :], strict=True)
        if name in wanted
    ]
    results_kept = [*returned[: program.outputs], *(g for _, g in kept)]
    function = function_of(main.params, bound, results_kept, main.attrs)
    return replace(with_main(program, function), gradients=tuple(n for n, _ in kept))
