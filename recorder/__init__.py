"""Recordings of compiles: every pass that TVM runs, as it runs, in a file.

Imports nothing but TVM and Python's own library, so that it works wherever a TVM does.
"""

from relascope.recorder.record import Record, recording

__all__ = ["Record", "recording"]
