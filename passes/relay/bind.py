"""Parameters to constants."""

from tvm import relay

from relascope.passes.catalogue.entry import listed
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import with_main


@listed("bind parameters", "TVM, relay.build_module.bind_params_by_name")
def bind(program: RelayProgram) -> RelayProgram:
    """Puts the weights into the program as constants, so that what depends on them alone can be
    computed now.

    The values stay in `program.params`, where they are what PyTorch has.

    After: The weights are constants and no arguments any more, so they have no gradient.
    """
    used = {p.name_hint for p in program.main.params}
    values = {k: v for k, v in program.params.items() if k in used}
    return with_main(program, relay.build_module.bind_params_by_name(program.main, values))
