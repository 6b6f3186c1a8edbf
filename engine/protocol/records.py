"""Measurements of tuning on disk. The app reads them while a session tunes; no TVM in here.

A folder holds what was measured of one IR by one version of TVM for one target (its options, the
threads, the fleet's key). In it `curve.jsonl` has a line for each trial, `rivals.jsonl` one for
each time that a kernel was measured as it is built without records, and a folder for each task has
TVM's own records. Lines are only ever added, a batch at a time, so a process that is killed loses
no more than the batch in flight. A last line that was cut short is skipped and said.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from relascope.core.errors import EngineError
from relascope.core.place import cache_folder
from relascope.engine.protocol.tuning import Fleet, Trial

VARIABLE = "RELASCOPE_RECORDS"
"""Names the folder of all records; without it they are in the user's cache folder."""

CURVE = "curve.jsonl"
RIVALS = "rivals.jsonl"

_NOT_THE_KERNELS = ("-libs=", "-records=")
"""Options of a target that say which kernels there are, and nothing about a kernel."""


@dataclass(frozen=True)
class Rival:
    """A kernel measured as it is built without records.

    Args:
        task: the task's key.
        run: the call of `tune` that it was measured in.
        trial: the task's last trial before it; 0 where there was none.
        ms: of one call.
        ours_ms: of the best record of that time, measured in turn with it; None without one.
    """

    task: str
    run: str
    trial: int
    ms: float
    ours_ms: float | None = None


@dataclass(frozen=True)
class Book:
    """What a folder of records says.

    Args:
        notes: sentences on what could not be read.
    """

    trials: tuple[Trial, ...]
    rivals: tuple[Rival, ...]
    notes: tuple[str, ...] = ()

    def of(self, task: str) -> tuple[Trial, ...]:
        """A task's trials, in order."""
        return tuple(t for t in self.trials if t.task == task)

    def in_run(self, run: str) -> tuple[Trial, ...]:
        """A run's trials, in order."""
        return tuple(t for t in self.trials if t.run == run)

    def best_ms(self, task: str) -> float | None:
        """The least time of a task's trials."""
        return min((t.ms for t in self.of(task) if t.ms is not None), default=None)

    def before_ms(self, task: str) -> float | None:
        """The last time of a task as it is built without records."""
        rival = self._rival(task)
        return None if rival is None else rival.ms

    def takes(self, task: str) -> bool:
        """Whether a build takes the best record: there is one, and it beats what is known else.

        Times measured in turn decide; where a better record was found since, its own time does.
        """
        ours, before = self.with_record_ms(task), self.before_ms(task)
        return ours is not None and (before is None or ours < before)

    def with_record_ms(self, task: str) -> float | None:
        """A task's time with its best record: measured in turn with the rival, where it was."""
        best, rival = self.best_ms(task), self._rival(task)
        if best is None or rival is None or rival.ours_ms is None:
            return best
        earlier = [t.ms for t in self.of(task) if t.ms is not None and t.trial <= rival.trial]
        return rival.ours_ms if min(earlier, default=best) <= best else best

    def _rival(self, task: str) -> Rival | None:
        return next((r for r in reversed(self.rivals) if r.task == task), None)


def root() -> Path:
    """The folder of all records."""
    named = os.environ.get(VARIABLE, "")
    return Path(named) if named else cache_folder() / "records"


def folder(ir: str, version: str, target: str, threads: int, fleet: Fleet | None = None) -> Path:
    """Where the records of a target are; it need not be there yet.

    Args:
        version: of TVM.
        target: the target's text; options that change no kernel do not count, nor does their order.
        threads: that kernels are measured and run with; 0 means all of this machine's.
        fleet: whose devices measured; its tracker's address does not count.
    """
    kind, *options = target.split()
    options = sorted(o for o in options if not o.startswith(_NOT_THE_KERNELS))
    count = threads or len(os.sched_getaffinity(0))
    about = json.dumps([kind, options, count, fleet.key if fleet else ""])
    digest = hashlib.sha256(about.encode()).hexdigest()[:8]
    named = next((o.partition("=")[2] for o in options if o.startswith(("-mcpu=", "-arch="))), "")
    words = [kind, named, f"{count}-threads", fleet.key if fleet else "", digest]
    slug = "-".join(re.sub(r"[^\w.]+", "_", w) for w in words if w)
    return root() / f"{ir}-{version}" / slug


def read(place: Path) -> Book:
    """What is in a folder; nothing where there is none.

    Lines that are no JSON, or lack what they should have, are left out and noted.

    Raises:
        EngineError: kind "file"; a file is there and cannot be read.
    """
    notes: list[str] = []
    trials = list(_lines(place / CURVE, Trial, notes))
    rivals = list(_lines(place / RIVALS, Rival, notes))
    return Book(tuple(trials), tuple(rivals), tuple(notes))


def add(place: Path, name: str, lines: Sequence[Trial] | Sequence[Rival]) -> None:
    """Add lines to a file of a folder; they are on disk when this returns.

    Args:
        name: `CURVE` or `RIVALS`.

    Raises:
        EngineError: kind "file"; it cannot be written.
    """
    append(place / name, "".join(json.dumps(asdict(line)) + "\n" for line in lines))


def append(path: Path, text: str) -> None:
    """Add whole lines to a file, behind whole lines; they are on disk when this returns.

    Raises:
        EngineError: kind "file"; it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mend(path)
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as wrong:
        raise _unusable(path.parent, wrong) from wrong


def mend(path: Path) -> str:
    """Cut off a last line that was not finished, as a process that was killed leaves one.

    Returns:
        What was cut off, "" where nothing was.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return ""
    cut = data.rpartition(b"\n")[2]
    if cut:
        os.truncate(path, len(data) - len(cut))
    return cut.decode(errors="replace")


@contextlib.contextmanager
def held(place: Path) -> Iterator[None]:
    """Keep other processes from tuning in a folder; it ends with the process, however that ends.

    Raises:
        EngineError: kind "file"; another process is tuning there, or the folder cannot be made.
    """
    lock = FileLock(place / "lock", timeout=0)
    try:
        place.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as wrong:
        message = "Another process is tuning for this target."
        hint = "Wait until it is done, or stop it: two at once would disturb each other's times."
        raise EngineError("file", message, str(place), hint) from wrong
    except OSError as wrong:
        raise _unusable(place, wrong) from wrong
    try:
        yield
    finally:
        lock.release()


def stamp(place: Path) -> str:
    """Changes when a folder's records do."""
    files = [place / name for name in (CURVE, RIVALS) if (place / name).exists()]
    return ", ".join([str(place), *(f"{f.name} {f.stat().st_size}" for f in files)])


def _lines(path: Path, kind: type[Any], notes: list[str]) -> Iterable[Any]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return
    except OSError as wrong:
        raise _unusable(path, wrong) from wrong
    bad = []
    for number, line in enumerate(lines, 1):
        try:
            yield kind(**json.loads(line))
        except (ValueError, TypeError):
            bad.append(number)
    if len(bad) == 1:
        notes.append(f"{path.name}: line {bad[0]} cannot be read and is left out.")
    elif bad:
        which = f"{len(bad)} lines, the first of them {bad[0]}, cannot be read"
        notes.append(f"{path.name}: {which} and are left out.")


def _unusable(place: Path, wrong: OSError) -> EngineError:
    message = f"The records cannot be kept there: {wrong.strerror or wrong}."
    return EngineError("file", message, str(place), f"Name another folder in {VARIABLE}.")
