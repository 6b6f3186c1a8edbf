"""A small perceptron with every kind of operator that a first look should show."""

import torch
from torch import nn

from relascope.samples.weights import stir


class MLP(nn.Module):
    """Linear, gelu, layer norm, dropout, linear: (batch, 64) to (batch, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(64, 256)
        self.act = nn.GELU()
        self.norm = nn.LayerNorm(256)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(256, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.dropout(self.norm(self.act(self.hidden(x)))))


def make(batch: int, tokens: int | None) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model, and x (batch, 64)."""
    module = MLP()
    stir(module)
    return module, (torch.randn(batch, 64),)
