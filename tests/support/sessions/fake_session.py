"""A session for tests of the client and the worker: it does what it is told, and no compiling."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from relascope.core.errors import EngineError
from relascope.engine.limits import limited
from relascope.engine.protocol.targets import EngineInfo
from relascope.engine.turns import alone


class FakeSession:
    ir = "fake"

    def __init__(self) -> None:
        self.calls = 0
        self.models: list[int] = []

    def describe(self, *, progress) -> EngineInfo:
        return EngineInfo("fake", "0", str(os.getpid()), ())

    def echo(self, value: Any, *, progress, twice: bool = False) -> Any:
        self.calls += 1
        return (value, value) if twice else value

    def count(self, *, progress) -> int:
        self.calls += 1
        return self.calls

    def timed(self, seconds: float, *, progress) -> str:
        with alone():
            progress(0.5, "timing")
            time.sleep(seconds)
        return "timed"

    def climb(self, steps: int, pause: float, *, progress) -> int:
        for i in range(steps):
            progress((i + 1) / steps, f"step {i + 1}")
            time.sleep(pause)
        return steps

    def sleep(self, seconds: float, *, progress) -> None:
        progress(0.5, "asleep")
        time.sleep(seconds)

    def hold(self, path: str, *, progress) -> None:
        """Go on once there is a file of this name."""
        progress(0.5, "held")
        while not os.path.exists(path):
            time.sleep(0.005)

    def refuse(self, *, progress) -> None:
        raise EngineError("operator", "no such operator", where="aten::foo", hint="do without")

    def fail(self, message: str, *, progress) -> None:
        raise ValueError(message)

    step = fail

    def recurse(self, *, progress) -> None:
        self.recurse(progress=progress)

    def leave(self, *, progress) -> None:
        raise SystemExit(3)

    def hard_exit(self, status: int, *, progress) -> None:
        print("about to go", file=sys.stderr, flush=True)
        os._exit(status)

    def crash(self, *, progress) -> None:
        """Crash as compiled code does, in the thread that does the work."""
        ctypes.string_at(0)

    def unit(self, wait: float, size: int, *, progress) -> str:
        """Work within limits, one unit after another: the first takes time and memory."""
        said = "done"
        try:
            with limited("The first", "here", "pass", wait, size):
                held = b"x" * size
                time.sleep(wait)
                del held
        except EngineError as error:
            said = error.message
        with limited("The second", "there", "engine"):
            return said

    def crash_over(self, name: str, *, progress) -> None:
        """Die as a reader does over a damaged file."""
        with limited(f"Opening {name}", name, "file", final=True):
            os.kill(os.getpid(), signal.SIGSEGV)
            time.sleep(60)

    def spin(self, *, progress) -> None:
        """Never end, after a unit inside has ended."""
        with limited("Opening it", "file.pt", "file", seconds=0.2, final=True):
            with limited("The inner", "there", "pass"):
                pass
            while True:
                pass

    def kill(self, number: int, *, progress) -> None:
        """End by a signal from without."""
        os.kill(os.getpid(), number)
        time.sleep(10)

    def chatter(self, *, progress) -> str:
        print("on stdout")
        sys.stdout.flush()
        os.write(1, b"on descriptor 1\n")
        subprocess.run(["echo", "from a process"], check=True)
        return "said"

    def unpicklable(self, *, progress) -> Any:
        return threading.Lock()

    def foreign(self, *, progress) -> Any:
        """Something whose unpickling would import torch."""
        import torch

        return torch.float32

    def fork(self, *, progress) -> int:
        """Leave a copy of this process behind, with all that is open in it."""
        copy = os.fork()
        if copy == 0:
            time.sleep(60)
            os._exit(0)
        return copy

    def diagnose(self, *, progress) -> None:
        """What TVM does for a program whose types do not fit: the words go to standard error."""

        class DiagnosticError(Exception):
            pass

        print("\x1b[31merror: \x1b[0mthe shapes (2,) and (3,) do not fit", file=sys.stderr)
        print(" --> from_string:3:5", file=sys.stderr, flush=True)
        raise DiagnosticError("check diagnostic render for output")

    def environment(self, name: str, *, progress) -> str | None:
        return os.environ.get(name)

    def dive(self, depth: int, *, progress) -> int:
        """Recurse in C, as TVM's visitors do, `depth` times: libc compiles nested groups so."""
        compiled = ctypes.create_string_buffer(4096)
        extended = 1
        return ctypes.CDLL(None).regcomp(compiled, b"(" * depth + b"x" + b")" * depth, extended)


class BrokenSession:
    def __init__(self) -> None:
        raise EngineError("engine", "there is no compiler here", hint="install one")


class UnhappySession:
    def __init__(self) -> None:
        raise KeyError("surprise")
