"""Models that no schedule was written for, to time with `relascope time bench/unseen.py:NAME`: a
U-Net and a tagger with an LSTM, chosen before they were timed, as were two Swin blocks, which
`'hf:swin?image_size=56&embed_dim=96&depths=[2]&num_heads=[3]' --random-weights` gives; and Llama
layers for `peak.py`, whose number and tokens the environment gives (LAYERS, TOKENS)."""

import os

import torch
from torch import nn


def _twice(channels: int, out: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for of in (channels, out):
        layers += [nn.Conv2d(of, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Ronneberger et al., "U-Net" (arXiv 1505.04597), of three levels."""

    def __init__(self, widths: tuple[int, int, int] = (32, 64, 128), classes: int = 4) -> None:
        super().__init__()
        a, b, c = widths
        self.down = nn.ModuleList([_twice(3, a), _twice(a, b), _twice(b, c)])
        self.grow = nn.ModuleList([nn.ConvTranspose2d(c, b, 2, 2), nn.ConvTranspose2d(b, a, 2, 2)])
        self.up = nn.ModuleList([_twice(2 * b, b), _twice(2 * a, a)])
        self.head = nn.Conv2d(a, classes, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        first = self.down[0](images)
        second = self.down[1](nn.functional.max_pool2d(first, 2))
        x = self.down[2](nn.functional.max_pool2d(second, 2))
        for grow, up, skipped in zip(self.grow, self.up, (second, first), strict=True):
            x = up(torch.cat([grow(x), skipped], 1))
        return self.head(x)


class Tagger(nn.Module):
    def __init__(self, words: int = 2000, width: int = 64, tags: int = 20) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.both_ways = nn.LSTM(width, 128, bidirectional=True, batch_first=True)
        self.tags = nn.Linear(256, tags)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.tags(self.both_ways(self.words(ids))[0])


def unet() -> tuple[nn.Module, torch.Tensor]:
    return UNet(), torch.randn(2, 3, 64, 64)


def tagger() -> tuple[nn.Module, torch.Tensor]:
    return Tagger(), torch.randint(2000, (4, 24))


class Stack(nn.Module):
    def __init__(self, layers: int, tokens: int) -> None:
        super().__init__()
        from transformers.models.llama import modeling_llama as llama  # slow to import

        heads = {"num_attention_heads": 8, "attn_implementation": "sdpa"}
        config = llama.LlamaConfig(hidden_size=256, intermediate_size=688, **heads)
        self.embed, self.norm = nn.Embedding(1000, 256), llama.LlamaRMSNorm(256)
        self.layers = nn.ModuleList(llama.LlamaDecoderLayer(config, i) for i in range(layers))
        turns = llama.LlamaRotaryEmbedding(config)(torch.zeros(1), torch.arange(tokens)[None])
        self.register_buffer("cos", turns[0])
        self.register_buffer("sin", turns[1])

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, position_embeddings=(self.cos, self.sin))
        return self.norm(x).sum()


def stack() -> tuple[nn.Module, torch.Tensor]:
    size = (("LAYERS", "4"), ("TOKENS", "128"))
    layers, tokens = (int(os.environ.get(name, default)) for name, default in size)
    return Stack(layers, tokens), torch.randint(0, 1000, (2, tokens))
