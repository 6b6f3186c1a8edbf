"""Recordings of compiles: every pass that TVM runs, written to a file as it runs.

Imports only TVM and Python's own library, so that it works wherever a TVM does."""

from relascope.recorder.record import Record, recording

__all__ = ["Record", "recording"]
