"""MobileNetV2, as Hugging Face transformers writes it."""

from typing import Any

import torch
from torch import nn
from transformers.models.mobilenet_v2.configuration_mobilenet_v2 import MobileNetV2Config
from transformers.models.mobilenet_v2.modeling_mobilenet_v2 import MobileNetV2ForImageClassification

from relascope.samples.weights import settle, stir


def make(batch: int, tokens: int | None) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model, which returns logits (batch, 10), and images (batch, 3, 64, 64). In train mode its
    float32 gradients are not well determined: PyTorch's own, with and without oneDNN, differ by up
    to a third of their scale. The likely cause is its many relu6, where rounding decides on which
    side of a bend a number falls."""
    settings: dict[str, Any] = {"num_labels": 10}
    config = MobileNetV2Config(
        image_size=64, depth_multiplier=1.0, classifier_dropout_prob=0.2, **settings
    )
    config.return_dict = False
    module = MobileNetV2ForImageClassification(config)
    stir(module)
    settle(module, torch.randn(8, 3, 64, 64))
    return module, (torch.randn(batch, 3, 64, 64),)
