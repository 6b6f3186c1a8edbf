"""One layer of BERT-base, as Hugging Face transformers writes it."""

from typing import Any

import torch
from torch import nn
from transformers.models.bert.configuration_bert import BertConfig
from transformers.models.bert.modeling_bert import BertLayer

from relascope.samples.weights import stir


def config() -> BertConfig:
    """BERT-base, with attention spelled out in operators and dropout of 0.1."""
    settings: dict[str, Any] = {"attn_implementation": "eager"}
    return BertConfig(**settings)


def layer_inputs(batch: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs of a layer: hidden_states (batch, tokens, 768) and attention_mask. The mask is
    additive, (batch, 1, 1, tokens), and hides the last quarter of the tokens."""
    mask = torch.zeros(batch, 1, 1, tokens)
    mask[..., tokens - tokens // 4 :] = -10_000.0
    return torch.randn(batch, tokens, 768), mask


def make(batch: int, tokens: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The layer, and its inputs."""
    module = BertLayer(config())
    stir(module)
    return module, layer_inputs(batch, tokens)
