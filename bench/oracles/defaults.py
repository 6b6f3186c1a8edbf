"""Calls of PyTorch's operators with arguments whose defaults have a meaning, for `operators.py`.

They are in `defaults.txt`. A line is an expression in which a name of `INPUTS` is a tensor; the
indented lines below it are the arguments that replace `...` in turn, "-" for none. A program is
made with each name's first tensor, and runs on the others: ignored labels, padding, hidden rows."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

INF, NAN = float("inf"), float("nan")
"""Names that the expressions may use."""


def _drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _ints(*rows: Any) -> tuple[Tensor, ...]:
    return tuple(torch.tensor(r) for r in rows)


_SHAPES = """
x:3x4 y:3x4 z:3x4 row:4 scores:6x5 pixels:2x5x2x3 class_weight:5 line:2x4x9 image:2x4x7x6
volume:1x4x5x6x4 four:4 kernel1:4x2x3 kernel2:4x2x3x2 kernel3:4x2x2x3x2 table:7x4 left:3x5 right:5x4
batch_left:2x3x5 batch_right:2x5x4 query:2x2x3x4 key:2x2x5x4 value:2x2x5x4 scattered:2x4
columns:2x24x8
"""
INPUTS: dict[str, tuple[Tensor, ...]] = {
    **{
        name: (_drawn(seed, *map(int, shape.split("x"))),)
        for seed, (name, shape) in enumerate(word.split(":") for word in _SHAPES.split())
    },
    "places": ((torch.rand(2, 3, 4, 2, generator=torch.Generator().manual_seed(5)) * 2.6 - 1.3),),
    "share": (_drawn(50, 3, 4).sigmoid(),),
    "positive": (_drawn(51, 3, 4).exp(),),
    "sign": (torch.tensor([1.0, -1, 1]), torch.tensor([-1.0, -1, -1])),
    "signs": (torch.tensor([[1.0, -1, 1, -1]] * 3),),
    "probabilities": (_drawn(52, 6, 5).softmax(1),),
    "labels": _ints(
        [0, 1, 2, 3, 4, 0], [1, -100, 2, -100, 4, 0], [-100] * 6, [2, 2, 1, 2, 2, 2], [2] * 6
    ),
    "pixel_labels": _ints(
        [[[0, 1, 2], [3, 4, 0]], [[1, 1, 3], [4, 2, 0]]],
        [[[0, -100, 2], [3, -100, 0]], [[-100] * 3] * 2],
        [[[-100] * 3] * 2] * 2,
        [[[2] * 3] * 2] * 2,
    ),
    "many_labels": _ints([[0, 2, -1, 1]] * 3, [[3, -1, 0, 0], [-1, 0, 1, 2], [0, 1, 2, 3]]),
    "ids": _ints([[1, 2, 3], [4, 5, 6]], [[0, 2, 0], [6, 6, 2]], [[2] * 3] * 2, [[0] * 3] * 2),
    "ends": _ints([[0, 1], [2, 3], [4, 2]], [[-1, 0], [3, -2], [4, 4]]),
    "places_of": _ints([[0, 1, 2, 0], [2, 0, 1, 1]], [[2] * 4, [0] * 4]),
    "seen": (
        torch.tensor([[1, 0, 1, 1, 1], [1, 1, 0, 0, 1], [1, 1, 1, 1, 1]]).bool(),
        torch.tensor([[0] * 5, [1, 0, 0, 0, 0], [1] * 5]).bool(),
        torch.zeros(3, 5, dtype=torch.bool),
    ),
    "bias": (
        torch.zeros(3, 5),
        torch.tensor([[-INF] * 5, [0, -INF, 0, 1, 2], [0.5] * 5]),
        torch.full((3, 5), -INF),
    ),
    "chosen": (
        torch.tensor([[1, 0, 1, 0], [0, 0, 1, 1], [1, 1, 1, 0]]).bool(),
        torch.zeros(3, 4, dtype=torch.bool),
        torch.ones(3, 4, dtype=torch.bool),
    ),
    "ordered": (torch.tensor([-1.0, 0, 0.5, 0.5, 2]),),
    "whole": _ints([[3, -4, 5, 7], [1, 2, -3, 6]], [[-7, 0, 7, -1], [2, 2, 2, 2]]),
    "divisor": _ints([[2, 3, -2, 4], [5, -3, 2, 7]]),
    "index": _ints([0, 2], [2, 2], [1, 0]),
}
_MODULES = {"F": F, "torch": torch, "aten": torch.ops.aten, "INF": INF, "NAN": NAN}


def _plain_attention(*args: Any, **options: Any) -> Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(*args, **options)


def _apart(together: Callable[..., Any]) -> Callable[..., Any]:
    """`var_mean` or `std_mean` as two calls."""
    spread = torch.var if together is torch.var_mean else torch.std

    def call(x: Tensor, *axes: Any, **how: Any) -> tuple[Tensor, Tensor]:
        keep = {k: v for k, v in how.items() if k == "keepdim"}
        return spread(x, *axes, **how), x.mean(*axes, **keep)

    return call


_NEAR_0 = "1 - (x * torch.pi) ** 2 / 6 + (x * torch.pi) ** 4 / 120"
_OTHERWISE = {
    "_plain": _plain_attention,
    "_var_mean": _apart(torch.var_mean),
    "_std_mean": _apart(torch.std_mean),
    "_exponents": lambda x: (e := (x - x.amax(-1, True)).exp()) / e.sum(-1, True),
}
REFERENCES = {
    # In float64 the gradient of the CPU's kernel has float32's digits.
    "F.celu(": "torch._refs.nn.functional.celu(",
    "F.hardsigmoid(x)": "F.relu6(x + 3) / 6",
    # The gradient of what is all but 0 is a difference of what is all but equal.
    "aten._softmax(x, -1, False)": "_exponents(x)",
    # Which of infinite elements make the mean NaN depends on the order of the steps.
    "torch.var_mean(": "_var_mean(",
    "torch.std_mean(": "_std_mean(",
    # It is computed by rsqrt, whose own gradient at -0 and -inf is another than a power's.
    "torch.pow(positive, -0.5)": "torch.rsqrt(positive)",
    # The gradient subtracts what is nearly equal: of 1e-6 it has three digits in float64.
    "torch.sinc(x)": f"torch.where(x.abs() < 1e-3, {_NEAR_0}, torch.sinc(x))",
    # The CPU's fused kernel leaves out hidden keys, whose infinite values times 0 are NaN.
    "F.scaled_dot_product_attention(": "_plain(",
    # Which NaN the kernel passes over depends on the width of the CPU's vectors.
    "torch.cdist(x, y, INF)": (
        "torch.linalg.vector_norm(x.unsqueeze(-2) - y.unsqueeze(-3), INF, -1)"
    ),
}
"""Where PyTorch computes a call otherwise on the CPU than by its own reference or other kernel, by
what begins an expression, what is there in its place: either result counts."""


@dataclass(frozen=True)
class Call:
    """An expression with one of its arguments, in the form of an entry of PyTorch's database.
    `formatted_name` is the expression."""

    formatted_name: str
    supports_autograd = True
    inplace_variant = None

    @property
    def name(self) -> str:
        """The operator's name alone."""
        found = re.match(r"(?:\w+\.)*(\w+)\(", self.formatted_name)
        return found[1] if found else ""

    @property
    def full_name(self) -> str:
        return self.formatted_name

    @property
    def op(self) -> Callable[..., Any]:
        """Of the tensors in order of `given`."""
        return self._function(self.formatted_name)

    @property
    def reference(self) -> Callable[..., Any] | None:
        """The same by its counterpart in `REFERENCES`; None if it has none."""
        name = self.formatted_name
        found = (new + name[len(old) :] for old, new in REFERENCES.items() if name.startswith(old))
        code = next(found, None)
        return None if code is None else self._function(code)

    def _function(self, expression: str) -> Callable[..., Any]:
        code = f"lambda {', '.join(self.given)}: {expression}"
        return eval(code, {**_MODULES, **_OTHERWISE})

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the tensors."""
        words = re.findall(r"(?<![\w.'])[a-z_]\w*(?!\w*=[^=])", self.formatted_name)
        return tuple(dict.fromkeys(w for w in words if w in INPUTS))

    def supported_dtypes(self, device: str) -> tuple[torch.dtype, ...]:
        return torch.float32, torch.float64

    supported_backward_dtypes = supported_dtypes

    def values(self, dtype: torch.dtype) -> list[tuple[Tensor, ...]]:
        """The tensors in turn, first those that a program is made with."""
        rows = [INPUTS[n] for n in self.given]
        table = [[r[i % len(r)] for r in rows] for i in range(max(map(len, rows)))]
        return [tuple(t.to(dtype) if t.is_floating_point() else t for t in row) for row in table]

    def sample_inputs(self, device: str, dtype: torch.dtype, requires_grad: bool) -> list[Any]:
        """One, as PyTorch's database has them, which takes seconds to import."""
        from torch.testing._internal.opinfo.core import SampleInput

        first, *rest = self.values(dtype)[0]
        return [SampleInput(first, args=tuple(rest))]


def calls() -> list[Call]:
    """All calls, in the order of the file."""
    table: dict[str, str] = {}
    for line in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            table[[*table][-1]] += line
        elif line and line[0] != "#":
            table[line] = ""
    made = []
    for expression, written in table.items():
        for how in (w.strip() for w in (written or "-").split("|")):
            given = re.sub(r",? ?(?<![\[, ])\.\.\.", "", expression)
            given = given if how == "-" else expression.replace("...", how, 1)
            made.append(given if "table[" in given else re.sub(r", \.\.\.", "", given))
    return [Call(m) for m in made]
