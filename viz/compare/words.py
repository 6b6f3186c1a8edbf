"""Names of operators as two graphs share them."""

import re

from relascope.core.graph import OWN_KERNELS, Node

KERNELS = (*OWN_KERNELS, "call_dps_packed")
"""Calls whose operator is a function's name, the program's own or a library's."""

_SHAPES = {
    "permute_dims": "transpose",
    "concat": "concatenate",
    "batch_matmul": "matmul",
    "dense": "matmul",
    "bias_add": "add",
}
_COUNTED = re.compile(r"(?<=[a-z])_?\d+(?=_|$)")


def common_word(node: Node) -> str:
    """The operator of a call under the name that both IRs know it by."""
    word = node.op.rpartition(".")[2]
    return _SHAPES.get(word, word)


def kernel_name(node: Node) -> str:
    """The operator of a call; of a kernel without the numbers that tell it from its equals."""
    return _COUNTED.sub("", node.op) if node.attrs.get("call") in KERNELS else node.op
