"""Parameters to constants."""

from __future__ import annotations

from tvm import relax

from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.ir.rewrite import with_mod


def bind(program: RelaxProgram) -> RelaxProgram:
    """Put the values of all parameters into the program as constants.

    The values stay in `program.params`, where they are what PyTorch has.
    """
    used = {str(p.name) for p in program.main.params}
    values = {k: v for k, v in program.params.items() if k in used}
    return with_mod(program, relax.transform.BindParams("main", values)(program.mod))
