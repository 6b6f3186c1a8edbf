"""What asking an engine and its progress look like.

Every call (`engine.server.session.PipelineSession` lists them) is complete: nothing depends on what
an engine remembers.
"""

from collections.abc import Callable
from typing import Any

Progress = Callable[[float, str], None]
"""Called with how much is done (0 to 1) and what is being done, in a few words."""


def part(progress: Progress, low: float, high: float) -> Progress:
    """A progress that fills only a part of another."""
    return lambda fraction, text: progress(low + (high - low) * fraction, text)


def silent(fraction: float, text: str) -> None:
    """A progress that nobody watches."""


Ask = Callable[..., Any]
"""Called with the name of a session's function and its arguments; returns its answer."""
