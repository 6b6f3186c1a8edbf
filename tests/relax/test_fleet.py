"""Relax's programs on a fleet."""

import pytest

from engine.relax.session import RelaxSession
from tests.fleets import FleetTests


class TestRelaxOnAFleet(FleetTests):
    ir, other, library = "relax", "relay", "-libs=blas"

    @pytest.fixture(scope="class")
    @classmethod
    def session(cls):
        return RelaxSession()
