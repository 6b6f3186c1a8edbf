"""The attention of one BERT-base layer alone."""

from __future__ import annotations

import torch
from torch import nn
from transformers.models.bert.modeling_bert import BertSelfAttention

from samples.bert_layer import config, layer_inputs
from samples.weights import stir


class FirstResult(BertSelfAttention):
    """The same module, returning the context alone and not the probabilities beside it."""

    def forward(self, hidden_states: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return super().forward(hidden_states, attention_mask)[0]


def make(batch: int, tokens: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The module, and the inputs that a layer gives it."""
    module = FirstResult(config())
    stir(module)
    return module, layer_inputs(batch, tokens)
