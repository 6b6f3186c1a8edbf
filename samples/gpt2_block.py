"""One block of GPT-2, as Hugging Face transformers writes it."""

from typing import Any

import torch
from torch import nn
from transformers.models.gpt2.configuration_gpt2 import GPT2Config
from transformers.models.gpt2.modeling_gpt2 import GPT2Block

from relascope.samples.weights import stir


class Block(GPT2Block):
    """The block with the two inputs that GPT2Model gives it, and no cache."""

    def forward(self, hidden_states: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return super().forward(hidden_states, attention_mask=attention_mask)


def causal_mask(batch: int, tokens: int) -> torch.Tensor:
    """What a decoder adds to its scores, (batch, 1, tokens, tokens): no token sees a later one."""
    hidden = torch.full((tokens, tokens), torch.finfo(torch.float32).min).triu(1)
    return hidden.expand(batch, 1, tokens, tokens).contiguous()


def make(batch: int, tokens: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The block, hidden_states (batch, tokens, 768) and attention_mask (see `causal_mask`)."""
    settings: dict[str, Any] = {"attn_implementation": "eager"}
    config = GPT2Config(**settings)
    module = Block(config, layer_idx=0)
    stir(module)
    return module, (torch.randn(batch, tokens, config.hidden_size), causal_mask(batch, tokens))
