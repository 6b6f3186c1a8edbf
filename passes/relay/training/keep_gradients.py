"""Fewer gradients than all."""

from collections.abc import Collection
from dataclasses import replace

from tvm import relay

from relascope.passes.gradients import kept_results
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import with_main


def keep_gradients(program: RelayProgram, wanted: Collection[str]) -> RelayProgram:
    """A joint program, in graph normal form, with the gradients of `wanted` arguments only, if they
    have one."""
    main = program.main
    results, names = kept_results(program, list(main.body.fields), wanted)
    function = relay.Function(main.params, relay.Tuple(results), None, [], main.attrs)
    return replace(with_main(program, function), gradients=names)
