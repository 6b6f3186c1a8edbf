"""A residual super-resolution network: 37 convolutions, then a pixel shuffle."""

import torch
from torch import nn

from relascope.samples.weights import stir

_WIDTH = 64
_BLOCKS = 17


class Block(nn.Module):
    """Two 3x3 convolutions around a relu, added to what came in."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(_WIDTH, _WIDTH, 3, padding=1)
        self.act = nn.ReLU()
        self.second = nn.Conv2d(_WIDTH, _WIDTH, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.second(self.act(self.first(x))) * 0.1


class SuperResolution(nn.Module):
    """(batch, 3, h, w) to (batch, 3, 2h, 2w): head, 17 blocks, body, tail with pixel shuffle."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, _WIDTH, 3, padding=1)
        self.blocks = nn.Sequential(*(Block() for _ in range(_BLOCKS)))
        self.body = nn.Conv2d(_WIDTH, _WIDTH, 3, padding=1)
        self.tail = nn.Conv2d(_WIDTH, 3 * 4, 3, padding=1)
        self.shuffle = nn.PixelShuffle(2)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.head(image)
        return self.shuffle(self.tail(x + self.body(self.blocks(x))))


def make(batch: int, tokens: int | None) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The network, and an image (batch, 3, 32, 32) with values in 0 to 1."""
    module = SuperResolution()
    stir(module)
    return module, (torch.rand(batch, 3, 32, 32),)
