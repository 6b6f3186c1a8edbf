"""Relay's programs on a fleet."""

import pytest

from engine.relay.session import RelaySession
from tests.fleets import FleetTests


class TestRelayOnAFleet(FleetTests):
    ir, other, library = "relay", "relax", "-libs=mkl"

    @pytest.fixture(scope="class")
    @classmethod
    def session(cls):
        return RelaySession()
