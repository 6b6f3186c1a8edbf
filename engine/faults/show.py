"""Runs a report on a fault in a pass: shows the fault, or that it is fixed.

This file is copied into each report, so it needs only numpy and files copied with it.
"""

import argparse
import gc
import os
import platform
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np

from relascope.core.errors import alike, ending
from relascope.engine.faults import replay
from relascope.passes.tvm_calls import TvmCall


@dataclass(frozen=True)
class ProgramCall:
    """A pass of relascope's or the user's own, from program to program."""

    module: str
    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


Call = TvmCall | ProgramCall


@dataclass(frozen=True)
class Fault:
    """The fault of a report.

    Args:
        kind: "wrong", "slow", "crash"; of the passes themselves, "long" (they take more seconds
            than the limit) or "memory" (more bytes stay after them).
        program: the program's text; "" where it is in the file "program.json".
        inputs, parameters: of its arguments, in order.
        tail: passes run after them, and also without them.
        limit: of a difference relative to scale, of the ratio of times, of seconds or of bytes.
        floor: the least scale that differences are relative to.
        same_result: whether the suspected passes must keep the type of the result.
        recorded: the suspected passes do not run; `after` is the program after them.
        after: that program's text; "" where it is in the file "after.json".
        crash: how it crashes: "raises", "malformed" (the result of the pass cannot replace the
            program), "ends" (the process), "seconds" or "memory".
        seconds: for a crash by "seconds": the wall-clock time that passes and their results may
            take beyond twice the time without them.
        memory: for a crash by "memory": MiB beyond the process's memory before the passes.
        runs: how often the passes run; the fault shows if it shows once.
        plain: whether to compile operator by operator, not as TVM does by default.
    """

    title: str
    kind: str
    ir: str
    program: str
    inputs: tuple[str, ...]
    parameters: tuple[str, ...]
    outputs: int
    steps: tuple[Call, ...]
    tail: tuple[Call, ...] = ()
    target: str = "llvm"
    limit: float = 0.0
    floor: float = 0.0
    building: bool = True
    same_result: bool = True
    recorded: bool = False
    after: str = ""
    crash: str = ""
    error: str = ""
    seconds: float = 0.0
    memory: float = 0.0
    runs: int = 1
    plain: bool = False


SHOWS, FIXED, UNDECIDED = 1, 0, 2
"""Exit statuses."""

_SAID = {SHOWS: "The fault shows.", FIXED: "The fault does not show: it is fixed."}
_OF_PASS = ("long", "memory")
_LOOK = 0.02  # s, between looks at the process that runs the passes


def main(fault: Fault) -> int:
    """Show a fault, from the folder of its report. The passes run in their own process, which is
    killed if it crosses a limit. Returns 1 while the fault shows, 0 when it does not, 2 where that
    cannot be decided."""
    parser = argparse.ArgumentParser(description=fault.title, epilog=EPILOG)
    parser.add_argument("--fix", default="", metavar="FILE.py:FUNCTION", help=FIX)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        PassProcess(fault, args.fix, args.child).run()
        return 0
    print(fault.title, end="\n\n", flush=True)
    status, text = _watched(fault, ["--fix", args.fix] if args.fix else [])
    print("", text or _SAID[status], sep="\n")
    return status


FIX = (
    "run this function in place of the suspected passes: it takes and returns an IRModule if the "
    "pass is TVM's or was recorded, else a program"
)
EPILOG = "Exit status: 1 while the fault shows, 0 when it does not, 2 if that is undecided."


def _watched(fault: Fault, options: list[str]) -> tuple[int, str]:
    """The status of a process that runs the passes within the limits, and its message."""
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder) / "notes"
        flags = ["-I"] if sys.flags.isolated else []
        command = [sys.executable, *flags, str(Path(sys.argv[0]).resolve()), *options]
        child = subprocess.Popen([*command, "--child", str(notes)])
        began, had, before = 0.0, 0, 0.0
        while child.poll() is None:
            time.sleep(_LOOK)
            if not began and len(noted := _noted(notes)) > 1:
                began, had, before = time.monotonic(), int(noted[0]), float(noted[1])
            spent = time.monotonic() - began - 2 * before if began else 0.0
            if crossed := _crossed(fault, resident(child.pid) - had if began else 0, spent):
                child.kill()
                child.wait()
                return _as_expected(fault, *crossed)
        noted = _noted(notes)
    if len(noted) in (1, 3):  # it ended itself, before the passes or after them
        return int(noted[-1]), _UNDECIDED if noted[-1] == str(UNDECIDED) else ""
    name = ending(child.returncode)
    if len(noted) == 2:
        return _as_expected(fault, "ends", f"The process ended by {name} in the passes.")
    return UNDECIDED, f"The process ended by {name} before the passes. {_UNDECIDED}"


def _crossed(fault: Fault, taken: int, seconds: float) -> tuple[str, str] | None:
    """The limit that passes have crossed with so many bytes and seconds, and a sentence."""
    if fault.memory and taken / _MIB > fault.memory:
        return "memory", f"The process took more than {fault.memory:g} MiB, the limit."
    if fault.seconds and seconds > fault.seconds:
        return "seconds", f"The passes did not end within {fault.seconds:g} s, the limit."
    return None


_MIB = 1 << 20
_UNDECIDED = "Undecided: README.md says what the report needs."


def resident(pid: int) -> int:
    """Bytes of memory that a process has now; 0 where unknown."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except FileNotFoundError:  # macOS
        done = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True)
        return int(done.stdout.strip() or 0) * 1024
    except (OSError, IndexError):  # it has just ended
        return 0


def _noted(notes: Path) -> list[str]:
    """The child's notes: its memory and seconds spent when the passes began, then the status."""
    return notes.read_text().split() if notes.exists() else []


def _as_expected(fault: Fault, crash: str, text: str) -> tuple[int, str]:
    if fault.crash == crash:
        return SHOWS, f"{text}\n{_SAID[SHOWS]}"
    return UNDECIDED, f"{text}\nUndecided: it fails in another way than reported."


class PassProcess:
    """The process that runs the passes; `notes` is the file that its parent reads."""

    def __init__(self, fault: Fault, fix: str, notes: Path) -> None:
        self.fault, self.fix, self.notes = fault, fix, notes
        self.folder = Path(sys.argv[0]).resolve().parent

    def run(self) -> None:
        try:
            status = self._status()
        except (Exception, SystemExit):
            traceback.print_exc()
            status = UNDECIDED
        sys.stdout.flush()
        self._note(str(status))

    def _note(self, text: str) -> None:
        fresh = self.notes.with_name("fresh")
        fresh.write_text(" ".join([*_noted(self.notes), text]))
        fresh.replace(self.notes)  # whole, or not there

    def _status(self) -> int:
        fault = self.fault
        engine: replay.Engine = import_module(f"relascope.engine.{fault.ir}.faults.replay")
        with np.load(self.folder / "values.npz") as file:
            stored = dict(file)
        mod = self._read(engine, "program", fault.program, stored)
        values = {n[9:]: v for n, v in stored.items() if n.startswith("argument ")}
        steps = self._steps(engine)
        tail = [_function(engine, call) for call in fault.tail]
        version = f"{engine.version()}, Python {platform.python_version()}, numpy {np.__version__}"
        print(version, flush=True)
        target, own = fault.target if fault.building else "", None
        if any(isinstance(c, ProgramCall) for c in (*fault.steps, *fault.tail)):
            own = self._program(engine, mod, values)
        start = own or mod
        began = time.perf_counter()
        left = replay.ran(engine, _module(_through(start, tail)), values, target, not fault.plain)
        self._note(f"{resident(os.getpid())} {time.perf_counter() - began}")
        try:
            for _ in range(fault.runs):
                gc.collect()
                began, had = time.perf_counter(), resident(os.getpid())
                if fault.recorded and not self.fix:
                    after = self._read(engine, "after", fault.after, stored)
                else:
                    after = _through(start, steps)
                seconds = time.perf_counter() - began
                if not fault.recorded:
                    taken = (_module(start), _module(after))
                    replay.check_result(engine, *taken, fault.parameters, fault.same_result)
                gc.collect()
                kept = resident(os.getpid()) - had
                made = _module(_through(after, tail))
                right = replay.ran(engine, made, values, target, not fault.plain)
                if left is None or right is None or fault.kind in ("crash", *_OF_PASS):
                    status = self._used(seconds, kept)
                else:
                    status = self._compared(left, right, stored)
                if status != FIXED:
                    return status
        except (Exception, SystemExit) as error:
            return self._failed(error)
        return FIXED

    def _compared(self, left: replay.Runner, right: replay.Runner, stored: replay.Values) -> int:
        fault = self.fault
        if fault.kind == "slow":
            found, limit = replay.ratio(left, right), fault.limit
            print(f"After the pass it takes {found:.2f} times as long; the limit is {limit:g}.")
            return SHOWS if found > limit else FIXED
        count = 0 if fault.tail else fault.outputs
        expected = [stored[f"expected {i}"] for i in range(count)]
        return _wrong(left.results(), right.results(), expected, fault)

    def _used(self, seconds: float, kept: int) -> int:
        """The status where the fault is in the passes themselves, not in their result."""
        limit = self.fault.limit
        if self.fault.kind == "long":
            print(f"The passes took {seconds:.3g} s; the limit is {limit:.3g} s.")
            return SHOWS if seconds > limit else FIXED
        if self.fault.kind == "memory":
            used = f"{kept / _MIB:.1f} MiB; the limit is {limit / _MIB:.1f} MiB."
            print(f"The memory that stays after the passes is {used}")
            return SHOWS if kept > limit else FIXED
        return FIXED

    def _steps(self, engine: replay.Engine) -> list[Callable[[Any], Any]]:
        if not self.fix:
            return [_function(engine, call) for call in self.fault.steps]
        file, _, name = self.fix.rpartition(":")
        spec = spec_from_file_location("fix", file)
        if spec is None or spec.loader is None:
            raise ValueError(f"--fix {self.fix}: give FILE.py:FUNCTION")
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        function = getattr(module, name)
        if any(isinstance(call, ProgramCall) for call in self.fault.steps):
            return [function]
        return [lambda program: _on_module(engine, program, function)]

    def _read(self, engine: replay.Engine, name: str, text: str, stored: replay.Values) -> Any:
        """The module before or after the passes, from its text or the file `NAME.json`."""
        json, first = self.folder / f"{name}.json", f"constant {name} "
        constants = {n[len(first) :]: v for n, v in stored.items() if n.startswith(first)}
        return engine.read(text, json.read_text() if json.exists() else "", constants)

    def _program(self, engine: replay.Engine, mod: Any, values: replay.Values) -> Any:
        fault, name = self.fault, f"{self.fault.ir.capitalize()}Program"
        made = getattr(import_module(f"relascope.passes.{fault.ir}.ir.program"), name)
        parameters = {n: engine.array(values[n]) for n in fault.parameters}
        return made(mod, parameters, fault.inputs, fault.outputs)

    def _failed(self, error: BaseException) -> int:
        known, name = self.fault.error, type(error).__name__
        if isinstance(error, replay.Malformed):
            print(error)
            crash, same = "malformed", True
        else:
            traceback.print_exception(error)
            lines = [line.strip() for line in str(error).splitlines()] or [""]
            crash, texts = "raises", [*lines, *(f"{name}: {line}" for line in lines)]
            # A DiagnosticError's message goes to stderr.
            same = name == known.partition(":")[0] == "DiagnosticError"
            same = same or any(alike(text, known) for text in texts)
        if self.fault.crash == crash and same:
            return SHOWS
        print("It fails in another way than reported.")
        return UNDECIDED


def _function(engine: replay.Engine, call: Call) -> Callable[[Any], Any]:
    if isinstance(call, TvmCall):
        return lambda program: _on_module(engine, program, call)
    function = getattr(import_module(call.module), call.function)
    return lambda program: function(program, **call.arguments)


def _on_module(engine: replay.Engine, program: Any, function: Callable[[Any], Any]) -> Any:
    made = function(_module(program))
    made = engine.typed(made) if isinstance(made, type(_module(program))) else made
    return replace(program, mod=made) if hasattr(program, "mod") else made


def _through(program: Any, steps: Sequence[Callable[[Any], Any]]) -> Any:
    for function in steps:
        program = function(program)
    return program


def _module(program: Any) -> Any:
    return getattr(program, "mod", program)


def _wrong(
    before: Sequence[np.ndarray],
    after: Sequence[np.ndarray],
    expected: Sequence[np.ndarray],
    fault: Fault,
) -> int:
    limit, bad = fault.limit, len(before) != len(after)
    if bad:
        print(f"There are {len(before)} results before the pass, and {len(after)} after it.")
    pairs = zip(before, after, replay.differences(before, after, fault.floor), strict=False)
    for index, (one, other, gap) in enumerate(pairs):
        wrong = not gap.max_rel <= limit
        bad = bad or wrong
        print(
            f"output {index}: differs by {gap.max_abs:.3e}, {gap.max_rel:.3e} of its scale, limit "
            f"{limit:.0e}: {'WRONG' if wrong else 'right'}"
        )
        if index < len(expected):
            stored = replay.difference(expected[index], one)
            print(f"  (before the pass it is {stored.max_rel:.1e} from the stored value)")
        if wrong and one.shape == other.shape and one.size:
            at = np.unravel_index(int(replay.gaps(one, other).argmax()), one.shape)
            print(f"  worst at {[int(i) for i in at]}: {one[at]} before, {other[at]} after")
    return SHOWS if bad else FIXED
