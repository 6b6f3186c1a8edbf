"""Products of matrices that both engines' kernels with OpenBLAS are tried on."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch

from limits import rounding
from quick import rare
from relascope.engine.building.threads import set_threads
from relascope.engine.cpu_kernels.openblas import Product, load

SHAPES = [
    ((5, 7), (7, 4)),
    ((2, 33, 70), (70, 50)),  # rows of all matrices in a row
    ((40, 24), (24, 200)),
    ((2, 3, 5, 7), (2, 3, 7, 4)),
    ((2, 3, 5, 7), (3, 7, 4)),
    ((5, 7), (2, 7, 4)),
    ((3, 1, 5, 7), (2, 7, 4)),
    ((1, 33, 70), (1, 70, 50)),
]
"""Shapes of the left and the right operand, neither of them turned."""

_FORMS = list(product((False, True), (False, True), ("float32", "float64")))
_DEFAULT = (0, 3), (5, 6)  # of each shape, in turns: every form, and both types

EVERY = pytest.mark.parametrize(
    ("left", "right", "turn_a", "turn_b", "dtype"),
    [
        (left, right, *form) if index in _DEFAULT[place % 2] else rare(left, right, *form)
        for place, (left, right) in enumerate(SHAPES)
        for index, form in enumerate(_FORMS)
    ],
)

Build = Callable[[Product], Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]]


def check_product(
    build: Build,
    left: tuple[int, ...],
    right: tuple[int, ...],
    turn_a: bool,
    turn_b: bool,
    dtype: str,
) -> None:
    """A product by one thread, and by all, is what PyTorch computes in float64; `build` makes a
    kernel that writes it into a third tensor."""
    load()
    torch.manual_seed(0)
    kind = getattr(torch, dtype)
    a, b = (
        torch.randn(s[:-2] + (s[:-3:-1] if turn else s[-2:]), dtype=kind)
        for s, turn in ((left, turn_a), (right, turn_b))
    )
    exact = (a.mT if turn_a else a).double() @ (b.mT if turn_b else b).double()
    product = Product(tuple(a.shape), tuple(b.shape), turn_a, turn_b, dtype)
    assert product.shape == tuple(exact.shape)
    run = build(product)
    try:
        for threads in (1, 2):
            set_threads(threads)
            made = torch.full(product.shape, float("nan"), dtype=kind)
            run(a, b, made)
            limit = rounding(dtype, left[-2 if turn_a else -1], exact.abs().max())
            assert (made.double() - exact).abs().max() < limit
    finally:
        set_threads(0)
