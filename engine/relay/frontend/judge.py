"""A Relay module judged outside TVM: by PyTorch, operator by operator, in a process of its own.

PyTorch runs the same module in Relax, which another TVM reads; so it cannot judge without that TVM,
or if that TVM has no counterpart of an operator.
"""

from collections.abc import Callable
from functools import cache

import numpy as np

from relascope.engine.limits import uncounted
from relascope.engine.protocol.results import PYTORCHS_OPERATORS
from relascope.engine.server.program_model import Arrays, Beside, Judge

_process = cache(lambda: Beside("relascope.engine.relax.frontend.judging"))


def _asked(text: str, name: str, given: Arrays | None) -> tuple[str, list[np.ndarray]]:
    """What PyTorch has no counterpart of, and the results, if values are given."""
    question = {"text": text, "name": name, "names": None if given is None else [*given]}
    try:
        with uncounted("asking PyTorch, operator by operator"):
            words, results = _process().ask(question, (given or {}).values())
    except (OSError, ValueError):
        return "something that ends its process, or there is no TVM with Relax", []
    return words["why"], results


def judge_of(text: Callable[[], str], name: str, own: Arrays) -> Judge:
    """PyTorch as a module's judge; its process starts when it is first asked. `text` gives the
    typed module as TVM's JSON; `own` has values of the other arguments, by name."""
    text = cache(text)

    def run(given: Arrays) -> list[np.ndarray]:
        other, results = _asked(text(), name, {**own, **given})
        if other:
            raise NotImplementedError(other)
        return results

    return Judge(PYTORCHS_OPERATORS, run, cache(lambda: _asked(text(), name, None)[0]))
