"""The attention of one BERT-base layer alone."""

import torch
from torch import nn
from transformers.models.bert.modeling_bert import BertSelfAttention

from relascope.samples.bert_layer import config, layer_inputs
from relascope.samples.weights import stir


def make(batch: int, tokens: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The module, and the inputs that a layer gives it. It returns the context (batch, tokens, 768)
    and the probabilities (batch, 12, tokens, tokens)."""
    module = BertSelfAttention(config())
    stir(module)
    return module, layer_inputs(batch, tokens)
