"""What tests pass for `progress`, how an engine refuses, and what a process of its own says."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from place import ROOT
from relascope.core.errors import EngineError


def quiet(fraction: float, text: str) -> None:
    """Say nothing; what it is told must be a share and words."""
    assert 0 <= fraction <= 1
    assert isinstance(text, str)


def asking(session: Any) -> Callable[..., Any]:
    """What jobs ask with, of a session in this process."""
    return lambda method, *given: getattr(session, method)(*given, progress=quiet)


@contextmanager
def refused(
    kind: str = "", match: str = "", *, where: str = "", says: str = "", hint: str = ""
) -> Iterator[pytest.ExceptionInfo[EngineError]]:
    """What is done in it ends in an EngineError.

    Args:
        kind, where: of the error; "" is any; `where` may leave out the line.
        match: a pattern that its message has.
        says, hint: texts that message and hint have."""
    with pytest.raises(EngineError, match=match or None) as caught:
        yield caught
    error = caught.value
    assert kind in ("", error.kind), error
    assert where in ("", error.where, error.where.partition(", ")[0]), error
    assert says in error.message, error
    assert hint in error.hint, error


def answer(code: str, ours: Mapping[str, str] = os.environ, **environment: str):
    """What a process of its own prints last, as JSON; it has these variables beside `ours`."""
    variables = {**ours, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
