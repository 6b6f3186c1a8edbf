"""Other inputs than a model's samples, of the same shapes: large, tiny, cancelling, edges."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from relascope.engine.protocol.source import INPUTS

_EDGES = (0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.0, -2.0, 2.5, -2.5, 3.0, -3.0, 6.0, -6.0)


def inputs_of(kind: str, samples: Iterable[torch.Tensor], seed: int) -> tuple[torch.Tensor, ...]:
    """Inputs of a kind in place of samples.

    What is drawn is the same numbers in each dtype. A mask stays as it is: bools, and what holds
    no more than two values. Other integers are drawn between the sample's least and greatest, or
    are those two, in turn, as edges.

    Args:
        kind: in `engine.protocol.source.INPUTS`, but its first.
    """
    generator = torch.Generator().manual_seed(seed)
    return tuple(_like(kind, sample, generator) for sample in samples)


def _like(kind: str, sample: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
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


def _normal(shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator)


def _cancelling(shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    """Neighbours whose sum is normal, and each a thousand times as large."""
    large = 1e3 * _normal(shape, generator).flatten()
    large[1::2] = -large[: len(large) // 2 * 2 : 2]
    return large.reshape(shape) + _normal(shape, generator)


def _in_turn(
    values: tuple[float, ...], shape: torch.Size, generator: torch.Generator
) -> torch.Tensor:
    """These values as often as one another, in any order."""
    order = torch.randperm(shape.numel(), generator=generator)
    return torch.tensor(values)[order % len(values)].reshape(shape)


_DRAWN: dict[str, Callable[[torch.Size, torch.Generator], torch.Tensor]] = dict(
    zip(
        INPUTS[1:],
        (
            _normal,
            lambda shape, generator: 1e4 * _normal(shape, generator),
            lambda shape, generator: 1e-30 * _normal(shape, generator),
            _cancelling,
            lambda shape, generator: _in_turn(_EDGES, shape, generator),
        ),
        strict=True,
    )
)
