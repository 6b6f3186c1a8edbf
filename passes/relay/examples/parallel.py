"""Examples of the passes that join what reads one input."""

from __future__ import annotations

from tvm import relay

from relascope.passes.catalogue.example import Example, Make
from relascope.passes.relay.examples.building import program, var

TWO = (("branches", "2"),)


def _combine_dense(dtype: str) -> Example:
    x, w1, w2 = (
        var("x", 3, 4, dtype=dtype),
        var("w1", 5, 4, dtype=dtype),
        var("w2", 5, 4, dtype=dtype),
    )
    body = relay.Tuple([relay.nn.dense(x, w1), relay.nn.dense(x, w2)])
    return Example(program([x, w1, w2], body, ["w1", "w2"]), TWO)


def _combine_conv2d(dtype: str) -> Example:
    x = var("x", 1, 4, 16, 16, dtype=dtype)
    w1, w2 = var("w1", 4, 4, 1, 1, dtype=dtype), var("w2", 4, 4, 1, 1, dtype=dtype)
    size = {"channels": 4, "kernel_size": (1, 1)}
    convolved = [relay.nn.conv2d(x, w, **size) for w in (w1, w2)]
    branches = [*convolved, relay.nn.max_pool2d(x)]
    return Example(program([x, w1, w2], relay.Tuple(branches), ["w1", "w2"]), TWO)


EXAMPLES: dict[str, Make] = {"combine_dense": _combine_dense, "combine_conv2d": _combine_conv2d}
