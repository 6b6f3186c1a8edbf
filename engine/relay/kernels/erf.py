"""erf in float64 on the CPU."""

from typing import Any

from tvm import relay
from tvm.topi.math import erf_legalize


def register() -> None:
    """Compute erf of float64 in float64.

    TVM's CPU legalisation does it in float32, with a silent error of 1e-8. float32 and float64 use
    the C library's erf, narrower types float32.
    """
    erf_legalize.register("cpu", _legalize, override=True)


def _legalize(attrs: Any, inputs: Any, types: Any) -> Any:
    dtype = types[0].dtype
    if dtype in ("float32", "float64"):
        return None
    return relay.cast(relay.erf(relay.cast(inputs[0], "float32")), dtype)
