"""Parameters to constants."""

from tvm import relax

from relascope.passes.catalogue.entry import listed
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.ir.rewrite import with_mod


@listed("BindParams", "TVM")
def bind(program: RelaxProgram) -> RelaxProgram:
    """Puts the weights into the program as constants, so that what depends on them alone can be
    computed now.

    The values stay in `program.params`, where they are what PyTorch has.

    After: The weights are constants and no arguments any more, so they have no gradient.
    """
    used = {str(p.name) for p in program.main.params}
    values = {k: v for k, v in program.params.items() if k in used}
    return with_mod(program, relax.transform.BindParams("main", values)(program.mod))
