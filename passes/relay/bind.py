"""Parameters to constants."""

from __future__ import annotations

from tvm import relay

from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import with_main


def bind(program: RelayProgram) -> RelayProgram:
    """Put the values of all parameters into the program as constants.

    The values stay in `program.params`, where they are what PyTorch has.
    """
    used = {p.name_hint for p in program.main.params}
    values = {k: v for k, v in program.params.items() if k in used}
    return with_main(program, relay.build_module.bind_params_by_name(program.main, values))
