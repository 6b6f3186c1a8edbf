"""The instrument that writes down TVM's passes, and contexts that have it."""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relascope.recorder.writing import LEVELS, Writer


class Record:
    """An instrument for `tvm.transform.PassContext(instruments=[relascope.Record("run.rsc")])`.

    Each pass is written when it begins and when it ends, with its level, time, and, at the level
    "text", the text of every function before and after. Constants' values are left out. Of a pass
    that raises, the message is written where the context ends with it. Time that the recording
    itself takes is not a pass's.

    Args:
        path: of the file, which is begun anew.
        level: in `LEVELS`.

    Raises:
        ValueError: there is no such level.
        OSError: the file cannot be written.
    """

    def __new__(cls, path: str | os.PathLike[str], level: str = "text") -> Any:
        return _begun(path, level)[0]


def _begun(path: str | os.PathLike[str], level: str) -> tuple[Any, _Events]:
    """An instrument, and what it tells of passes."""
    if level not in LEVELS:
        raise ValueError(f"There is no level {level!r}; choose of {', '.join(LEVELS)}.")
    import tvm

    about: dict[str, Any] = {"tvm": str(tvm.__version__), "python": platform.python_version()}
    about |= {"arguments": sys.argv, "level": level, "process": os.getpid()}
    events = _Events(Writer(Path(path), about), level == "text", _printer(tvm))

    @tvm.ir.instrument.pass_instrument
    class Instrument:
        def enter_pass_ctx(self) -> None:
            events.entered()

        def exit_pass_ctx(self) -> None:
            events.left()

        def run_before_pass(self, mod: Any, info: Any) -> None:
            events.began(mod, str(info.name), int(info.opt_level))

        def run_after_pass(self, mod: Any, info: Any) -> None:
            events.ended(mod)

    return Instrument(), events


class _Running(threading.local):
    """Of one thread: passes under way, how many there were when each context began, and the module
    that was seen last."""

    def __init__(self) -> None:
        self.passes: list[_Run] = []
        self.contexts: list[int] = []
        self.module: _Module | None = None


@dataclass
class _Module:
    """A module as it is in the file, by its number there."""

    number: int
    functions: dict[str, str]


@dataclass
class _Run:
    """A pass that is under way.

    Args:
        module: as it was when it began.
        began: on the clock.
        recording: seconds that the recording itself took meanwhile.
    """

    number: int
    module: _Module | None
    began: float
    recording: float = 0.0


class _Events:
    def __init__(self, writer: Writer, texts: bool, printed: Any) -> None:
        self.writer, self._texts, self._printed = writer, texts, printed
        self._process, self._lock, self._count = os.getpid(), threading.Lock(), 0
        self._running = _Running()
        self._known: dict[str, tuple[Any, str]] = {}
        self._modules = 0

    def entered(self) -> None:
        self._running.contexts.append(len(self._running.passes))

    def left(self) -> None:
        """Passes of this context that have not ended have failed."""
        running = self._running
        self.failed(running.contexts.pop() if running.contexts else 0, sys.exc_info()[1])

    def failed(self, depth: int, error: BaseException | None) -> None:
        while len(self._running.passes) > depth:
            run = self._running.passes.pop()
            seconds = time.perf_counter() - run.began - run.recording
            message = str(error or "")[-4000:]
            self._line({"failed": run.number, "seconds": seconds, "message": message})

    def began(self, mod: Any, name: str, opt_level: int) -> None:
        start, passes = time.perf_counter(), self._running.passes
        with self._lock:
            number, self._count = self._count, self._count + 1
            about = {"begin": number, "depth": len(passes), "name": name, "opt_level": opt_level}
            module = self._written(about, mod, [r.module for r in passes[-1:]])
        now = time.perf_counter()
        for other in passes:
            other.recording += now - start
        passes.append(_Run(number, module, now))

    def ended(self, mod: Any) -> None:
        start, passes = time.perf_counter(), self._running.passes
        if not passes:  # it began before the recording
            return
        run = passes.pop()
        seconds = start - run.began - run.recording
        with self._lock:
            self._written({"end": run.number, "seconds": seconds}, mod, [run.module])
        now = time.perf_counter()
        for other in passes:
            other.recording += now - start

    def _line(self, fields: dict[str, Any]) -> None:
        if os.getpid() == self._process:  # a copy of the process would write in between
            self.writer.line(fields)

    def _written(
        self, fields: dict[str, Any], mod: Any, like: list[_Module | None]
    ) -> _Module | None:
        """Write an event with its module, as what it differs in from the nearest of some others.

        Args:
            like: modules that it may be like, beside the last of this thread.
        """
        functions = self._functions(mod)
        if functions is None:
            self._line(fields)
            return None
        best: list[Any] = [None, functions, []]
        for other in filter(None, [*like, self._running.module]):
            if other.functions == functions:
                self._line({**fields, "module": other.number})
                self._running.module = other
                return other
            new = {n: c for n, c in functions.items() if other.functions.get(n) != c}
            gone = [n for n in other.functions if n not in functions]
            if len(new) + len(gone) < len(best[1]) + len(best[2]):
                best = [other.number, new, gone]
        module = self._running.module = _Module(self._modules, functions)
        self._modules += 1
        self._line({**fields, "module": best})
        return module

    def _functions(self, mod: Any) -> dict[str, str] | None:
        """The hashes of functions' contents; a function that is the same object has the same."""
        if not self._texts or not hasattr(mod, "functions") or os.getpid() != self._process:
            return None
        found = {}
        for var, function in mod.functions.items():
            name = str(var.name_hint)
            known = self._known.get(name)
            if known is None or not known[0].same_as(function):
                try:
                    text = self._printed(function)
                except Exception as wrong:  # a printer's own fault must not end a compile
                    text = f"This function cannot be printed: {str(wrong)[-300:]}"
                known = self._known[name] = function, self.writer.text(text)
            found[name] = known[1]
        return found


def _printer(tvm: Any) -> Any:
    """How a function becomes text, without its constants' values."""
    relay = getattr(tvm, "relay", None)

    def printed(function: Any) -> str:
        if relay is not None and isinstance(function, relay.Function):
            return str(function.astext(show_meta_data=False))
        return str(function.script(show_meta=False))

    return printed


@contextmanager
def recording(path: str | os.PathLike[str], level: str = "text") -> Iterator[None]:
    """Record the passes of all contexts that are opened inside, and of the one that is open.

    Args:
        path, level: as of `Record`.
    """
    import tvm

    (record, events), context = _begun(path, level), tvm.transform.PassContext
    init = context.__init__

    def with_record(
        self: Any,
        opt_level: int = 2,
        required_pass: Any = None,
        disabled_pass: Any = None,
        instruments: Any = None,
        config: Any = None,
    ) -> None:
        init(self, opt_level, required_pass, disabled_pass, [*(instruments or ()), record], config)

    around = context.current()
    before = list(around.instruments)
    around.override_instruments([*before, record])
    context.__init__ = with_record
    try:
        yield
    except BaseException as error:
        events.failed(0, error)
        raise
    finally:
        events.failed(0, None)
        context.__init__ = init
        around.override_instruments(before)
        events.writer.close()
