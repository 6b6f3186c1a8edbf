"""Attention spelled out in operators, as transformers' "eager", but in float64 too."""

from typing import Any

import torch
from torch.nn import functional as F
from transformers import AttentionInterface
from transformers.models.llama.modeling_llama import repeat_kv

EAGER = "relascope_eager"
"""What to give as `attn_implementation`."""


def wide(tensor: torch.Tensor) -> torch.dtype:
    """float32, or float64 if that is the tensor's. Some of transformers' models compute softmax and
    norms in float32 whatever their dtype. That would leave nothing of float64 to compare."""
    return torch.promote_types(tensor.dtype, torch.float32)


def _attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **settings: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """From (batch, heads, tokens, size) to (batch, tokens, heads, size), and the weights."""
    groups = getattr(module, "num_key_value_groups", 1)
    scores = torch.matmul(query, repeat_kv(key, groups).transpose(2, 3)) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = F.softmax(scores, dim=-1, dtype=wide(query)).to(query.dtype)
    weights = F.dropout(weights, p=dropout, training=module.training)
    context = torch.matmul(weights, repeat_kv(value, groups))
    return context.transpose(1, 2).contiguous(), weights


AttentionInterface.register(EAGER, _attention)
