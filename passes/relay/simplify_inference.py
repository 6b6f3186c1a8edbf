"""SimplifyInference, with norms in float64 spelled out by us."""

from __future__ import annotations

from tvm import relay

from relascope.passes.catalogue.entry import listed
from relascope.passes.relay.builtin import applied
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.training.decompose_norms import (
    decompose_batch_norm,
    decompose_layer_norm,
)


@listed("SimplifyInference", "TVM; norms in float64 are spelled out by ours")
def simplify_inference(program: RelayProgram) -> RelayProgram:
    """Removes dropout and spells out the normalisations, as only inference may.

    TVM rounds the epsilon of a norm to float32 whatever the program's type. In float64 that would
    be all of the error (9e-7 on MobileNetV2), so the norms are spelled out before it there.

    Before: It is for inference: running statistics, and no dropout.
    After: Dropout and the normalisations are plain arithmetic or gone; fold computes what is left
        of weights.
    """
    if any(str(value.dtype).endswith("float64") for value in program.params.values()):
        program = decompose_layer_norm(decompose_batch_norm(program))
    return applied(program, relay.transform.SimplifyInference)
