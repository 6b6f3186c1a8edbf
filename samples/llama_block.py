"""One decoder layer of LLaMA: rotary embedding, grouped queries, RMS norm, SwiGLU."""

from typing import Any

import torch
from torch import nn
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import (
    LlamaDecoderLayer,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
)

from relascope.samples.attention import EAGER, wide
from relascope.samples.gpt2_block import causal_mask
from relascope.samples.weights import stir


class RMSNorm(LlamaRMSNorm):
    """LlamaRMSNorm that keeps float64."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        data = hidden_states.to(wide(hidden_states))
        scale = torch.rsqrt(data.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * (data * scale).to(hidden_states.dtype)


class Block(LlamaDecoderLayer):
    """The layer with the inputs that LlamaModel gives it, and no cache."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config, layer_idx=0)
        self.input_layernorm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
    ) -> torch.Tensor:
        return super().forward(
            hidden_states, attention_mask=attention_mask, position_embeddings=(cos, sin)
        )


def config() -> LlamaConfig:
    """Smaller than any LLaMA released: width 768, 12 heads of 64, 4 of keys and values, 2048."""
    settings: dict[str, Any] = {"attn_implementation": EAGER}
    return LlamaConfig(
        hidden_size=768,
        intermediate_size=2048,
        num_attention_heads=12,
        num_key_value_heads=4,
        attention_dropout=0.1,
        **settings,
    )


def make(batch: int, tokens: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The layer and its inputs. hidden_states (batch, tokens, 768), attention_mask (see
    `causal_mask`), and the cosines and sines of the rotary embedding, (batch, tokens, 64) each,
    which LlamaModel computes once for all layers."""
    settings = config()
    module = Block(settings)
    stir(module)
    hidden = torch.randn(batch, tokens, settings.hidden_size)
    positions = torch.arange(tokens).expand(batch, tokens)
    cos, sin = LlamaRotaryEmbedding(settings)(hidden, positions)
    return module, (hidden, causal_mask(batch, tokens), cos.contiguous(), sin.contiguous())
