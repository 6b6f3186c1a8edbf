"""What runs a report of a fault in a pass: before the pass and after it, on the same inputs.

This file is copied into each report, so it needs nothing but numpy and what is copied with it. The
engine looks at pieces of programs with the same functions, so that a report shows what it saw.
"""

from __future__ import annotations

import platform
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np

Values = Mapping[str, np.ndarray]


class Runner(Protocol):
    """A program that was built, with its arguments in place."""

    def __call__(self) -> None:
        """Run once."""

    def results(self) -> list[np.ndarray]:
        """The results of the last run, flattened."""


class Engine(Protocol):
    """What is needed of an IR's TVM: the module `faults.replay` of its engine."""

    def version(self) -> str:
        """Which TVM this is."""

    def read(self, text: str, json: str, constants: Values) -> Any:
        """The module that a report holds."""

    def program(self, mod: Any, parameters: Values, inputs: Sequence[str], outputs: int) -> Any:
        """A module as passes take it."""

    def runner(self, mod: Any, values: Values, target: str, optimised: bool = True) -> Runner:
        """Build a module's "main" and put its arguments in place.

        Args:
            optimised: as TVM does by default; else operator by operator, as the module says.
        """


@dataclass(frozen=True)
class Difference:
    """An output after the pass against the same before it.

    Args:
        max_abs: the largest absolute difference; infinite where shapes differ or one has NaN.
        max_rel: `max_abs` over the largest finite magnitude before the pass, or a larger floor.
    """

    max_abs: float
    max_rel: float


@dataclass(frozen=True)
class Fault:
    """What a report says.

    Args:
        title: one line.
        kind: "wrong", "slow" or "crash".
        ir: "relay" or "relax".
        program: the program's text; "" where it is in the file "program.json".
        inputs, parameters: names of its arguments, in order.
        outputs: how many results it has.
        steps: the suspected passes: (module or file, function, keyword arguments).
        tail: passes that are run after them, with them and without them.
        target: what is compiled for.
        limit: of a difference relative to scale, or of the ratio of times.
        floor: what differences are held against at least.
        building: whether it is compiled and run.
        recorded: whether the suspected passes are not run, and the program after them is `after`.
        after: that program's text; "" where it is in the file "after.json".
    """

    title: str
    kind: str
    ir: str
    program: str
    inputs: tuple[str, ...]
    parameters: tuple[str, ...]
    outputs: int
    steps: tuple[tuple[str, str, dict[str, Any]], ...]
    tail: tuple[tuple[str, str, dict[str, Any]], ...] = ()
    target: str = "llvm"
    limit: float = 0.0
    floor: float = 0.0
    building: bool = True
    recorded: bool = False
    after: str = ""


_SHARE = 1e-3
"""What is this much smaller than the largest result is held against that share of the largest: the
gradient of a bias that cancels is nothing but rounding."""


def floor_of(results: Iterable[np.ndarray]) -> float:
    """What the smallest results of a program are held against."""
    return _SHARE * max((_scale(r) for r in results), default=0.0)


def differences(
    before: Sequence[np.ndarray], after: Sequence[np.ndarray], floor: float
) -> list[Difference]:
    """How far results are from what they were; scales are at least `floor_of` them all."""
    floor = max(floor, floor_of(before))
    return [difference(a, b, floor) for a, b in zip(before, after, strict=False)]


def _scale(result: np.ndarray) -> float:
    finite = np.abs(result[np.isfinite(result)].astype(np.float64))
    return float(finite.max()) if finite.size else 0.0


def difference(before: np.ndarray, after: np.ndarray, floor: float = 0.0) -> Difference:
    """How far a result is from what it was.

    Args:
        floor: what `max_abs` is held against at least.
    """
    if before.shape != after.shape:
        return Difference(float("inf"), float("inf"))
    if not before.size:
        return Difference(0.0, 0.0)
    a, b = after.astype(np.float64), before.astype(np.float64)
    scale = max(_scale(before), floor)
    with np.errstate(invalid="ignore"):
        gap = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    worst = float(np.nan_to_num(gap, nan=np.inf).max())
    return Difference(worst, worst / scale if scale else worst)


def ratio(before: Callable[[], None], after: Callable[[], None], seconds: float = 0.5) -> float:
    """How many times as long one takes as the other: the median of runs in turns.

    Args:
        seconds: to spend on it, at least; at least five runs of each are made.
    """
    for run in (before, after):
        run()
    found: list[float] = []
    until = time.perf_counter() + seconds
    while len(found) < 5 or (time.perf_counter() < until and len(found) < 500):
        begun = time.perf_counter()
        before()
        middle = time.perf_counter()
        after()
        found.append((time.perf_counter() - middle) / max(middle - begun, 1e-9))
    return float(np.median(found))


def filled(values: Values, shapes: Mapping[str, tuple[tuple[int, ...], str]]) -> dict[str, Any]:
    """A value for every argument; those that a pass added get random ones, always the same.

    Args:
        shapes: shape and dtype by the argument's name.
    """
    generator = np.random.default_rng(0)
    return {
        name: values[name] if name in values else generator.standard_normal(shape).astype(dtype)
        for name, (shape, dtype) in shapes.items()
    }


def _applied(program: Any, steps: Sequence[tuple[Any, dict[str, Any]]]) -> Any:
    """A program after passes, given as functions and what they are told."""
    for function, arguments in steps:
        program = function(program, **arguments)
    return program


def ran(engine: Engine, program: Any, values: Values, target: str) -> Runner | None:
    """A program that was built and run once; None where it is not, for there is no target."""
    if not target:
        return None
    run = engine.runner(program.mod, values, target)
    run()
    return run


def _loaded(steps: Sequence[tuple[str, str, dict[str, Any]]]) -> list[tuple[Any, dict[str, Any]]]:
    return [(getattr(import_module(m), name), arguments) for m, name, arguments in steps]


def _read(engine: Engine, folder: Path, name: str, text: str, stored: Values) -> Any:
    """The module before or after the passes, from its text or the file `NAME.json`."""
    json, first = folder / f"{name}.json", "constant after "
    later = {n[len(first) :]: v for n, v in stored.items() if n.startswith(first)}
    own = {n[9:]: v for n, v in stored.items() if n.startswith("constant ")}
    constants = later if name == "after" else {n: v for n, v in own.items() if n[6:] not in later}
    return engine.read(text, json.read_text() if json.exists() else "", constants)


def main(fault: Fault) -> int:
    """Show a fault, from the folder that its report lies in.

    Returns:
        1 while the fault is there, 0 when it is mended, 2 where that cannot be said.
    """
    folder = Path(sys.argv[0]).resolve().parent
    print(fault.title, end="\n\n")
    try:
        engine: Engine = import_module(f"relascope.engine.{fault.ir}.faults.replay")
        with np.load(folder / "values.npz") as file:
            stored = dict(file)
        mod = _read(engine, folder, "program", fault.program, stored)
        values = {n[9:]: v for n, v in stored.items() if n.startswith("argument ")}
        parameters = {name: values[name] for name in fault.parameters}
        program = engine.program(mod, parameters, fault.inputs, fault.outputs)
        before = _loaded(fault.tail)
        after = [*_loaded(fault.steps), *before]
        print(f"{engine.version()}, Python {platform.python_version()}, numpy {np.__version__}")
        target = fault.target if fault.building else ""
        left = ran(engine, _applied(program, before), values, target)
    except Exception:
        traceback.print_exc()
        print("\nThe report cannot be run here; see README.md for what it needs.")
        return 2
    sys.stdout.flush()  # what comes now may end the process
    try:
        if fault.recorded:
            mod = _read(engine, folder, "after", fault.after, stored)
            inputs = tuple(values)
            program = engine.program(mod, {}, inputs, fault.outputs)
        right = ran(engine, _applied(program, after), values, target)
    except Exception:
        traceback.print_exc()
        crash = fault.kind == "crash"
        print("\nThe fault is there." if crash else "\nIt fails in another way than reported.")
        return 1 if crash else 2
    if left is None or right is None or fault.kind == "crash":
        print("It does not crash: the fault is mended.")
        return 0
    if fault.kind == "slow":
        return _slow(ratio(left, right), fault.limit)
    expected = [stored[f"expected {i}"] for i in range(fault.outputs)] if not fault.tail else []
    return _wrong(left.results(), right.results(), expected, fault)


def _slow(found: float, limit: float) -> int:
    print(f"After the pass it takes {found:.2f} times as long; reported is more than {limit:g}.")
    print("The fault is there." if found > limit else "The fault is mended.")
    return 1 if found > limit else 0


def _wrong(
    before: Sequence[np.ndarray],
    after: Sequence[np.ndarray],
    expected: Sequence[np.ndarray],
    fault: Fault,
) -> int:
    limit, bad = fault.limit, len(before) != len(after)
    if bad:
        print(f"There are {len(before)} results before the pass, and {len(after)} after it.")
    pairs = zip(before, after, differences(before, after, fault.floor), strict=False)
    for index, (one, other, gap) in enumerate(pairs):
        wrong = not gap.max_rel <= limit
        bad = bad or wrong
        print(
            f"output {index}: differs by {gap.max_abs:.3e}, {gap.max_rel:.3e} of its scale, limit "
            f"{limit:.0e}: {'WRONG' if wrong else 'right'}"
        )
        if index < len(expected):
            stored = difference(expected[index], one)
            print(f"  (before the pass it is {stored.max_rel:.1e} from the value that is stored)")
        if wrong and one.shape == other.shape and one.size:
            far = np.abs(other.astype(np.float64) - one.astype(np.float64))
            at = np.unravel_index(int(np.nan_to_num(far, nan=np.inf).argmax()), one.shape)
            print(f"  worst at {[int(i) for i in at]}: {one[at]} before, {other[at]} after")
    print("The fault is there." if bad else "The fault is mended.")
    return 1 if bad else 0
