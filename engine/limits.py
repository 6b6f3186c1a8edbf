"""Limits of what passes, builds and calls may take; crossing one is told like any error.

An engine says when a pass or a build begins and ends (`limited`). `engine.client`, in another
process, watches it there: where it crosses a limit the process is ended, and a new one is asked the
same again, which raises at that place instead of going on. So nothing is lost but time, and a pass
that never ends is a step that failed, as one that raises is. A whole call has a limit, too, by its
kind, for what hangs between passes and builds.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relascope.core.errors import EngineError, refusing

MIB = 1 << 20
SECONDS, MEMORY = "RELASCOPE_LIMIT_SECONDS", "RELASCOPE_LIMIT_MEMORY"
CALLS, IDLE = "RELASCOPE_LIMIT_CALLS", "RELASCOPE_IDLE_SECONDS"
"""Environment variables with the page's limits; `CALLS` as "import=60,build=600"."""

KINDS = {"start": 180.0, "import": 900.0, "passes": 3600.0, "build": 7200.0, "tune": 0.0}
"""Kinds of calls, and the seconds that each may take where the page is not told otherwise."""

_IDLE = 60.0  # s

_PASSES = (
    "describe target example pass_tests step graph_after text split kernels torch_saved "
    "applications verify"
)
_KINDS = {
    **dict.fromkeys(("load", "modules", "models", "inputs"), "import"),
    "tune": "tune",
    **dict.fromkeys(_PASSES.split(), "passes"),
}


def kind_of(method: str) -> str:
    """The kind in `KINDS` of a call, by the session's method."""
    return _KINDS.get(method, "build")


def calls_of(text: str) -> dict[str, float]:
    """Limits of calls, such as "import=60,build=600".

    Raises:
        ValueError: it cannot be read so.
    """
    found = {}
    for part in filter(None, text.split(",")):
        kind, _, seconds = part.strip().partition("=")
        if kind not in KINDS or not 0 <= float(seconds) < float("inf"):
            raise ValueError(f"{part} is not KIND=SECONDS with one of {', '.join(KINDS)}")
        found[kind] = float(seconds)
    return found


@dataclass(frozen=True)
class Unit:
    """A pass or a build under way.

    Args:
        what: it is, at the head of a sentence.
        where: as of an EngineError.
        kind: of the error where it crosses a limit.
        key: tells it from others, in each process alike.
        seconds: that it may take by itself, whatever the limits are; 0 where they alone count.
    """

    what: str
    where: str
    kind: str
    key: str
    seconds: float = 0.0


@dataclass(frozen=True)
class Limits:
    """What one unit may take; 0 is no limit.

    Args:
        seconds: of wall clock.
        memory: MiB of the process's own memory, beyond what it had when the unit began. A GPU's
            does not count.
        calls: seconds of a whole call, by its kind.
        idle: seconds after which an engine rests that is asked nothing.
    """

    seconds: float = 0.0
    memory: float = 0.0
    calls: Mapping[str, float] = field(default_factory=dict)
    idle: float = 0.0

    def crossed(self, unit: Unit, seconds: float, taken: int) -> EngineError | None:
        """The error to raise at a unit that takes too much, else None.

        Args:
            taken: bytes.
        """
        if 0 < unit.seconds < seconds:
            said, option = f"took longer than {unit.seconds:.0f} s", "RELASCOPE_OPEN_SECONDS"
        elif 0 < self.seconds < seconds:
            said, option = f"took longer than {self.seconds:g} s", "--limit-seconds"
        elif 0 < self.memory * MIB < taken:
            said, option = f"took more than {self.memory:g} MiB of memory", "--limit-memory"
        else:
            return None
        hint = f"Look for what does not end in it, or give another limit: {option}."
        message = f"{unit.what} {said}, the limit, and was stopped."
        return EngineError(unit.kind, message, unit.where, hint)

    def overdue(self, kind: str, method: str, seconds: float) -> EngineError | None:
        """The error of a call that takes too long, else None.

        Args:
            kind: of the call, or "start" before it began.
        """
        most = self.calls.get(kind, 0.0)
        if not 0 < most < seconds:
            return None
        message = f"{method} took longer than {most:g} s, the limit of {kind}, and was stopped."
        hint = f"Give another limit: under Limits on the page, or --limit-calls {kind}=SECONDS."
        return EngineError("engine", message, method, hint)


NO_LIMITS = Limits()


@dataclass
class Watched:
    """Who watches this process; nobody does in a script.

    Args:
        tell: called with a unit that begins, and with None where it ends.
        crossed: what to raise at units that crossed a limit before.
    """

    tell: Callable[[Unit | None], None] = lambda unit: None
    crossed: Mapping[Unit, EngineError] = field(default_factory=dict)


WATCHED = Watched()


@contextmanager
def limited(what: str, where: str, kind: str, *about: Any, seconds: float = 0.0) -> Iterator[None]:
    """Run a unit within limits.

    Args:
        what, where, kind, seconds: as of `Unit`.
        about: plain data that tells it from other units.

    Raises:
        EngineError: of this kind; it crossed a limit before.
    """
    unit = Unit(what, where, kind, repr(about), seconds)
    if unit in WATCHED.crossed:
        raise EngineError(*WATCHED.crossed[unit].__reduce__()[1])
    WATCHED.tell(unit)
    try:
        yield
    finally:
        WATCHED.tell(None)


def resident(pid: int) -> int:
    """Bytes of memory that a process has now; 0 where that is not known.

    Address space (RLIMIT_AS) says little of it: our stack of 1 GiB, each thread's arena, CUDA and
    mapped libraries reserve far more than they use, and TVM ends the process where a reservation
    fails. So what is used is looked at from outside.
    """
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except FileNotFoundError:  # macOS
        done = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True)
        return int(done.stdout.strip() or 0) * 1024
    except (OSError, IndexError):  # it has just ended
        return 0


def halted(pid: int) -> bool:
    """Whether a process is stopped by a signal (SIGSTOP); False where that is not known."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except (OSError, IndexError):
        return False


def out_of_memory() -> int:
    """How many processes the kernel has ended because memory ran out; 0 where it does not say."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


def of_page() -> Limits:
    """The page's: a quarter of an hour and three quarters of the machine's memory for a unit, and
    `KINDS`, if nothing else is said where it is started.

    Raises:
        EngineError: kind "usage"; what is said is no limit.
    """
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / MIB
    names = ", ".join((SECONDS, MEMORY, CALLS, IDLE))
    with refusing("usage", "a limit cannot be read: {}.", names, "Start the page with another."):
        given = (float(os.environ.get(name) or 0) for name in (SECONDS, MEMORY, IDLE))
        seconds, memory, idle = given
        calls = {**KINDS, **calls_of(os.environ.get(CALLS, ""))}
    return Limits(seconds or 900.0, memory or round(0.75 * whole), calls, idle or _IDLE)
