"""The ways to record: an instrument, and a context that finds everything itself."""

import inspect
import os
import platform
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from relascope.core.scratch import Scratch
from relascope.recorder.contents import Contents, ffi
from relascope.recorder.events import Events
from relascope.recorder.writing import LEVELS, Writer


class Record:
    """An instrument for `tvm.transform.PassContext(instruments=[relascope.Record("run.rsc")])`.

    Each pass is written when it begins and when it ends. The message of a pass that raises is
    written when the context ends with it. Times of passes exclude the recording itself.

    `path` is the file, which is overwritten, and `level` is in `relascope.recorder.writing.LEVELS`.
    Raises ValueError where there is no such level, or this TVM does not support it, and OSError
    where the file cannot be written."""

    def __new__(cls, path: str | os.PathLike[str], level: str = "text") -> Any:
        return _begun(path, level)[0]


def _begun(path: str | os.PathLike[str], level: str, claim: bool = False) -> tuple[Any, Events]:
    if level not in LEVELS:
        raise ValueError(f"There is no level {level!r}; choose from {', '.join(LEVELS)}.")
    import tvm

    if level == LEVELS[-1] and not _saves(tvm):
        message = f"TVM {tvm.__version__} crashes here when it saves a module as JSON"
        if ffi(tvm) == "tvm_ffi":
            message += f", with apache-tvm-ffi {import_module('tvm_ffi').__version__}"
        raise ValueError(f"{message}: record at the level {LEVELS[-2]!r}.")
    about: dict[str, Any] = {"tvm": str(tvm.__version__), "python": platform.python_version()}
    about |= {"arguments": sys.argv, "level": level, "process": os.getpid()}
    writer = Writer(Path(path).absolute(), about, claim)
    events = Events(tvm, writer, Contents(tvm, writer, level))
    os.register_at_fork(after_in_child=events.forked)
    hooks = _Counted(lambda: _hooked(tvm, events))

    @tvm.ir.instrument.pass_instrument
    class Instrument:
        def enter_pass_ctx(self) -> None:
            events.entered()
            hooks.add(1)

        def exit_pass_ctx(self) -> None:
            events.left()
            hooks.add(-1)

        def run_before_pass(self, mod: Any, info: Any) -> None:
            events.began(mod, str(info.name), int(info.opt_level), info.required)

        def run_after_pass(self, mod: Any, info: Any) -> None:
            events.ended(mod)

    return Instrument(), events


def _saves(tvm: Any) -> bool:
    """Whether TVM can save a module; with some versions of its FFI, it ends the process."""
    child = os.fork()
    if not child:
        status = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            tvm.ir.save_json(tvm.ir.Range(0, 3))
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


class _Counted:
    """Holds a context open while any thread needs it."""

    def __init__(self, make: Callable[[], AbstractContextManager[None]]) -> None:
        self._make, self._needed, self._lock = make, 0, threading.Lock()
        self._open = ExitStack()

    def add(self, one: int) -> None:
        with self._lock:
            self._needed += one
            if one > 0 and self._needed == 1:
                self._open.enter_context(self._make())
            elif not self._needed:
                self._open.close()


_HOOKED: list[Events] = []


@contextmanager
def _hooked(tvm: Any, events: Events, before: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Observe errors that the program handles, and generated code, which instruments do not see;
    `before` is called before every pass that Python calls."""
    if events in _HOOKED:
        yield
        return
    _HOOKED.append(events)
    kind = tvm.transform.Pass
    call = kind.__call__

    def called(self: Any, mod: Any) -> Any:
        depth = events.depth
        if not depth:
            before()
        try:
            return call(self, mod)
        except BaseException as error:
            events.failed(depth, error)
            raise

    kind.__call__ = called
    names = [str(n) for n in _registry(tvm).list_global_func_names()]
    generators = {n: tvm.get_global_func(n) for n in names if n.startswith("target.build.")}
    for name, generate in generators.items():
        _register(tvm, name, partial(_generated, events, name, generate))
    try:
        yield
    finally:
        kind.__call__ = call
        for name, generate in generators.items():
            _register(tvm, name, generate)
        _HOOKED.remove(events)


def _registry(tvm: Any) -> Any:
    return import_module(f"{ffi(tvm)}.registry")


def _register(tvm: Any, name: str, function: Any) -> None:
    registry = _registry(tvm)
    register = getattr(registry, "register_global_func", None) or registry.register_func
    register(name, function, override=True)


def _generated(events: Events, name: str, generate: Callable[..., Any], *args: Any) -> Any:
    depth = events.depth
    events.began(args[0], name, kind="codegen")
    try:
        made = generate(*args)
    except BaseException as error:
        events.failed(depth, error)
        raise
    events.ended(None, _code(made) if events.contents.texts else [])
    return made


def _code(made: Any) -> list[list[str]]:
    """A generated module's source, with TVM's name of its language; empty without one."""
    read = getattr(made, "inspect_source", None) or getattr(made, "get_source", None)
    try:
        text = str(read()) if read is not None else ""
    except Exception:  # some modules have no source, and say so in many ways
        text = ""
    return [[str(getattr(made, "kind", "") or getattr(made, "type_key", "")), text]] if text else []


class RecordedRun(os.PathLike[str]):
    """The file of a recording, for anything that takes a path; a notebook draws it. Without a given
    path, the file is deleted with this object."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self._folder = Scratch() if path is None else None
        self.path = Path(self._folder.name, "run.rsc") if self._folder else Path(path or "")

    def __fspath__(self) -> str:
        return str(self.path)

    __str__ = __fspath__

    def __repr__(self) -> str:
        return f"<relascope recording {str(self.path)!r}>"

    def _repr_html_(self) -> str:
        # By name, because the recorder must run where nothing that draws is installed.
        return str(import_module("relascope.viz.handed_on.notebook").show(self)._repr_html_())


@contextmanager
def recording(
    path: str | os.PathLike[str] | None = None, level: str | None = None, *, claim: bool = False
) -> Iterator[RecordedRun]:
    """Record the passes of all contexts opened inside, and of the open one; raises as `Record`
    does. Without a path, the file is temporary, and the default level is "graphs". With `claim`,
    the file begins with the first pass, and where another process has begun it, this one writes
    beside it: `run.1234.rsc`, by this process's number."""
    import tvm

    run, level = RecordedRun(path), level or ("graphs" if path is None else "text")
    (record, events), context = _begun(run, level, claim), tvm.transform.PassContext
    init, signature = context.__init__, inspect.signature(context.__init__)

    def with_record(self: Any, *args: Any, **named: Any) -> None:
        given = signature.bind(self, *args, **named)
        given.arguments["instruments"] = [*(given.arguments.get("instruments") or ()), record]
        init(*given.args, **given.kwargs)

    def seen() -> None:
        """Other threads have their own contexts where the program has opened none."""
        current = context.current()
        if not any(record.same_as(i) for i in current.instruments):
            current.override_instruments([*current.instruments, record])

    around = context.current()
    before = list(around.instruments)
    with _hooked(tvm, events, seen):
        around.override_instruments([*before, record])
        context.__init__ = with_record
        try:
            yield run
        except BaseException as error:
            events.failed(0, error)
            raise
        finally:
            events.failed(0, None)
            context.__init__ = init
            around.override_instruments(before)
            events.close()
