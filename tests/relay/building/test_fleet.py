"""Relay's programs on a fleet."""

from fleets import FleetTests


class TestRelayOnAFleet(FleetTests):
    ir, other, library = "relay", "relax", "-libs=mkl"
