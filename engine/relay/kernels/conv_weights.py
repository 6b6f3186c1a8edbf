"""Weights of convolutions in the layout of their kernels, before TVM's build.

`relay.build` changes their layout with FoldConstant, which compiles a kernel for each weight. Here
numpy moves them, with the same bits, between the passes that lead to that layout.
"""

from typing import Any

import tvm
from tvm import relay

from relascope.passes.relay.fold_constant import folded
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import op_name, post_order, rewrite


def laid_out(mod: Any, target: Any) -> Any:
    """A module whose "main" has a target's layouts; unchanged if no weight is constant. `target` is
    TVM's. Call it in the build's pass context and in AutoTVM's dispatch context of the build."""
    calls = (e for e in post_order(mod["main"]) if op_name(e) == "nn.conv2d")
    if not any(isinstance(c.args[1], relay.Constant) for c in calls):
        return mod
    t = relay.transform
    steps = [t.SimplifyInference(), _fold, t.BackwardFoldScaleAxis(), t.ForwardFoldScaleAxis()]
    steps += [_fold, t.CanonicalizeOps(), t.AlterOpLayout(), _fold]
    with target:
        return tvm.transform.Sequential(steps)(mod)


def without_halves(mod: Any) -> Any:
    """A module whose constants in bfloat16 are cast by numpy: TVM's FoldConstant builds no kernel
    for them."""
    constants = (e for e in post_order(mod["main"]) if isinstance(e, relay.Constant))
    return _fold(mod) if any(c.data.dtype == "bfloat16" for c in constants) else mod


@tvm.transform.module_pass(opt_level=2, name="FoldConstant")
def _fold(mod: Any, context: Any) -> Any:
    """The part of the pass of that name that moves data or is plain arithmetic."""
    return rewrite(RelayProgram(relay.transform.InferType()(mod), {}, (), 1), folded).mod
