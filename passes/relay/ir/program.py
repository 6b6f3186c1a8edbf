"""The value that Relay passes take and return."""

from relascope.passes.program import Mask, Program

__all__ = ["Mask", "RelayProgram"]


class RelayProgram(Program):
    """A typed Relay module. `provenance` is by the keys in spans; see the importer."""
