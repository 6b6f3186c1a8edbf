"""A session for tests of the client and the worker: it does what it is told, and no compiling."""

import os
import signal
import time
from typing import Any

from relascope.core.errors import EngineError
from relascope.engine.limits import limited
from relascope.engine.protocol.targets import EngineInfo
from relascope.engine.turns import TURNS, alone


class FakeSession:
    ir = "fake"

    def __init__(self) -> None:
        self.calls = 0

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
            with alone():  # inside of itself it waits for nobody
                pass
            assert TURNS.alone
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

    def do(self, code, *, progress) -> Any:
        """What a test's own code leaves as `result`."""
        found: dict[str, Any] = {}
        exec(code, found)
        return found.get("result")

    step = do

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


class BrokenSession:
    def __init__(self) -> None:
        raise EngineError("engine", "there is no compiler here", hint="install one")


class UnhappySession:
    def __init__(self) -> None:
        raise KeyError("surprise")
