"""Values that Relay's backward computes more than once."""

import pytest

import per_use
from grammar import RandomModule
from quick import QUICK
from relascope.engine.cpu_kernels.schedules import SCHEDULES

OURS = f"llvm {SCHEDULES}"


@pytest.mark.parametrize("target", [QUICK, OURS])
def test_gradients_have_the_same_bits_and_are_pytorchs(target):
    per_use.check_layers(target)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(40))
def test_modules_drawn_at_random_give_the_same_but_for_roundings(seed):
    """Relay fuses operators otherwise where a value has a copy, and a kernel then rounds otherwise:
    of 40 modules, 4 differ by about one rounding."""
    per_use.check_random(RandomModule(seed), QUICK, roundings=4)


@pytest.mark.exhaustive
def test_the_measured_peak_falls_if_less_than_the_estimate():
    """Relay's convolutions copy what they read into tiles, which the estimate does not count."""
    (once, estimated), (often, lower) = per_use.peaks(OURS)
    assert often < once and lower < 0.9 * estimated
