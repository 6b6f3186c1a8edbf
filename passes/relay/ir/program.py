"""The value that Relay passes take and return."""

from __future__ import annotations

from relascope.passes.program import Mask, Program

__all__ = ["Mask", "RelayProgram"]


class RelayProgram(Program):
    """A typed Relay module. `provenance` is by what spans carry; see the importer."""
