"""What tests pass for `progress`, how an engine refuses, and what a process of its own says."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
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


def engine(**answers: Any) -> Callable[..., Any]:
    """What jobs ask, without an engine: by method a value, or a function of what is given; the
    methods are in `asked`."""
    asked: list[str] = []

    def ask(method: str, *given: Any) -> Any:
        asked.append(method)
        found = answers[method]
        return found(*given) if callable(found) else found

    ask.asked = asked  # type: ignore[attr-defined]
    return ask


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


def ran(*command: object, **how: Any) -> subprocess.CompletedProcess[str]:
    """A process that has ended, with what it printed; `how` has `cwd`, `env` or `timeout`."""
    how = {"capture_output": True, "text": True, "timeout": 600, **how}
    return subprocess.run([str(word) for word in command], **how)


def answer(code: str, ours: Mapping[str, str] = os.environ, **environment: str):
    """What a process of its own prints last, as JSON; it has these variables beside `ours`."""
    variables = {**ours, "PYTHONPATH": str(ROOT), **environment}
    done = ran(sys.executable, "-c", code, env=variables)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def assembled(text: str, bits: int = 64) -> bytes:
    """The object file of a text in assembly."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "made.o")
        subprocess.run(["as", f"--{bits}", "-o", made], input=text, text=True, check=True)
        return made.read_bytes()
