"""Values that Relay's backward computes more than once."""

import pytest

import per_use
from quick import QUICK
from relascope.engine.cpu_kernels.schedules import SCHEDULES

OURS = f"llvm {SCHEDULES}"


@pytest.mark.parametrize("target", [QUICK, OURS])
def test_gradients_have_the_same_bits_and_are_pytorchs(target):
    per_use.check_layers(target)
