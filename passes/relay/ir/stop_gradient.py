"""An operator that returns its argument and stops the gradient: PyTorch's `detach`.

Relay has none. `passes.relay.training.gradient` removes it.
"""

from typing import Any

import tvm
from tvm import relay, topi
from tvm.relay.op import op as registry

NAME = "stop_gradient"


def stop_gradient(data: Any) -> Any:
    """The same tensor, through which no gradient flows."""
    return relay.Call(_OP, [data])


def _registered() -> Any:
    tvm.ir._ffi_api.RegisterOp(NAME, "Its argument, through which no gradient flows.")
    op = tvm.ir.Op.get(NAME)
    op.set_num_inputs(1)
    op.add_argument("data", "Tensor", "Any tensor.")
    op.add_type_rel("Identity")
    op.set_attr("TOpIsStateful", False)
    op.set_attr("TNonComputational", False)
    registry.register_pattern(NAME, registry.OpPattern.ELEMWISE)
    registry.register_compute(NAME, lambda attrs, inputs, kind: [topi.identity(inputs[0])])
    registry.register_injective_schedule(NAME)
    return op


_OP = _registered()
