"""What keeps tests quick: a target that builds in half the time, and a slice of many cases."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

QUICK = "llvm -opt-level=0"
"""For tests of what is computed rather than of code: LLVM's optimiser is half of a build."""


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
