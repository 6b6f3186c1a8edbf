"""SimplifyInference, after writing out norms in float64."""

from typing import Any

from tvm import relay

from relascope.passes.catalogue.entry import listed
from relascope.passes.relay.builtin import applied
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import rewrite, shape
from relascope.passes.relay.training.decompose_norms import (
    decompose_batch_norm,
    decompose_layer_norm,
    normalized,
    weighted,
)


@listed("SimplifyInference", "TVM; relascope writes out norms in float64")
def simplify_inference(program: RelayProgram) -> RelayProgram:
    """Removes dropout and writes out normalisations, which is right only in inference.

    TVM rounds the epsilon of a norm to float32 whatever the program's type. In float64 this would
    be the whole error (9e-7 on MobileNetV2), so relascope writes out the norms first.

    Before: The program is for inference: running statistics, and no dropout.
    After: Dropout is gone and normalisations are plain arithmetic; fold computes the parts that
        depend on weights alone.
    """
    if any(p.checked_type.dtype == "float64" for p in program.mod["main"].params):
        program = decompose_layer_norm(decompose_batch_norm(program))
        norms = ("nn.group_norm", "nn.instance_norm")
        program = rewrite(program, dict.fromkeys(norms, _group_norm))
    return applied(program, relay.transform.SimplifyInference)


def _group_norm(call: Any, args: list[Any]) -> Any:
    """Group norm as arithmetic, and instance norm, whose groups have one channel."""
    data, gamma, beta = args
    size = shape(call.args[0])
    groups = int(getattr(call.attrs, "num_groups", size[1]))
    made = normalized(call, relay.reshape(data, [size[0], groups, -1]), 2)
    return weighted(call, relay.reshape(made, size), gamma, beta)
