"""Limits on errors, from the number format and the length of sums, for every processor.

How a sum is split among vector lanes, and whether a product is rounded before it is added, differ
from processor to processor; these bounds hold for every order."""

from typing import Any

_UNITS = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}

POINTWISE = 2**6
"""Operations of an elementwise function: the terms of its polynomial and what surrounds them."""
FORWARD = 2**13
"""Operations on the longest way through a sample: the products of `bert_layer` sum 768 terms five
times and 3072 once, beside two norms."""
BACKWARD = 2**18
"""The same for a gradient: the forward, twice as many products on the way back, and three bits that
a norm loses where it subtracts means."""


def rounding(dtype: Any, length: int, magnitude: Any = 1.0) -> float:
    """What rounding may leave of a chain of operations, with a probability of all but 1.

    After Higham and Mary (2019): n rounded operations are off by at most 8 √n u, where u is half
    the distance of 1 to the next number.

    Args:
        dtype: NumPy's, PyTorch's or its name.
        length: operations one after another, such as the terms of a sum.
        magnitude: of the largest result, where the terms have both signs; of the sum of the terms'
            absolute values otherwise."""
    return 8.0 * length**0.5 * _UNITS[str(dtype).removeprefix("torch.")] * float(magnitude)


LIMITS = {d: (rounding(d, FORWARD), rounding(d, BACKWARD)) for d in ("float32", "float64")}
"""Of a sample's outputs and gradients, relative to the scale of each."""
OUTPUT, GRADIENT = LIMITS["float32"]
ELEMENTWISE = rounding("float32", POINTWISE)
"""Of one operator in float32, and of a few one after the other."""
EPSILON = 1e-5 * ELEMENTWISE
"""Of a norm in float64 whose epsilon, 1e-5, TVM writes in float32."""


def close(limit: float) -> dict[str, float]:
    """A limit as `torch.testing.assert_close` takes it."""
    return {"rtol": limit, "atol": limit}
