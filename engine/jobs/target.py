"""Which target a job takes where none is named."""

from __future__ import annotations

from relascope.core.errors import EngineError
from relascope.engine.protocol.session import Ask


def first_target(ask: Ask) -> str:
    """The best target that runs here.

    Raises:
        EngineError: kind "target"; there is none.
    """
    here = [t.name for t in ask("describe").targets if t.runs_here]
    if not here:
        raise EngineError("target", "This machine can run none of the engine's targets.")
    return here[0]
