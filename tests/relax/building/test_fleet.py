"""Relax's programs on a fleet."""

import pytest

from fleets import FleetTests


class TestRelaxOnAFleet(FleetTests):
    ir, other, library = "relax", "relay", "-libs=blas"


# Relay's is quicker.
pytest.mark.exhaustive(
    TestRelaxOnAFleet.test_kernels_are_tuned_there_and_built_with_for_there_alone
)
