"""A small vision transformer that classifies images, as Hugging Face transformers writes it."""

from typing import Any

import torch
from torch import nn
from transformers.models.vit.configuration_vit import ViTConfig
from transformers.models.vit.modeling_vit import ViTForImageClassification

from relascope.samples.attention import EAGER
from relascope.samples.weights import stir


def config() -> ViTConfig:
    """The width of ViT-Tiny (192, 3 heads), 4 layers for its 12, patches of 8 in 64 x 64."""
    settings: dict[str, Any] = {"attn_implementation": EAGER, "num_labels": 10}
    return ViTConfig(
        hidden_size=192,
        num_hidden_layers=4,
        num_attention_heads=3,
        intermediate_size=768,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        image_size=64,
        patch_size=8,
        **settings,
    )


def make(batch: int, tokens: int | None) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model, which returns logits (batch, 10), and an image (batch, 3, 64, 64)."""
    module = ViTForImageClassification(config())
    with torch.no_grad():  # transformers starts this one at zero or close to it
        module.vit.embeddings.cls_token.normal_(0.0, 0.1)
        module.vit.embeddings.position_embeddings.normal_(0.0, 0.1)
    stir(module)
    return module, (torch.randn(batch, 3, 64, 64),)
