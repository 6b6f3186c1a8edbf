"""The user's own test: a program whose exit status says whether a module is good or bad.

It runs with the user's rights, outside the engine's sandbox, so only the command line may name it,
never an opened file."""

import os
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relascope.core.errors import EngineError, ending
from relascope.core.scratch import Scratch
from relascope.engine.protocol.fault import ModuleFiles, ScriptRun

SECONDS = 60.0
"""The time limit of one run."""

_OUTPUT = 4000  # bytes that are kept of what it prints
_START = "Begin it with a line such as #!/bin/sh, and make it executable with chmod +x."


@dataclass(frozen=True)
class OwnTest:
    """A test; a run longer than `seconds` is stopped, and bad."""

    path: str
    seconds: float = SECONDS

    @classmethod
    def of(cls, path: Path, seconds: float = SECONDS) -> "OwnTest":
        """The test in a file. Raises EngineError of kind "usage" where there is no such file, or it
        cannot be executed."""
        if not path.is_file():
            hint = "Give the path of a script or another program."
            raise EngineError("usage", "There is no such test file.", str(path), hint)
        if not os.access(path, os.X_OK):
            raise EngineError("usage", "The test is not executable.", str(path), _START)
        return cls(str(path.resolve()), seconds)

    def run(self, judged: ModuleFiles, before: ModuleFiles) -> ScriptRun:
        """Run it in a new folder with the files of both. Its first argument is the name of the
        module `judged`, the second that of the module `before` the passes. Raises EngineError of
        kind "usage" where it cannot be started, or does not end with an exit status below 128."""
        with Scratch() as folder, tempfile.TemporaryFile() as output:
            for name, content in {**before.files, **judged.files}.items():
                Path(folder, name).write_bytes(content)
            paths = [os.path.join(folder, one.name) for one in (judged, before)]
            began = time.perf_counter()
            try:
                how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": output, "cwd": folder}
                how |= {"stderr": subprocess.STDOUT, "start_new_session": True}
                process = subprocess.Popen([self.path, *paths], **how)
            except OSError as wrong:
                message = f"The test cannot be started: {wrong.strerror}."
                raise EngineError("usage", message, self.path, _START) from wrong
            status: int | None = None
            try:
                with suppress(subprocess.TimeoutExpired):
                    status = process.wait(self.seconds)
            finally:
                with suppress(ProcessLookupError):  # and with it what it started
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            seconds = time.perf_counter() - began
            output.seek(max(0, output.seek(0, os.SEEK_END) - _OUTPUT))
            printed = output.read().decode("utf-8", "replace")
        if status is not None and not 0 <= status < 128:
            ended = f"{'signal ' if status < 0 else ''}{ending(status)}"
            message = f"The test ended with {ended}, which means neither good nor bad."
            hint = "Exit with 0 (good), 1 to 124 (bad) or 125 (cannot be judged). Its output ends: "
            raise EngineError("usage", message, self.path, hint + (printed[-400:] or "(none)"))
        return ScriptRun(status, seconds, printed)
