"""The events of a compile, as a recording has them."""

import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from relascope.recorder.contents import Contents
from relascope.recorder.writing import Writer

_OWN = os.path.dirname(os.path.abspath(__file__))
# Files between a pass and an instrument's method: TVM's calls from C++ into Python.
_BETWEEN = (os.sep + "_ffi" + os.sep, os.sep + "tvm_ffi" + os.sep, "instrument.py")

_Method = TypeVar("_Method", bound=Callable[..., None])


def _safely(method: _Method) -> _Method:
    """Let a fault of the recorder end the recording, but never the compile."""

    @functools.wraps(method)
    def safe(self: "Events", *args: Any, **named: Any) -> None:
        if self.closed:
            return
        try:
            method(self, *args, **named)
        except Exception as wrong:
            self.stop(f"{type(wrong).__name__}: {str(wrong)[-1000:]}")

    return safe  # type: ignore[return-value]


@dataclass
class _RecordedModule:
    """A module by its number in the file, with its functions' hashes."""

    number: int
    functions: dict[str, str]


@dataclass
class _PassRun:
    """A pass under way: its input module, when it began, the innermost Python frame that runs it,
    and the seconds that the recording itself took meanwhile."""

    number: int
    module: _RecordedModule | None
    began: float
    caller: Any
    recording: float = 0.0


class _Thread(threading.local):
    """The state of one thread: passes under way, their number when each context began, the last
    module, the context, whether passes are the recording's own, and the seconds that the recording
    took: threads that record at once would count the same ones twice."""

    def __init__(self) -> None:
        self.passes: list[_PassRun] = []
        self.contexts: list[int] = []
        self.module: _RecordedModule | None = None
        self.context: int | None = None
        self.busy = False
        self.spent = 0.0


@dataclass
class Events:
    """The events of one recording. Any thread may report passes; a copy of the process (a fork)
    begins its own file. `tvm` is the package."""

    tvm: Any
    writer: Writer
    contents: Contents
    closed: bool = False
    _lock: Any = field(default_factory=threading.RLock)
    _here: _Thread = field(default_factory=_Thread)
    _threads: dict[int, int] = field(default_factory=dict)
    _runs: int = 0
    _modules: int = 0
    _contexts: int = 0
    _began: float = field(default_factory=time.perf_counter)
    _frames: bool | None = None  # whether `_PassRun.caller` shows what is under way; None: unknown

    def forked(self) -> None:
        """Start a new file in a copy of the recorded process."""
        if self.closed:
            return
        self._lock, self._here = threading.RLock(), _Thread()
        self._runs = self._modules = self._contexts = 0
        self._threads.clear()
        self.writer.forked()
        self.contents.forget()

    def close(self) -> None:
        """Write nothing after this."""
        if not self.closed:
            self.closed = True
            self.writer.close()

    def stop(self, why: str) -> None:
        """End the recording here; the compile goes on."""
        print(f"relascope: the recording ends here: {why}", file=sys.stderr)
        self.closed = True
        with contextlib.suppress(OSError):
            self.writer.line({"stopped": why})
            self.writer.close()

    @_safely
    def entered(self) -> None:
        """A context was entered."""
        self._here.contexts.append(len(self._here.passes))
        self._here.context = None

    @_safely
    def left(self) -> None:
        """A context was left: its passes that have not ended have failed."""
        here = self._here
        self.failed(here.contexts.pop() if here.contexts else 0, sys.exc_info()[1])
        here.context = None

    @property
    def depth(self) -> int:
        """The number of passes under way in this thread."""
        return len(self._here.passes)

    @_safely
    def failed(self, depth: int, error: BaseException | None) -> None:
        """All passes under way in this thread except the first `depth` have failed."""
        message = "It did not return, and its error was handled by the program."
        if error is not None:
            message = f"{type(error).__name__}: {error}"[-4000:]
        while len(self._here.passes) > depth:
            run = self._here.passes.pop()
            seconds = time.perf_counter() - run.began - run.recording
            self.writer.line({"failed": run.number, "seconds": seconds, "message": message})

    @_safely
    def began(
        self, mod: Any, name: str, opt_level: int = 0, required: Any = (), kind: str = "pass"
    ) -> None:
        """A pass begins on a module."""
        start, here = time.perf_counter(), self._here
        if here.busy:
            return
        caller, around = _callers()
        if self._frames:
            alive = sum(1 for r in here.passes if id(r.caller) in around)
            if alive < len(here.passes):
                self.failed(alive, None)
        with self._lock:
            number, self._runs = self._runs, self._runs + 1
            thread = self._threads.setdefault(threading.get_ident(), len(self._threads))
            about: dict[str, Any] = {"begin": number, "depth": len(here.passes), "name": name}
            about |= {"opt_level": opt_level, "context": self._context()}
            about |= {"at": start - self._began - here.spent}
            about |= {"kind": kind} if kind != "pass" else {}
            about |= {"required": list(map(str, required))} if len(required) else {}
            about |= {"thread": thread} if thread else {}
            module = self._written(about, mod, [r.module for r in here.passes[-1:]])
        here.passes.append(_PassRun(number, module, self._taken(start), caller))

    @_safely
    def ended(self, mod: Any, code: list[list[str]] | None = None) -> None:
        """The innermost pass of this thread has ended, with the module that it made (None: it is
        not a pass), and generated code, as languages and texts."""
        start, passes = time.perf_counter(), self._here.passes
        if self._here.busy or not passes:  # without any, it began before the recording
            return
        run = passes.pop()
        if self._frames is None:
            self._frames = id(run.caller) in _callers()[1]
        about: dict[str, Any] = {"end": run.number, "seconds": start - run.began - run.recording}
        with self._lock:
            if code:
                about["code"] = [[language, self.contents.text(text)] for language, text in code]
            self._written(about, mod, [run.module])
        self._taken(start)

    def _taken(self, start: float) -> float:
        """Count the time since `start` as the recording's own, not as a pass's."""
        now, here = time.perf_counter(), self._here
        for run in here.passes:
            run.recording += now - start
        here.spent += now - start
        return now

    def _context(self) -> int:
        """The number of this thread's context."""
        here = self._here
        if here.context is None:
            here.context, self._contexts = self._contexts, self._contexts + 1
            context = self.tvm.transform.PassContext.current()
            config = {str(k): str(v) for k, v in dict(context.config or {}).items()}
            about: dict[str, Any] = {"context": here.context, "opt_level": int(context.opt_level)}
            about |= {"required": [str(n) for n in context.required_pass]}
            about |= {"disabled": [str(n) for n in context.disabled_pass], "config": config}
            self.writer.line(about)
        return here.context

    def _written(
        self, fields: dict[str, Any], mod: Any, like: list[_RecordedModule | None]
    ) -> _RecordedModule | None:
        """Write an event with its module, as the difference from the nearest of `like` and the last
        module of this thread."""
        self._here.busy = True  # drawing a graph may need a pass
        try:
            functions = self.contents.functions(mod)
        finally:
            self._here.busy = False
        if functions is None:
            self.writer.line(fields)
            return None
        best: list[Any] = [None, functions, []]
        for other in filter(None, [*like, self._here.module]):
            if other.functions == functions:
                self.writer.line({**fields, "module": other.number})
                self._here.module = other
                return other
            new = {n: c for n, c in functions.items() if other.functions.get(n) != c}
            gone = [n for n in other.functions if n not in functions]
            if len(new) + len(gone) < len(best[1]) + len(best[2]):
                best = [other.number, new, gone]
        module = self._here.module = _RecordedModule(self._modules, functions)
        self._modules += 1
        if self.contents.modules:
            self.contents.json(module.number, mod)
        self.writer.line({**fields, "module": best})
        return module


def _callers() -> tuple[Any, set[int]]:
    """The innermost frame outside the recorder and TVM's calls from C++, and all frames."""
    frame, caller, around = sys._getframe(1), None, set()
    while frame is not None:
        file = frame.f_code.co_filename
        if caller is None and not file.startswith(_OWN) and not any(b in file for b in _BETWEEN):
            caller = frame
        around.add(id(frame))
        frame = frame.f_back  # type: ignore[assignment]
    return caller, around
