"""Relay's programs on a fleet."""

import pytest

from fleets import FleetTests
from relascope.engine.relay.session import RelaySession


class TestRelayOnAFleet(FleetTests):
    ir, other, library = "relay", "relax", "-libs=mkl"

    @pytest.fixture(scope="class")
    @classmethod
    def session(cls):
        return RelaySession()
