"""PyTorch as the judge of Relay's modules, for processes that hold a TVM with Relay.

    python -m relascope.engine.relax.frontend.judging

`engine.relay.frontend.judge` sends a module's JSON, its file's name, and the names of the arrays,
or None. The answer is {"why"}, the operators without a counterpart in PyTorch, and the results."""

from functools import lru_cache
from typing import Any

import numpy as np

from relascope.core.errors import EngineError
from relascope.engine.relax.frontend.by_operator import ByOperator, unknown
from relascope.engine.relax.frontend.from_relay import from_relay
from relascope.engine.server.program_model import answering


@lru_cache(4)
def _told(text: str, name: str) -> tuple[Any, str]:
    """A module in Relax, and its operators without a counterpart in PyTorch."""
    try:
        mod = from_relay(text, name)
    except EngineError as error:
        why = error.message.rstrip(".").partition(" to Relax: ")[2] or error.message
        operators = why.partition("no counterpart in Relax is known for ")[2]
        return None, operators or f"what Relax cannot express ({why})"
    return mod, unknown(mod)


def _judged(
    arrays: list[np.ndarray], text: str, name: str, names: list[str] | None
) -> tuple[dict[str, str], list[np.ndarray]]:
    mod, why = _told(text, name)
    if names is None or why:
        return {"why": why}, []
    try:
        return {"why": ""}, ByOperator(mod, {})(dict(zip(names, arrays, strict=True)))
    except NotImplementedError as other:
        return {"why": str(other)}, []


if __name__ == "__main__":
    answering(lambda: _judged)
