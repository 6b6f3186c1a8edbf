"""What keeps tests quick: a target that builds in half the time, small peaks, a slice of cases."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any
from unittest.mock import patch

import pytest

from relascope.engine.measure import peaks

QUICK = "llvm -opt-level=0"
"""For tests of what is computed rather than of code: LLVM's optimiser is half of a build."""


def small_peaks() -> Any:
    """While it is entered, peaks are measured on sizes that take no time, and mean nothing."""
    sizes = {"_SMALLEST": 2**12, "_LEAST_LARGEST": 2**14, "_MOST_LARGEST": 2**14}
    times = {"_BLOCK_SECONDS": 1e-4, "_BUDGET_SECONDS": 0.05}
    return patch.multiple(peaks, _SIDES={"cpu": (16, 32), "cuda": (16, 32)}, **sizes, **times)


def combinations(*axes: Sequence[Any]) -> list[Any]:
    """All combinations, as parameters of a test.

    By default only those run that the axes give when all are walked in step, the shorter ones
    again and again, so that each value is in one at least; the others are exhaustive.
    """
    longest = max(map(len, axes))
    default = [tuple(i % len(a) for a in axes) for i in range(longest)]
    return [
        pytest.param(
            *(axis[i] for axis, i in zip(axes, places, strict=True)),
            marks=() if places in default else pytest.mark.exhaustive,
        )
        for places in product(*(range(len(a)) for a in axes))
    ]
