"""Runs a program before a pass and after it, on the same inputs, and compares the two.

Copied into each report, so it needs only numpy and files copied with it. The engine uses the same
functions, so a report shows what the engine saw.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
    """What a report needs from an IR's TVM: the module `faults.replay` of its engine."""

    def version(self) -> str:
        """TVM's version."""

    def read(self, text: str, json: str, constants: Values) -> Any:
        """The module in a report."""

    def typed(self, mod: Any) -> Any:
        """A module whose expressions have types."""

    def array(self, value: np.ndarray) -> Any:
        """A tensor of TVM's on the CPU."""

    def check_formed(self, mod: Any) -> None:
        """Raise TVM's error for a module that is not well-formed."""

    def signature(self, mod: Any) -> tuple[dict[str, str], str]:
        """The types of the arguments of "main" by their names, and of its result."""

    def runner(self, mod: Any, values: Values, target: str, optimised: bool = True) -> Runner:
        """Build a module's "main" and set its arguments. If `optimised`, TVM builds as by default,
        else operator by operator."""


@dataclass(frozen=True)
class Difference:
    """An output after the pass against the same before it: the largest absolute difference,
    infinite where shapes differ or one alone has NaN; and the same divided by the largest finite
    magnitude before the pass, or by a larger floor."""

    max_abs: float
    max_rel: float


_SHARE = 1e-3
"""The least scale of a result, as a fraction of the largest: the gradient of a bias that cancels is
only rounding."""
WHOLE_NUMBERS = 2.0**32
"""The largest scale of integers: with it, an error of 1 exceeds float64's limit at any size."""


def floor_of(results: Iterable[np.ndarray]) -> float:
    """The least scale of a program's results."""
    return _SHARE * max((_scale(r) for r in results), default=0.0)


def differences(
    before: Sequence[np.ndarray], after: Sequence[np.ndarray], floor: float
) -> list[Difference]:
    """How far results are from those before; scales are at least `floor_of` them all."""
    floor = max(floor, floor_of(before))
    return [difference(a, b, floor) for a, b in zip(before, after, strict=False)]


def _scale(result: np.ndarray) -> float:
    finite = np.abs(result[np.isfinite(result)].astype(np.float64))
    return float(finite.max()) if finite.size else 0.0


def difference(before: np.ndarray, after: np.ndarray, floor: float = 0.0) -> Difference:
    if before.shape != after.shape:
        return Difference(float("inf"), float("inf"))
    if not before.size:
        return Difference(0.0, 0.0)
    scale, worst = max(_scale(before), floor), float(gaps(before, after).max())
    if before.dtype.kind in "iu" and after.dtype.kind in "iu":
        scale = min(scale, WHOLE_NUMBERS)
    return Difference(worst, worst / scale if scale else worst)


def gaps(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Absolute differences of two arrays of one shape, element by element, in float64; infinite
    where one alone is NaN."""
    a, b = after.astype(np.float64), before.astype(np.float64)
    with np.errstate(invalid="ignore"):
        gap = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    if before.dtype.kind in "iu" and after.dtype.kind in "iu":  # beyond 2**53 float64 rounds
        gap = np.maximum(gap, before != after)
    return np.nan_to_num(gap, nan=np.inf)


def ratio(before: Callable[[], None], after: Callable[[], None]) -> float:
    """How many times as long `after` takes as `before`: the median of runs in turns, at least five
    and for half a second."""
    for run in (before, after):
        run()
    found: list[float] = []
    until = time.perf_counter() + 0.5
    while len(found) < 5 or (time.perf_counter() < until and len(found) < 500):
        begun = time.perf_counter()
        before()
        middle = time.perf_counter()
        after()
        found.append((time.perf_counter() - middle) / max(middle - begun, 1e-9))
    return float(np.median(found))


def filled(values: Values, shapes: Mapping[str, tuple[tuple[int, ...], str]]) -> dict[str, Any]:
    """A value for every argument; those without one get random ones, always the same."""
    generator = np.random.default_rng(0)
    return {
        name: values[name] if name in values else generator.standard_normal(shape).astype(dtype)
        for name, (shape, dtype) in shapes.items()
    }


def ran(
    engine: Engine, mod: Any, values: Values, target: str, optimised: bool = True
) -> Runner | None:
    """A module, built and run once; None without a target."""
    if not target:
        return None
    run = engine.runner(mod, values, target, optimised)
    run()
    return run


class Malformed(Exception):
    """The result of a pass cannot replace the program that it was given."""


def check_result(
    engine: Engine, before: Any, after: Any, parameters: Collection[str], same_result: bool
) -> None:
    """Check that a module after passes can replace the one before them. `parameters` are names of
    arguments that passes may remove. Raises Malformed where it cannot."""
    if not isinstance(after, type(before)):
        raise Malformed(f"The pass returned {type(after).__name__}, not {type(before).__name__}.")
    try:
        engine.check_formed(after)
    except Exception as error:  # TVM raises any type
        text = next(iter(str(error).splitlines()), "")
        raise Malformed(f"The module is not well-formed: {type(error).__name__}: {text}") from error
    (given, result), (taken, made) = engine.signature(before), engine.signature(after)
    wrong = [f"It takes a new argument {n}" for n in taken if n not in given]
    wrong += [f"The argument {n} is gone" for n in given if n not in {*taken, *parameters}]
    wrong += [
        f"The type of argument {n} changed from {kind} to {taken[n]}"
        for n, kind in given.items()
        if taken.get(n, kind) != kind
    ]
    if same_result and result != made:
        wrong.append(f"The type of the result changed from {result} to {made}")
    if wrong:
        raise Malformed(f"{wrong[0]}.")
