"""A program small enough to read on which a pass shows what it does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from relascope.passes.program import Program


@dataclass(frozen=True)
class Example:
    """What a pass is shown on.

    Args:
        program: typed; what the pass needs to have run before it has run.
        params: of the pass, as a pipeline's text has them.
        differs: why the program computes something else after the pass, on purpose; "" where it
            computes the same.
    """

    program: Program
    params: tuple[tuple[str, str], ...] = ()
    differs: str = ""


Make = Callable[[str], Example]
"""Builds an example whose floating tensors have a dtype: "float32" or "float64"."""


def draw(name: str, *shape: int, dtype: str) -> np.ndarray:
    """Values between 0.5 and 1.5, the same for the same name; no variance is below 0 so."""
    seed = int.from_bytes(name.encode(), "little") % 2**32
    return np.random.default_rng(seed).uniform(0.5, 1.5, shape).astype(dtype)
