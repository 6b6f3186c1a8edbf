"""Attention as PyTorch's operators, the same for every engine."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from relascope.core.errors import EngineError


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`scaled_dot_product_attention` with its dropout as an operator.

    Where a mask hides all keys of a row, PyTorch's result is 0. A softmax would give NaN, so
    nothing is hidden there, and the result is replaced.
    """
    if enable_gqa:  # several heads share keys and values
        key, value = (
            t.unsqueeze(-3)
            .expand(*t.shape[:-2], query.shape[-3] // t.shape[-3], *t.shape[-2:])
            .flatten(-4, -3)
            for t in (key, value)
        )
    scores = query @ key.transpose(-2, -1)
    scores = scores * (query.shape[-1] ** -0.5 if scale is None else scale)
    hidden = None
    if is_causal:
        with _disable_current_modes():  # a constant in the trace
            later = torch.full(scores.shape[-2:], -math.inf, dtype=scores.dtype).triu(1)
        scores = scores + later
    elif attn_mask is not None:
        added = attn_mask
        if attn_mask.dtype == torch.bool:
            added = torch.where(attn_mask, 0.0, -math.inf).to(scores.dtype)
        hidden = added.amax(-1, keepdim=True) == -math.inf
        scores = scores + torch.where(hidden, 0.0, added)
    weights = scores.softmax(-1)
    weights = torch.dropout(weights, dropout_p, True) if dropout_p else weights
    made = weights @ value
    return made if hidden is None else torch.where(hidden, 0.0, made)


def fused_attention(query: Tensor, key: Tensor, value: Tensor, *more: Any, **how: Any) -> Tensor:
    """`attention` as traces call it; a negative scale is refused (kind "operator")."""
    if (how.get("scale") or 0) < 0:
        message = "Attention with a negative scale is NaN in PyTorch, and cannot be imported."
        hint = "Give a positive scale, and negate the queries."
        raise EngineError("operator", message, hint=hint)
    return attention(query, key, value, *more, **how)
