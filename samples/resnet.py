"""ResNet-18, as Hugging Face transformers writes it."""

from typing import Any

import torch
from torch import nn
from transformers.models.resnet.configuration_resnet import ResNetConfig
from transformers.models.resnet.modeling_resnet import ResNetForImageClassification

from relascope.samples.weights import settle, stir


def make(batch: int, tokens: int | None) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model, which returns logits (batch, 10), and an image (batch, 3, 64, 64)."""
    settings: dict[str, Any] = {"num_labels": 10}
    config = ResNetConfig(
        embedding_size=64,
        hidden_sizes=[64, 128, 256, 512],
        depths=[2, 2, 2, 2],
        layer_type="basic",
        **settings,
    )
    config.return_dict = False
    module = ResNetForImageClassification(config)
    stir(module)
    settle(module, torch.randn(8, 3, 64, 64))
    return module, (torch.randn(batch, 3, 64, 64),)
