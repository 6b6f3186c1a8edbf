"""gelu spelled out, for it has no gradient in Relax."""

from __future__ import annotations

import math
from typing import Any

from tvm import relax

from relascope.passes.catalogue.entry import listed
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.ir.rewrite import Maker, dtype, op_name, rewrite


@listed("gelu spelled out", "ours", required=True)
def decompose_gelu(program: RelaxProgram) -> RelaxProgram:
    """Writes gelu in erf (or tanh), which has a gradient.

    Hendrycks and Gimpel, "Gaussian Error Linear Units", arXiv 1606.08415.

    After: There is no nn.gelu and no nn.gelu_tanh.
    """
    return rewrite(program, _spelled_out)


def _spelled_out(call: Any, maker: Maker) -> Any:
    name = op_name(call)
    if name not in ("nn.gelu", "nn.gelu_tanh"):
        return None
    op, (x,) = relax.op, call.args

    def number(value: float) -> Any:
        return relax.const(value, dtype(x))

    if name == "nn.gelu":
        spread = op.erf(op.multiply(x, number(math.sqrt(0.5))))
    else:
        cube = op.multiply(op.multiply(x, x), x)
        inner = op.add(x, op.multiply(cube, number(0.044715)))
        spread = op.tanh(op.multiply(inner, number(math.sqrt(2 / math.pi))))
    return op.multiply(x, op.add(op.multiply(spread, number(0.5)), number(0.5)))
