"""Operators in 16 bits, as PyTorch's kernels compute them: in float32, rounded at the end; and the
dtype in which PyTorch computes operands of several dtypes.

TVM sums in the dtype of the terms, and a long sum in bfloat16 gets stuck at 256. So an operator in
float16 or bfloat16 is written in float32 between casts, which round values and gradients where
PyTorch does. Operators that only move or cast elements stay.
"""

from typing import Any

import torch
from torch.fx import Node
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


_ALONE = {"where": 0, "masked_fill": 1}
"""Elementwise operators with a mask, and the mask's place."""

_AS_RESULT = (
    "floor_divide.default floor_divide.Scalar prelu.default log_sigmoid.default "
    "log_sigmoid_forward.default mean.default mean.dim prod.default prod.dim_int cumprod.default "
    "cumsum.default logsumexp.default softmax.int log_softmax.int"
)
"""Not marked as elementwise in PyTorch, but computed in the dtype of the result."""

_NO_BOOL = (
    "max.default min.default amax.default amin.default max.dim min.dim argmax.default "
    "argmin.default sort.default topk.default argsort.default scatter.src scatter.value "
    "scatter_add.default scatter_reduce.two index_put.default"
)
"""Operators for which TVM has no kernels on bool."""


def in_common(node: Node) -> dict[Node, torch.dtype]:
    """The tensors that an operator computes in another dtype than their own, and that dtype.

    TVM has other promotion rules, and no kernels for bool: it sums bools as integers. A number in
    a file is a float64 tensor without dimensions.
    """
    name, kind = node.target.__name__, node.meta["val"]  # type: ignore[union-attr]
    base = name.partition(".")[0]
    places = [i for i, a in enumerate(node.args) if isinstance(a, Node) and i != _ALONE.get(base)]
    operands: list[Any] = [node.args[i] for i in places]
    if name in _NO_BOOL.split():
        return {n: torch.int32 for n in operands if n.meta["val"].dtype == torch.bool}
    if name in _AS_RESULT.split():
        dtype = kind[0].dtype if isinstance(kind, tuple) else kind.dtype
    elif name.startswith("logical_") or torch.Tag.pointwise not in getattr(node.target, "tags", ()):
        return {}
    elif kind.dtype != torch.bool:
        dtype = kind.dtype
    elif name.startswith("bitwise_") or base in _ALONE:
        return {}
    else:
        given: list[Any] = [v.meta["val"] if isinstance(v, Node) else v for v in node.args]
        given = [v for v in given if isinstance(v, torch.Tensor | int | float)]
        dtype = torch.result_type(*given) if len(given) == 2 else operands[0].meta["val"].dtype
        dtype = torch.int32 if dtype == torch.bool else dtype
    return {n: dtype for n in operands if n.meta["val"].dtype != dtype}
