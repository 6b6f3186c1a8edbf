"""PyTorch as the judge of Relay's modules, for processes that hold a TVM with Relay.

    python -m relascope.engine.relax.frontend.judging

`engine.relay.frontend.judge` asks on the standard streams: {"text", "name", "arrays": names or
null} with the arrays. The answer is {"why"}, what PyTorch has no counterpart of, with the results.
"""

import contextlib
import os
import sys
from functools import lru_cache
from typing import Any

import numpy as np

from relascope.core.errors import EngineError
from relascope.engine.relax.frontend.by_operator import ByOperator, unknown
from relascope.engine.relax.frontend.from_relay import from_relay
from relascope.engine.server.program_model import heard, said


@lru_cache(4)
def _told(text: str, name: str) -> tuple[Any, str]:
    """A module in Relax, and what of it PyTorch has no counterpart of."""
    try:
        mod = from_relay(text, name)
    except EngineError as error:
        why = error.message.rstrip(".").partition("told in Relax: ")[2] or error.message
        operators = why.partition("has no counterpart here of ")[2]
        return None, operators or f"what Relax cannot hold ({why})"
    return mod, unknown(mod)


def main() -> None:
    """Answer until nobody asks."""
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with contextlib.suppress(ValueError):  # nobody asks any more
        while True:
            question, values = heard(sys.stdin.buffer)
            names = question.pop("arrays")
            mod, why = _told(**question)
            results: list[np.ndarray] = []
            if names is not None and not why:
                try:
                    results = ByOperator(mod, {})(dict(zip(names, values, strict=True)))
                except NotImplementedError as other:
                    why = str(other)
            answer.write(said({"why": why}, results))
            answer.flush()


if __name__ == "__main__":
    main()
