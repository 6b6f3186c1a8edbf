"""Relax's programs on a fleet."""

import pytest

from fleets import FleetTests
from relascope.engine.relax.session import RelaxSession


class TestRelaxOnAFleet(FleetTests):
    ir, other, library = "relax", "relay", "-libs=blas"

    @pytest.fixture(scope="class")
    @classmethod
    def session(cls):
        return RelaxSession()
