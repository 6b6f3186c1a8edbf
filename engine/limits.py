"""Limits of passes, builds, files and calls; crossing one is an error like others.

An engine reports when a unit (a pass, a build, opening a file) begins and ends (`limited`).
`engine.supervisor` measures it from outside and ends the process if it crosses a limit. A final
unit fails the call; else a new process gets the same request, and raises at that unit.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from relascope.core.errors import EngineError, refusing

MIB = 1 << 20
SECONDS, MEMORY = "RELASCOPE_LIMIT_SECONDS", "RELASCOPE_LIMIT_MEMORY"
CALLS, IDLE = "RELASCOPE_LIMIT_CALLS", "RELASCOPE_IDLE_SECONDS"
"""Environment variables with the page's limits; `CALLS` as "import=60,build=600"."""

KINDS = {"start": 180.0, "import": 900.0, "passes": 3600.0, "build": 7200.0, "tune": 0.0}
"""Kinds of calls, and the default limit of each on the page in seconds; 0 is none."""

_IDLE = 60.0  # s
_PATIENCE = 10.0  # times its limit that a unit may wait for a processor

_PASSES = (
    "describe target example pass_tests overlays step graph_after text split kernels torch_saved "
    "applications verify written"
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
    """Limits of calls, such as "import=60,build=600". Raises ValueError for another form."""
    found = {}
    for part in filter(None, text.split(",")):
        kind, _, seconds = part.strip().partition("=")
        if kind not in KINDS or not 0 <= float(seconds) < float("inf"):
            raise ValueError(f"{part} is not KIND=SECONDS, with KIND one of {', '.join(KINDS)}")
        found[kind] = float(seconds)
    return found


@dataclass(frozen=True)
class Unit:
    """A pass or a build under way. `what` begins the message, and `kind` is the kind, of the error
    where it crosses a limit. `seconds` of processor time and bytes of `memory` are limits of its
    own, beside the others; 0 is none. `final` says whether the call fails with it."""

    what: str
    where: str
    kind: str
    key: str
    seconds: float = 0.0
    memory: int = 0
    final: bool = False


@dataclass(frozen=True)
class Usage:
    """Seconds of wall clock and of all processors, and bytes, that a process and its children have
    used."""

    wall: float = 0.0
    processor: float = 0.0
    memory: int = 0

    def __sub__(self, other: "Usage") -> "Usage":
        wall, processor = self.wall - other.wall, self.processor - other.processor
        return Usage(wall, processor, self.memory - other.memory)


@dataclass(frozen=True)
class Limits:
    """Limits of one unit; 0 is none. `seconds` is wall-clock time, `memory` is MiB of the process
    (not of a GPU) beyond what it had when the unit began; `calls` has the seconds of a whole call
    by its kind, `idle` those without a request after which an engine rests."""

    seconds: float = 0.0
    memory: float = 0.0
    calls: Mapping[str, float] = field(default_factory=dict)
    idle: float = 0.0

    def crossed(self, unit: Unit, used: Usage) -> EngineError | None:
        """The error of a unit that has used too much, else None.

        A unit's own seconds count wall-clock time while the process gets a processor, and
        processor time while it waits for one, up to `_PATIENCE` times as long.
        """
        seconds = max(min(used.wall, used.processor), used.wall / _PATIENCE)
        if 0 < unit.seconds < seconds:
            reason, option = f"took longer than {unit.seconds:.0f} s", "RELASCOPE_OPEN_SECONDS"
        elif 0 < unit.memory < used.memory:
            reason = f"took more than {unit.memory // MIB:,} MiB of memory"
            option = "RELASCOPE_OPEN_MEMORY"
        elif 0 < self.seconds < used.wall:
            reason, option = f"took longer than {self.seconds:g} s", "--limit-seconds"
        elif 0 < self.memory * MIB < used.memory:
            reason = f"took more than {self.memory:g} MiB of memory"
            option = "--limit-memory"
        else:
            return None
        hint = f"Find what takes so much, or raise the limit: {option}."
        message = f"{unit.what} {reason}, the limit, and was stopped."
        return EngineError(unit.kind, message, unit.where, hint)

    def overdue(self, kind: str, method: str, seconds: float) -> EngineError | None:
        """The error of a call that takes too long, else None; `kind` is "start" before it began."""
        most = self.calls.get(kind, 0.0)
        if not 0 < most < seconds:
            return None
        message = f"{method} took longer than {most:g} s, the limit of {kind}, and was stopped."
        hint = f"Raise the limit: under Limits on the page, or by --limit-calls {kind}=SECONDS."
        return EngineError("engine", message, method, hint)


NO_LIMITS = Limits()


def limit_crossed(error: EngineError) -> str:
    """Which limit of a unit an error says was crossed: "seconds", "memory", or "" for none."""
    if not error.message.endswith(", the limit, and was stopped."):
        return ""
    return "memory" if "MiB of memory" in error.message else "seconds"


@dataclass
class Watched:
    """Who watches this process; nobody does in a script. `tell` is called with a unit that begins,
    and with None when it ends; `pause` with why counting stops, and with "" when it goes on."""

    tell: Callable[[Unit | None], None] = lambda unit: None
    pause: Callable[[str], None] = lambda why: None
    crossed: Mapping[Unit, EngineError] = field(default_factory=dict)


WATCHED = Watched()


@contextmanager
def limited(
    what: str,
    where: str,
    kind: str,
    *about: Any,
    seconds: float = 0.0,
    memory: int = 0,
    final: bool = False,
) -> Iterator[None]:
    """Run a unit within limits. The arguments are those of `Unit`, and `about` is plain data that
    identifies the unit. Raises EngineError of its kind if it crossed a limit before."""
    unit = Unit(what, where, kind, repr(about), seconds, memory, final)
    if unit in WATCHED.crossed:
        raise EngineError(*WATCHED.crossed[unit].__reduce__()[1])
    WATCHED.tell(unit)
    try:
        yield
    finally:
        WATCHED.tell(None)


@contextmanager
def uncounted(why: str) -> Iterator[None]:
    """Do something that counts for no unit, such as starting a program."""
    WATCHED.pause(why)
    try:
        yield
    finally:
        WATCHED.pause("")


def of_page() -> Limits:
    """The page's limits: by default a quarter of an hour and three quarters of the machine's memory
    for a unit, and `KINDS`. Raises EngineError of kind "usage" if a setting is not a limit."""
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / MIB
    names = ", ".join((SECONDS, MEMORY, CALLS, IDLE))
    with refusing("usage", "a limit cannot be read: {}.", names, "Set another, and start again."):
        given = (float(os.environ.get(name) or 0) for name in (SECONDS, MEMORY, IDLE))
        seconds, memory, idle = given
        calls = {**KINDS, **calls_of(os.environ.get(CALLS, ""))}
    return Limits(seconds or 900.0, memory or round(0.75 * whole), calls, idle or _IDLE)
