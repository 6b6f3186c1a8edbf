"""What keeps tests quick: a target that builds in half the time, small peaks, a slice of cases; and
which engine's tests run in this process."""

import functools
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import product
from typing import Any
from unittest.mock import patch

import pytest

from relascope.engine.measure import peaks

ENGINE = "relay" if "tvm.relay" in sys.modules else "relax"
"""The engine whose TVM this process holds, for tests of `tests/relay` and `tests/relax`."""
QUICK = "llvm -opt-level=0"
"""For tests of what is computed rather than of code: LLVM's optimiser is half of a build."""


def linking(owner: type, module_of: Callable[[Any], Any], load: Callable[[str], Any]) -> Any:
    """While it is entered, what is built for `QUICK` is loaded from a shared library by `load`:
    LLVM compiles in memory at its highest level, whatever the target asks for, which takes most of
    a quick build. Without a linker all runs from memory."""
    begin = owner.__init__

    @functools.wraps(begin)
    def linked(self: Any, built: Any, *rest: Any, **named: Any) -> None:
        link(module_of(built), load)
        begin(self, built, *rest, **named)

    return patch.object(owner, "__init__", linked)


def link(module: Any, load: Callable[[str], Any]) -> None:
    """What `linking` does, of one module."""
    linker = shutil.which("ld")
    if linker is None:
        return
    parts = list(getattr(module, "imports", None) or getattr(module, "imported_modules", ()))
    kinds = [getattr(m, "kind", None) or m.type_key for m in parts]
    for part, kind in zip(parts, kinds, strict=True):
        if kind != "llvm":
            link(part, load)
    if kinds != ["llvm"]:
        return
    target = parts[0]["_get_target_string"]().replace(" ", "")
    if "-opt-level=0" not in target and '"opt-level":0' not in target:
        return
    with tempfile.TemporaryDirectory() as folder:
        code, library = f"{folder}/code.o", f"{folder}/code.so"
        (getattr(parts[0], "write_to_file", None) or parts[0].save)(code)
        subprocess.run([linker, "-shared", "-o", library, code], check=True)
        found = load(library)
    module.clear_imports()
    module.import_module(found)


@contextmanager
def quickly(runtime: Any, passes: Any, key: str, left_out: Sequence[str]) -> Iterator[None]:
    """While it is entered, builds for `QUICK` do without these passes, and their kernels do not
    check the shapes and dtypes of their arguments, as those of other targets do: that is a third of
    the code. The key is that of TVM's contexts for `passes`."""
    make, context = runtime.make, passes.PassContext

    def unchecking(*args: Any, config: dict[str, Any] | None = None, **named: Any) -> Any:
        return context(*args, config={**(config or {}), key: True}, **named)

    def quick(program: Any, options: Any, instruments: Sequence[Any] = ()) -> Any:
        if options.target != QUICK:
            return make(program, options, instruments)
        options = replace(options, disabled=(*options.disabled, *left_out))
        with patch.object(passes, "PassContext", unchecking):
            return make(program, options, instruments)

    unchecking.current = context.current
    with ExitStack() as stack:
        stack.enter_context(patch.object(runtime, "make", quick))
        stack.enter_context(patch.object(runtime, "_builder", runtime._new_builder()))
        yield


def small_peaks() -> Any:
    """While it is entered, peaks are measured on sizes that take no time, and mean nothing."""
    sizes = {"_SMALLEST": 2**12, "_LEAST_LARGEST": 2**14, "_MOST_LARGEST": 2**14, "_COPIED": 2**12}
    times = {"_BLOCK_SECONDS": 1e-4, "_BUDGET_SECONDS": 0.05}
    return patch.multiple(peaks, _SIDES={"cpu": (16, 32), "cuda": (16, 32)}, **sizes, **times)


def rare(*values: Any) -> Any:
    """Parameters with which a test is exhaustive."""
    return pytest.param(*values, marks=pytest.mark.exhaustive)


def first_in_relay(values: Sequence[Any]) -> list[Any]:
    """Values of a parameter that differ in what is done before an engine imports the program:
    Relax's tests run all of them, and Relay's, which take longer, by default the first."""
    return [rare(v) if i and ENGINE == "relay" else v for i, v in enumerate(values)]


def combinations(*axes: Sequence[Any], relay: int | None = None) -> list[Any]:
    """All combinations, as parameters of a test; exhaustive but for those that the axes give when
    all are walked in step, so that each value is in one at least. Of these, Relay's tests run the
    first so many by default: those that differ in what is done before an engine imports them."""
    longest = max(map(len, axes))
    default = [tuple(i % len(a) for a in axes) for i in range(longest)]
    default = default[: relay if ENGINE == "relay" else None]
    found = []
    for places in product(*(range(len(a)) for a in axes)):
        values = tuple(axis[i] for axis, i in zip(axes, places, strict=True))
        found.append(values if places in default else rare(*values))
    return found
