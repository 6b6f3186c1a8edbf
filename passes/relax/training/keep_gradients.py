"""Fewer gradients than all."""

from collections.abc import Collection
from dataclasses import replace

from relascope.passes.gradients import kept_results
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.ir.rewrite import bindings, function_of, results, with_main


def keep_gradients(program: RelaxProgram, wanted: Collection[str]) -> RelaxProgram:
    """A joint program that returns the gradients of `wanted` arguments only, if they have one."""
    main = program.main
    bound = bindings(main)
    returned, names = kept_results(program, results(main, bound), wanted)
    function = function_of(main.params, bound, returned, main.attrs)
    return replace(with_main(program, function), gradients=names)
