"""Recordings of Relay's compiles."""

from recordings import *  # noqa: F403
