"""The types of a call to an engine and of its progress.

Every call (`engine.server.session.PipelineSession` lists them) is self-contained: nothing depends
on what an engine remembers."""

from collections.abc import Callable
from typing import Any

Progress = Callable[[float, str], None]
"""Called with how much is done (0 to 1) and with what is going on, in a few words."""


def part(progress: Progress, low: float, high: float) -> Progress:
    """A progress that fills only a part of another."""
    return lambda fraction, text: progress(low + (high - low) * fraction, text)


def silent(fraction: float, text: str) -> None:
    """A progress that reports to nobody."""


Ask = Callable[..., Any]
"""Called with the name of a session's function and its arguments; returns its answer."""
