"""Inputs other than a model's samples, of the same shapes: large, tiny, cancelling, edges, …"""

from collections.abc import Callable, Collection, Sequence
from functools import partial

import torch
from torch import Tensor

from relascope.engine.protocol.source import INPUTS

_EDGES = (0.0, -0.0, *(s * v for v in (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 6.0) for s in (1, -1)))
_EDGES += tuple(s * v for v in (0.3, 0.35, 0.4, 0.45) for s in (1, -1))  # where series change
_INTEGERS = (0, 1, -1, 2, *(v for p in (31, 53) for v in (2**p - 1, 2**p, 2**p + 1, -(2**p) - 1)))
_WIDE = {"large": 2**55, "edges": 0}  # kinds in which integers leave the sample's range
_Drawn = Callable[[torch.Size, torch.Generator], Tensor]
_NOT_FINITE = (float("nan"), float("inf"), -float("inf"))


def inputs_of(
    kind: str,
    samples: Sequence[Tensor],
    seed: int,
    names: Sequence[str] = (),
    rows: dict[str, int] | None = None,
    runs: Callable[[tuple[Tensor, ...]], bool] | None = None,
) -> tuple[Tensor, ...]:
    """Inputs of a kind in place of samples, with the same numbers in each dtype.

    Masks stay: bools, inputs named so, and tensors of at most two values except integers 0 and 1.
    Other integers are drawn between the sample's minimum and maximum, or alternate these as edges.

    Large integers and edges leave that range if the model runs on them: far beyond 2**53, and
    around the limits of types. Indices of rows stay valid, and as edges also count from the last
    row. Edges are not contiguous if the model runs on such tensors.

    `kind` is one of `engine.protocol.source.INPUTS` except the first; `rows` has the number of rows
    that the model looks up with inputs of these names, if known; `runs` says whether it runs on
    such inputs, and None leaves that untried."""
    counts = [(rows or {}).get(n) for n in names] or [None] * len(samples)

    def drawn(wide: Collection[int]) -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(seed)
        found = []
        for index, (sample, count) in enumerate(zip(samples, counts, strict=True)):
            if index in wide:
                found.append(_integers(kind, sample, count, generator))
            else:
                found.append(_like(kind, sample, generator))
        return tuple(found)

    inputs = drawn(())
    if runs is None or kind not in _WIDE:
        return inputs
    free = [i for i, one in enumerate(zip(samples, names, strict=True)) if _free(*one)]
    free = [i for i in free if counts[i] is None or kind == "edges"]
    wide = {i for i in free if runs(drawn({i}))}
    if wide and runs(drawn(wide)):
        inputs = drawn(wide)
    if kind == "edges":  # in every second place of memory, a stride that kernels must respect
        apart = tuple(torch.stack((t, t), -1)[..., 0] for t in inputs)
        inputs = apart if runs(apart) else inputs
    return inputs


def _free(sample: Tensor, name: str) -> bool:
    """Whether integers may leave the sample's range, by their name and values."""
    if sample.is_floating_point() or sample.is_complex() or sample.dtype == torch.bool:
        return False
    few = len(known := sample.unique()) <= 2 < sample.numel()
    return "mask" not in name.lower() and (not few or set(known.tolist()) <= {0, 1})


def _integers(kind: str, sample: Tensor, rows: int | None, generator: torch.Generator) -> Tensor:
    """Integers that leave the sample's range; see `inputs_of`."""
    if rows is not None:
        return _in_turn((-rows, -1, 0, rows - 1), sample.shape, generator).to(sample.dtype)
    ends = torch.iinfo(sample.dtype)
    if kind == "edges":
        fitting = tuple(dict.fromkeys(v for v in _INTEGERS if ends.min <= v <= ends.max))
        return _in_turn(fitting, sample.shape, generator).to(sample.dtype)
    least, most = max(ends.min // 2, -_WIDE[kind]), min(ends.max // 2, _WIDE[kind])
    found = torch.randint(least, most, sample.shape, generator=generator)
    return (found | 1).to(sample.dtype)  # odd ones beyond 2**53 are not exact in float64


def _like(kind: str, sample: Tensor, generator: torch.Generator) -> Tensor:
    known = sample.unique()
    if sample.dtype == torch.bool or (len(known) <= 2 < sample.numel()):
        return sample
    shape = sample.shape
    if sample.is_floating_point():
        return _DRAWN[kind](shape, generator).to(sample.dtype)
    least, most = int(known[0]), int(known[-1])
    if kind == "edges":
        return _in_turn((least, most), shape, generator).to(sample.dtype)
    return torch.randint(least, most + 1, shape, generator=generator).to(sample.dtype)


def _normal(shape: torch.Size, generator: torch.Generator, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(shape, generator=generator)


def _cancelling(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Neighbours whose sum is normal, and which are each a thousand times as large."""
    large = 1e3 * _normal(shape, generator).flatten()
    large[1::2] = -large[: len(large) // 2 * 2 : 2]
    return large.reshape(shape) + _normal(shape, generator)


def _in_turn(values: Sequence[float], shape: torch.Size, generator: torch.Generator) -> Tensor:
    order = torch.randperm(shape.numel(), generator=generator)
    return torch.tensor(values)[order % len(values)].reshape(shape)


def _edges(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Edges in pairs of equal neighbours."""
    half = torch.Size([-(-shape.numel() // 2)])
    ties = _in_turn(_EDGES, half, generator).repeat_interleave(2)
    return ties[: shape.numel()].reshape(shape)


def _from(least: float, most: float, shape: torch.Size, generator: torch.Generator) -> Tensor:
    size = least + (most - least) * torch.rand(shape, generator=generator)
    return size * (2 * torch.randint(2, shape, generator=generator) - 1)


def _nonfinite(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Normal numbers, except for one contiguous eighth, a third each of NaN, inf and -inf, so that
    some rows stay finite."""
    found, size = _normal(shape, generator).flatten(), shape.numel()
    count = min(size, max(3, size // 8))
    first = int(torch.randint(size - count + 1, (1,), generator=generator))
    found[first : first + count] = torch.tensor(_NOT_FINITE)[torch.arange(count) * 3 // count]
    return found.reshape(shape)


_WAYS: tuple[_Drawn, ...] = (
    *(_normal, partial(_normal, scale=1e4), partial(_normal, scale=1e-30), _cancelling, _edges),
    *(partial(_from, 88.0, 89.0), partial(_from, 0.5e38, 1.5e38), _nonfinite),
)
_DRAWN = dict(zip(INPUTS[1:], _WAYS, strict=True))
