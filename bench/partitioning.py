"""Modules like those in PyTorch's tests of its partitioner, with inputs, for `cuts.py`."""

import inspect
from collections.abc import Callable
from functools import reduce

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Case = Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs)


def _case(function: Callable[..., Tensor], *shapes: tuple[int, ...]) -> Case:
    def case() -> tuple[nn.Module, tuple[Tensor, ...]]:
        return Of(function), tuple(torch.randn(shape) for shape in shapes)

    return case


def _square_and_sum(x: Tensor, step: int) -> Tensor:
    square = x * x
    return x + (square @ square) * 2


def layer_norm() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return nn.LayerNorm(10), (torch.randn(3, 10),)


def gelu_of_linear() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return nn.Sequential(nn.Linear(96, 384), nn.GELU()), (torch.randn(16, 96),)


cosines = _case(lambda x: x.cos().cos().cos(), (3,))
cosines_of_sum = _case(lambda a, b, c, d: (a + b + c + d).cos().cos(), (3,), (3,), (3,), (3,))
many_cosines = _case(lambda x: reduce(lambda y, _: y.cos(), range(24), x), (256, 256))
sines_and_sum = _case(lambda a, b: a.sin().sin() + b, (256,), (256,))
cube = _case(lambda x: x * x * x, (3,))
relu = _case(torch.relu, (16,))
negative_part = _case(lambda x: (x < 0) * x, (100,))
tanh_in_part = _case(lambda a, b: torch.cat([a.tanh(), b]), (10,), (10,))
softmax_of_tanh = _case(lambda x: x.tanh().softmax(-1), (256, 256))
tanh_of_softmax = _case(lambda x: x.softmax(-1).tanh(), (256, 256))
row_sums = _case(lambda x: x.sum(1), (10, 10))
sums_of_outer = _case(lambda a, b: (a * b).cos().sum(1), (20, 1), (1, 20))
tanhs_of_product = _case(lambda x: (x @ torch.ones(5, 5)).tanh().tanh(), (5, 5))
products_and_sums = _case(lambda x: reduce(_square_and_sum, range(2), x), (10, 10))
dropout_and_sum = _case(lambda x: F.dropout(x, 0.5) + x, (256,))

FUNCTIONS = tuple(n for n, of in globals().items() if inspect.isfunction(of) and n[0] != "_")
