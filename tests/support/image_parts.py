"""Parts of the image networks among the samples, whose whole takes a minute or more to build."""

import torch
from torch import nn
from transformers import MobileNetV2Config, ResNetConfig
from transformers.models.mobilenet_v2.modeling_mobilenet_v2 import MobileNetV2InvertedResidual
from transformers.models.resnet.modeling_resnet import ResNetBasicLayer, ResNetEmbeddings


def resnet_part():
    """A stem with its max pool, a basic layer with a shortcut, and the pooling at the end."""
    return nn.Sequential(
        ResNetEmbeddings(ResNetConfig(embedding_size=6)),
        ResNetBasicLayer(6, 8, stride=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 3),
    )


def mobilenet_part():
    """A strided and a residual layer with depthwise convolutions, and the pooling at the end."""
    config = MobileNetV2Config(expand_ratio=2)
    return nn.Sequential(
        nn.Conv2d(3, 8, 1),
        MobileNetV2InvertedResidual(config, 8, 8, stride=2),
        MobileNetV2InvertedResidual(config, 8, 8, stride=1),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(32, 3),
    )


PARTS = {"resnet": resnet_part, "mobilenet_v2": mobilenet_part}


def norms(module):
    return [m for m in module.modules() if isinstance(m, nn.BatchNorm2d)]


def part(make):
    """A part in train mode, with weights and statistics that are neither zero nor one."""
    torch.manual_seed(0)
    module = make().train()
    for parameter in module.parameters():
        nn.init.normal_(parameter, 1.0 if parameter.dim() == 1 else 0.0, 0.3)
    for norm in norms(module):
        norm.running_mean.normal_(0, 0.3)
        norm.running_var.uniform_(0.5, 2)
        norm.num_batches_tracked.fill_(7)
    return module, torch.randn(4, 3, 16, 16)
