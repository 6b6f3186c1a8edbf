"""Examples of the passes that join what reads one input."""

from __future__ import annotations

from tvm import relay

from relascope.passes.catalogue.example import Example
from relascope.passes.relay.examples.building import Tensors, program

TWO = (("branches", "2"),)


def combine_dense(new: Tensors) -> Example:
    x, w1, w2 = new.var("x", 3, 4), new.var("w1", 5, 4), new.var("w2", 5, 4)
    body = relay.Tuple([relay.nn.dense(x, w1), relay.nn.dense(x, w2)])
    return Example(program([x, w1, w2], body, ["w1", "w2"]), TWO)


def combine_conv2d(new: Tensors) -> Example:
    x = new.var("x", 1, 4, 16, 16)
    w1, w2 = new.var("w1", 4, 4, 1, 1), new.var("w2", 4, 4, 1, 1)
    size = {"channels": 4, "kernel_size": (1, 1)}
    convolved = [relay.nn.conv2d(x, w, **size) for w in (w1, w2)]
    branches = [*convolved, relay.nn.max_pool2d(x)]
    return Example(program([x, w1, w2], relay.Tuple(branches), ["w1", "w2"]), TWO)
