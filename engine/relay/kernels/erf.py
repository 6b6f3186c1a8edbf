"""erf in float64 on the CPU."""

from typing import Any

from tvm import relay
from tvm.topi.math import erf_legalize


def register() -> None:
    """Let erf of float64 be computed in float64.

    TVM's legalisation for the CPU computes it in float32, an error of 1e-8 that nothing tells of.
    float32 and float64 both have an erf of their own in the C library; what is narrower goes
    through float32.
    """
    erf_legalize.register("cpu", _legalize, override=True)


def _legalize(attrs: Any, inputs: Any, types: Any) -> Any:
    dtype = types[0].dtype
    if dtype in ("float32", "float64"):
        return None
    return relay.cast(relay.erf(relay.cast(inputs[0], "float32")), dtype)
