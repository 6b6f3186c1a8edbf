"""A Relay module judged outside TVM: by PyTorch, operator by operator, in a process of its own.

PyTorch is asked through the same module in Relax, which another TVM reads; so it is no judge where
there is no such TVM, or where that has no counterpart of an operator.
"""

import atexit
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache

import numpy as np

from relascope.core.place import with_import_root
from relascope.engine.limits import uncounted
from relascope.engine.protocol.results import PYTORCHS_OPERATORS
from relascope.engine.server.program_model import Arrays, Judge, heard, said


class _Process:
    """The process that judges; started anew where it has ended."""

    def __init__(self) -> None:
        self._running: subprocess.Popen[bytes] | None = None

    def ask(self, text: str, name: str, given: Arrays | None) -> tuple[str, list[np.ndarray]]:
        """What PyTorch has no counterpart of, and the results, where values are given."""
        if self._running is None or self._running.poll() is not None:
            env = {**os.environ, "PYTHONPATH": with_import_root(os.environ.get("PYTHONPATH", ""))}
            command = [sys.executable, "-m", "relascope.engine.relax.frontend.judging"]
            pipe = subprocess.PIPE
            self._running = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=env)
            atexit.register(_end, self._running)
        into, out = self._running.stdin, self._running.stdout
        assert into is not None
        assert out is not None
        question = {"text": text, "name": name, "arrays": None if given is None else [*given]}
        try:
            into.write(said(question, (given or {}).values()))
            into.flush()
            with uncounted("asking PyTorch, operator by operator"):
                words, results = heard(out)
        except (OSError, ValueError):  # it has ended, or never began
            return "what ends its process, or there is no TVM with Relax", []
        return words["why"], results


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


_process = cache(_Process)


def judge_of(text: Callable[[], str], name: str, own: Arrays) -> Judge:
    """PyTorch as a module's judge; its process starts when it is first asked.

    Args:
        text: gives the typed module, as TVM's JSON.
        own: values of the arguments that are no inputs, by name.
    """
    text = cache(text)

    def run(given: Arrays) -> list[np.ndarray]:
        other, results = _process().ask(text(), name, {**own, **given})
        if other:
            raise NotImplementedError(other)
        return results

    return Judge(PYTORCHS_OPERATORS, run, cache(lambda: _process().ask(text(), name, None)[0]))
