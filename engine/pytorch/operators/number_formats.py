"""Operators in 16 bits, as PyTorch's kernels compute them: in float32, rounded at the end.

TVM sums in the dtype of the terms, and a long sum in bfloat16 gets stuck at 256. So an operator in
float16 or bfloat16 is written in float32 between casts, which round values and gradients where
PyTorch does. Operators that only move or cast elements stay.
"""

from typing import Any

import torch
from torch.utils._pytree import tree_leaves

HALVES = (torch.float16, torch.bfloat16)

_STAYS = (
    "_reshape_alias _to_copy _unsafe_view alias alpha_dropout bernoulli cat cauchy chunk clone "
    "contiguous copy detach dropout empty empty_like exponential feature_alpha_dropout "
    "feature_dropout flatten geometric lift_fresh lift_fresh_copy log_normal movedim moveaxis "
    "multinomial native_dropout normal normal_functional numpy_T permute rand rand_like randint "
    "randint_like randn randn_like reshape select slice split split_with_sizes squeeze stack "
    "swapaxes swapdims t tensor_split to transpose type_as unbind unflatten uniform unsafe_chunk "
    "unsafe_split unsafe_split_with_sizes unsqueeze view view_as"
)
"""Operators that compute nothing, and those that draw."""

_FILLS = "full full_like new_full new_ones new_zeros ones ones_like scalar_tensor zeros zeros_like"

NOTE = (
    "Operators in {} compute in float32 and round their results, as PyTorch's kernels do: the "
    "casts around them show it."
)


def widens(name: str, given: Any) -> bool:
    """Whether an operator, such as "add.Tensor", is written in float32 between casts."""
    stays = name.partition(".")[0] in _STAYS.split()
    return not stays and not {*HALVES}.isdisjoint(dtypes_of(given))


def dtypes_of(given: Any) -> list[torch.dtype]:
    """The dtypes among nested arguments, and those of the tensors there."""
    leaves = (getattr(v, "dtype", v) for v in tree_leaves(given))
    return [d for d in leaves if isinstance(d, torch.dtype)]


_ROUNDS_NUMBERS = "add sub rsub pow fmod remainder hardshrink eq ne lt le gt ge"
"""Operators whose kernels round a number to the tensors' format before they compute with it."""


def number_in(name: str, value: Any, dtype: torch.dtype) -> Any:
    """A number as an operator in 16 bits computes with it; anything else as it is."""
    if type(value) is not float or name.partition(".")[0] not in _ROUNDS_NUMBERS.split():
        return value
    return torch.tensor(value, dtype=dtype).item()


def result_dtypes(name: str, first: Any, results: Any) -> list[torch.dtype]:
    """Dtypes of an operator's results, by its first argument and its results without memory."""
    results = results if isinstance(results, list | tuple) else [results]
    recurrent = name.partition(".")[0] in ("lstm", "gru", "rnn_tanh", "rnn_relu")
    return [first.dtype if recurrent else m.dtype for m in results]  # a kernel's own under autocast


def fills(name: str) -> bool:
    """Whether an operator's result depends on tensors' shapes alone."""
    return name.partition(".")[0] in _FILLS.split()
