"""Measurements of tuning on disk. The app reads them while a session tunes; no TVM in here.

A folder per IR, TVM version and target (options, threads) has `curve.jsonl`, a line per trial,
`rivals.jsonl`, a line per measurement without records, and per task a folder of TVM's own records.
Lines are only added; an incomplete last one is skipped and noted.

An engine opens strangers' files, so it only reads; the app adds (`KEEPER`). Both check lines."""

import contextlib
import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_type_hints

from filelock import FileLock, Timeout

from relascope.core.errors import EngineError, refusing
from relascope.core.place import cache_folder
from relascope.engine.protocol.tuning import Trial, Tuned

VARIABLE = "RELASCOPE_RECORDS"
"""Environment variable: the folder of all records; else they are in the user's cache folder."""

CURVE = "curve.jsonl"
UNTUNED = "rivals.jsonl"

AUTOTVM, OPERATOR = "autotvm.json", "operator.json"
"""In a task's folder for Relay: AutoTVM's records, and the builds that they are for."""

WORKLOAD, SCHEDULES = "database_workload.json", "database_tuning_record.json"
"""In a task's folder for Relax: the files of TVM's `JSONDatabase`."""

_MOST_BYTES = 256 << 20
"""The most that one request may add."""

_NOT_THE_KERNELS = ("-libs=", "-records=")
"""Options of a target that choose between kernels, and change none."""


@dataclass(frozen=True)
class Untuned:
    """A kernel measured as built without records. `run` is the call of `tune` that measured it,
    `trial` the task's last trial before it (0 where there was none), and `ours_ms` the time of the
    best record then, measured in turn with it (None without one)."""

    task: str
    run: str
    trial: int
    ms: float
    ours_ms: float | None = None


@dataclass(frozen=True)
class Book:
    """The records of a folder. `notes` are sentences about lines that could not be read."""

    trials: tuple[Trial, ...]
    untuned: tuple[Untuned, ...]
    notes: tuple[str, ...] = ()

    def of(self, task: str) -> tuple[Trial, ...]:
        return tuple(t for t in self.trials if t.task == task)

    def in_run(self, run: str) -> tuple[Trial, ...]:
        return tuple(t for t in self.trials if t.run == run)

    def best_ms(self, task: str) -> float | None:
        return min((t.ms for t in self.of(task) if t.ms is not None), default=None)

    def before_ms(self, task: str) -> float | None:
        """A task's last time as built without records."""
        rival = self._rival(task)
        return None if rival is None else rival.ms

    def takes(self, task: str) -> bool:
        """Whether a build takes the best record: whether that is faster than everything else known,
        by times measured in turn where there are some."""
        ours, before = self.with_record_ms(task), self.before_ms(task)
        return ours is not None and (before is None or ours < before)

    def with_record_ms(self, task: str) -> float | None:
        """A task's time with its best record, by preference one measured in turn with the rival."""
        best, rival = self.best_ms(task), self._rival(task)
        if best is None or rival is None or rival.ours_ms is None:
            return best
        earlier = [t.ms for t in self.of(task) if t.ms is not None and t.trial <= rival.trial]
        return rival.ours_ms if min(earlier, default=best) <= best else best

    def tuned(self, run: str, task: str, name: str, earlier: float | None) -> Tuned:
        """What a run did for a task; `earlier` is milliseconds with the best record before it."""
        mine = [t for t in self.in_run(run) if t.task == task]
        failed, before = sum(t.ms is None for t in mine), self.before_ms(task)
        best, takes = self.with_record_ms(task), self.takes(task)
        return Tuned(task, name, len(mine), failed, before, earlier, best, takes)

    def _rival(self, task: str) -> Untuned | None:
        return next((r for r in reversed(self.untuned) if r.task == task), None)


def root() -> Path:
    named = os.environ.get(VARIABLE, "")
    return Path(named) if named else cache_folder() / "records"


def folder(ir: str, version: str, target: str, threads: int) -> Path:
    """The folder of a target's records, which need not exist yet. Options of the target that change
    no kernel do not count, nor does their order."""
    kind, *options = target.split()
    options = sorted(o for o in options if not o.startswith(_NOT_THE_KERNELS))
    count = threads or len(os.sched_getaffinity(0))
    about = json.dumps([kind, options, count, ""])  # "" as in folders of earlier versions
    digest = hashlib.sha256(about.encode()).hexdigest()[:8]
    named = next((o.partition("=")[2] for o in options if o.startswith(("-mcpu=", "-arch="))), "")
    words = [kind, named, f"{count}-threads", digest]
    slug = "-".join(re.sub(r"[^\w.]+", "_", w) for w in words if w)
    return root() / f"{ir}-{version}" / slug


def read(place: Path) -> Book:
    """A folder's records; none without the folder. Malformed lines are left out and noted. Raises
    EngineError of kind "file" where a file cannot be read."""
    notes: list[str] = []
    trials = list(_lines(place / CURVE, Trial, notes))
    rivals = list(_lines(place / UNTUNED, Untuned, notes))
    return Book(tuple(trials), tuple(rivals), tuple(notes))


def add(place: Path, name: str, lines: Sequence[Trial] | Sequence[Untuned]) -> None:
    """Add lines to a file of a folder; they are on disk when this returns. Raises EngineError of
    kind "file" where it cannot be written."""
    append(place / name, "".join(json.dumps(asdict(line)) + "\n" for line in lines))


def append(path: Path, text: str) -> None:
    """Add whole lines to a file, after whole lines; they are on disk when this returns. Raises
    EngineError of kind "file" where it cannot be written."""
    if KEEPER.ask is not None:
        KEEPER.ask("append", str(path), text)
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_bytes() if path.exists() else b""
        with path.open("ab") as file:
            file.truncate(before.rfind(b"\n") + 1)  # a process that was killed left half a line
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as wrong:
        raise _unusable(path.parent, wrong) from wrong


@contextlib.contextmanager
def locked(place: Path) -> Iterator[None]:
    """Keep other processes from tuning in a folder; the lock ends with the process, however that
    ends. Raises EngineError of kind "file" where another process is tuning there, or the folder
    cannot be created."""
    if KEEPER.ask is not None:
        KEEPER.ask("hold", str(place), "")
        yield  # released when the request is answered
        return
    lock = FileLock(place / "lock", timeout=0)
    try:
        place.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as wrong:
        message = "Another process is tuning for this target."
        hint = "Wait until it ends, or stop it: two at once would disturb each other's times."
        raise EngineError("file", message, str(place), hint) from wrong
    except OSError as wrong:
        raise _unusable(place, wrong) from wrong
    try:
        yield
    finally:
        lock.release()


def stamp(place: Path) -> str:
    """A text that changes when a folder's records do."""
    files = [place / name for name in (CURVE, UNTUNED) if (place / name).exists()]
    return ", ".join([str(place), *(f"{f.name} {f.stat().st_size}" for f in files)])


def _lines(path: Path, kind: type[Any], notes: list[str]) -> Iterable[Any]:
    bad = []
    for number, line in enumerate(_lines_of(path), 1):
        try:
            yield _typed(kind, json.loads(line))
        except ValueError:
            bad.append(number)
    if len(bad) == 1:
        notes.append(f"{path.name}: line {bad[0]} cannot be read and is left out.")
    elif bad:
        many = f"{len(bad)} lines cannot be read and are left out (first: line {bad[0]})."
        notes.append(f"{path.name}: {many}")


def _lines_of(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    except OSError as wrong:
        raise _unusable(path, wrong) from wrong


def _unusable(place: Path, wrong: OSError) -> EngineError:
    message = f"The tuning records cannot be read or written: {wrong.strerror or wrong}."
    return EngineError("file", message, str(place), f"Name another folder in {VARIABLE}.")


@dataclass
class Keeper:
    """Who adds records: this process, or another through `ask("append" or "hold", path, text)`."""

    ask: Callable[[str, str, str], None] | None = None


KEEPER = Keeper()
"""This process's."""


class Adding(contextlib.ExitStack):
    """Adds an engine's records for it, for the time of one tuning request."""

    _bytes = 0

    def do(self, action: str, path: str, text: str) -> None:
        """Do what `Keeper.ask` asks. Raises EngineError of kind "file" where that fails, or is
        nothing that an engine adds."""
        about = os.path.relpath(path, root()).split(os.sep)
        plain = all(re.fullmatch(r"\w[\w.+-]*", part) for part in about)
        self._bytes += len(text)
        if action == "hold" and plain and len(about) == 2:
            self.enter_context(locked(Path(path)))
        elif action == "append" and plain and len(about) in (3, 4) and self._bytes < _MOST_BYTES:
            with refusing("file", "The engine's records cannot be added: {}.", path):
                for line in text.splitlines():
                    check(about[-1], json.loads(line))
            append(Path(path), text)
        else:
            message = f"The engine's records cannot be added: {action} {path[:200]} is not allowed."
            raise EngineError("file", message)


def checked(path: Path) -> Iterator[Any]:
    """The lines of a task's file, for TVM's reader, without incomplete ones; none without the file.
    Raises EngineError of kind "file" for a line that no engine writes."""
    for number, line in enumerate(_lines_of(path), 1):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        hint = f"Remove the folder {path.parent}, and tune the kernel again."
        with refusing("file", f"Line {number} is not a record: {{}}.", str(path), hint):
            try:
                check(path.name, found)
            except RecursionError as wrong:
                raise ValueError("it is nested too deeply") from wrong
        yield found


def check(name: str, line: Any) -> None:
    """Check a line that an engine writes to the file `name`. Raises ValueError if it is wrong."""
    if name in (CURVE, UNTUNED):
        _typed(Trial if name == CURVE else Untuned, line)
        return
    forms = {
        OPERATOR: {"constants": [_NAME], "library": bool},
        WORKLOAD: (re.compile(r"-?\d{1,20}"), re.compile(r"[A-Za-z0-9+/=]*")),
        AUTOTVM: {
            "input": (re.compile(r"[a-z]+( -[\w-]+=[^\s'\"{}]*)*"), _NAME, [object], {}),
            "config": {
                "index": int,
                "code_hash": object,
                "entity": [(_NAME, re.compile("sp|re|an|ot"), object)],
            },
            "result": ([float], int, float, float),
            "version": float,
            "tvm_version": str,
        },
        SCHEDULES: (
            int,
            (([(_INSTRUCTION, [object], [object], [_NAME])], [object]), [float], object, [object]),
        ),
    }
    if name not in forms:
        raise ValueError(f"{name[:80]!r} is not the name of a file of records")
    _check(line, forms[name], name)
    if name == SCHEDULES:
        for instruction, _, attributes, _ in line[1][0][0]:
            keys = attributes if instruction in ("Annotate", "Unannotate") else ()
            if not all(isinstance(k, str) and _ANNOTATION.fullmatch(k) for k in keys):
                raise ValueError(f"it annotates {str(keys)[:80]}")


_NAME = re.compile(r"[\w.]{1,200}")
_INSTRUCTION = re.compile(
    "SampleCategorical|Sample(Perfect|Partitioned)Tile|SampleComputeLocation|GetS?Block|GetLoops|"
    "Get(Child|Output)S?Blocks|GetProducers|GetConsumers|Merge|Fuse|Split|LoopPartition|Reorder|"
    "ReorderS?BlockIterVar|AddUnitLoop|Parallel|Vectorize|Bind|Unroll|(Reindex)?Cache(Read|Write)|"
    "CacheInplace|CacheIndex|ReIndex|ReadAt|WriteAt|(Reverse)?Compute(At|Inline)|RollingBuffer|"
    "FuseReductionEpilogue|DecomposeReduction|RFactor|StorageAlign|SetScope|Blockize|Tensorize|"
    "Annotate|Unannotate|Transform(S?Block)?Layout|DecomposePadding|PadEinsum|EnterPostproc"
)
"""Steps of a schedule that change how a kernel computes, but never its results."""
_ANNOTATION = re.compile(
    r"meta_schedule\.\w+|pragma_(auto_unroll_max_step|unroll_explicit)|software_pipeline_\w+|"
    r"double_buffer_\w+|warp_execution|auto_copy|local_stage|layout_free_\w+"
)
"""TVM takes others as code to compile, such as pragma_import_c."""


def _check(found: Any, form: Any, where: str) -> None:
    """Raise unless something has a form: a type, a pattern, or a list, tuple or dict of forms;
    `object` is anything plain."""
    parts: Iterable[tuple[Any, Any, str]] = ()
    if isinstance(form, dict):
        fits = isinstance(found, dict) and set(found) == set(form)
        parts = ((found[key], form[key], key) for key in form)
    elif isinstance(form, list | tuple):
        fits = isinstance(found, list) and (isinstance(form, list) or len(found) == len(form))
        given = found if fits else ()
        parts = ((item, one, where) for item, one in zip(given, itertools.cycle(form)))
    else:
        fits = _is_leaf(found, form)
    if not fits:
        raise ValueError(f"{where} says {str(found)[:80]!r}")
    for part in parts:
        _check(*part)


def _is_leaf(found: Any, form: Any) -> bool:
    if isinstance(form, re.Pattern):
        return isinstance(found, str) and form.fullmatch(found) is not None
    if form is float:
        return type(found) in (int, float) and abs(found) < 1e30
    return _is_short(found) and (form is object or type(found) is form)


def _is_short(found: Any) -> bool:
    """Whether no text in it is longer than 64 KiB."""
    if isinstance(found, dict | list):
        return all(map(_is_short, found.values() if isinstance(found, dict) else found))
    return not isinstance(found, str) or len(found) <= 1 << 16


def _typed(kind: type[Any], found: Any) -> Any:
    hints = get_type_hints(kind)
    if not isinstance(found, dict) or not set(found) <= set(hints):
        raise ValueError(f"it is not a {kind.__name__}")
    for name, value in found.items():
        if value is not None or hints[name] in (str, int, float):
            _check(value, float if hints[name] == float | None else hints[name], name)
    try:
        return kind(**found)
    except TypeError as wrong:
        raise ValueError(str(wrong)) from wrong
