"""Relax's programs on a fleet."""

from fleets import FleetTests


class TestRelaxOnAFleet(FleetTests):
    ir, other, library = "relax", "relay", "-libs=blas"
