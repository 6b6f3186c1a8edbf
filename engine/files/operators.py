"""Operators that a file may use: only those on tensors, numbers, lists and texts."""

import re
from functools import cache
from typing import Any

import torch

UNPACKED = (
    "Open the model as it was before torch.ao.quantization, or quantize it dynamically to int8 "
    "(quantize_dynamic), as a module or a trace."
)
"""What to do if a model uses `quantized::` operators other than these."""
DYNAMIC_INT8 = (
    "quantized::linear_dynamic",
    "quantized::linear_relu_dynamic",
    "aten::quantized_lstm",
    "aten::quantized_gru",
)
"""Operators that quantize their inputs themselves, as `torch.ao.quantization.quantize_dynamic`
writes them. The weights in a trace are objects of PyTorch's, made of tensors and numbers."""

_PRIM_NAMES = """
    Constant ListConstruct ListUnpack TupleConstruct TupleUnpack TupleIndex TupleSlice DictConstruct
    NumToTensor ConstantChunk If Loop RaiseException Uninitialized unchecked_cast
    unchecked_unwrap_optional data device dtype layout index itemsize nbytes abs max min rangelist
    tolist requires_grad is_cpu is_cuda is_meta is_mps is_xpu is_sparse is_nested is_quantized
    is_mkldnn shape type StringIndex
"""
_PRIM = frozenset(_PRIM_NAMES.split())
_REFUSED = ("save", "from_file", "backward", "grad", "get_gradients", "_print", "hash")
_FOREIGN = re.compile(
    r"Storage|Future|RRef|Stream|Await|(?<!Optional\[)Generator|torch\.classes|Any$"
)


@cache
def allowed(kind: str) -> bool:
    """Whether a file may use an operator, such as "aten::linear"."""
    space, _, name = kind.partition("::")
    if kind in DYNAMIC_INT8:
        return True
    if space == "prim":
        return name in _PRIM
    known = schemas(kind) if space == "aten" else ()
    if not known or name in _REFUSED or name.startswith(("_test_", "_cuda")):
        return False
    # Names of files, storages, processes: an operator that takes one in any form is refused.
    return not any(
        argument.name == "filename" or _FOREIGN.search(str(argument.type))
        for schema in known
        for argument in (*schema.arguments, *schema.returns)
    )


def schemas(kind: str) -> tuple[Any, ...]:
    """The schemas of an operator; none if PyTorch has no operator of that name."""
    return tuple(torch._C._jit_get_schemas_for_operator(kind))
