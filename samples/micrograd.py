"""Micrograd's perceptron: every weight is one number, so its graph can be checked by hand."""

import torch
from torch import nn


class Neuron(nn.Module):
    """A weighted sum of two inputs and a bias, each (batch,), with tanh unless it is linear."""

    def __init__(self, linear: bool = False) -> None:
        super().__init__()
        self.w0, self.w1, self.b = (nn.Parameter(torch.empty(()).uniform_(-1, 1)) for _ in range(3))
        self.linear = linear

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        total = self.w0 * a + self.w1 * b + self.b
        return total if self.linear else total.tanh()


class Micrograd(nn.Module):
    """Two neurons with tanh, and a linear one that reads both: inputs (batch,) to (batch,)."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.out = Neuron(), Neuron(), Neuron(linear=True)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.out(self.left(x, y), self.right(x, y))


def make(batch: int, tokens: int | None) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model, and x and y (batch,)."""
    return Micrograd(), (torch.randn(batch), torch.randn(batch))
