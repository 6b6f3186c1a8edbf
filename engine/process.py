"""The process of an engine, from the app's side: start, ask, measure from outside, end.

Nothing here imports a TVM or torch.
"""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import IO, Any

import psutil

from relascope.core.errors import EngineError, ending
from relascope.core.graph import Graph
from relascope.core.memo import Memo
from relascope.core.place import IMPORT_ROOT, with_import_root
from relascope.core.scratch import Scratch
from relascope.engine import kept_builds, wire
from relascope.engine.limits import Unit, Usage
from relascope.engine.protocol import records
from relascope.engine.protocol.source import EVERYTHING, ModelSource
from relascope.engine.sandbox import READABLE, Access
from relascope.engine.turns import shared_file
from relascope.passes.catalogue import recorded
from relascope.passes.pipeline import Pipeline

_GRACE = 1.0  # s; for a process to end when its socket is closed
_LOG_BYTES = 64 * 1024  # of a request's standard error that are kept


@dataclass(frozen=True)
class Wants:
    """What a request needs beyond the engine's sandbox: `folders` to write to, and `files` to read,
    folders among them, or `EVERYTHING`. `opened` is what `kept_builds.strangers` gives for all
    sources."""

    folders: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    opened: frozenset[str] = field(default=frozenset(), compare=False)

    def with_(self, method: str, arguments: Iterable[Any]) -> "Wants":
        """These, and what a request needs: a folder for the files that it writes, models' files.

        The user's own code may read everything, because no stranger's file is opened beside it.
        """
        given = tuple(arguments)
        named = {a for a in given if method == "compile" and isinstance(a, str) and a}
        values = [value for a in given for value in _within(a)]
        sources = [v for v in values if isinstance(v, ModelSource)]
        beside = _recorded(values, sources)
        files = self.files.union(*(s.files for s in sources), beside)
        opened = self.opened.union(*map(kept_builds.strangers, sources), [""] if beside else [])
        return Wants(self.folders | named, _allowed(files, sources), opened)

    def access(self, folder: str) -> Access:
        """The access of the process's sandbox. Creates the folders where that is possible; `folder`
        is the process's own."""
        with contextlib.suppress(RuntimeError, OSError):  # a user without a home
            records.root().mkdir(parents=True, exist_ok=True)  # a sandbox needs it to exist
        kept_builds.root()
        for named in self.folders:
            with contextlib.suppress(OSError):  # the writer reports it
                os.makedirs(named, exist_ok=True)
        there = (Path(f).absolute() for f in self.folders if os.path.isdir(f))
        return Access(Path(folder), tuple(there), tuple(map(Path, sorted(self.files))))


def _recorded(values: Iterable[object], sources: Iterable[ModelSource]) -> set[str]:
    steps = (s for v in values if isinstance(v, Pipeline) for s in v)
    left = [recorded.file_of(s) for s in steps if s.name == recorded.NAME]
    return {str(Path(s.model).with_name(n)) for s in sources if s.digest for n in left}


def _allowed(files: Iterable[str], sources: Iterable[ModelSource]) -> frozenset[str]:
    """Which of some files an engine may read, without those that the user lets every engine read:
    they need no new process."""
    granted = [os.path.realpath(f) for f in os.environ.get(READABLE, "").split(os.pathsep) if f]
    wanted = frozenset(f for f in files if not any(map(Path(f).is_relative_to, granted)))
    if EVERYTHING not in wanted:
        return wanted
    asked = [s.files for s in sources]
    strange = any(f and EVERYTHING not in f for f in asked)
    if strange and not any(EVERYTHING in f for f in asked):
        return wanted - {EVERYTHING}
    return frozenset({EVERYTHING})


def _identities(files: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Device and inode of each existing file: a sandbox allows these, not the names."""
    found = {}
    for file in files:
        with contextlib.suppress(OSError):
            about = os.stat(file)
            found[file] = about.st_dev, about.st_ino
    return found


def _within(value: object, depth: int = 3) -> Iterator[ModelSource | Pipeline]:
    if isinstance(value, ModelSource | Pipeline):
        yield value
    elif depth and isinstance(value, tuple | list):
        for item in value:
            yield from _within(item, depth - 1)
    elif depth and is_dataclass(value) and not isinstance(value, Graph):
        for field in fields(value):
            yield from _within(getattr(value, field.name), depth - 1)


class TooLarge(Exception):
    """An answer of more than `wire.MOST_BYTES`."""


class ForkServer:
    """A process that has imported what the engines of an IR need, and forks their processes.

    It ends when nothing refers to it.
    """

    def __init__(self, ir: str, session: str | None, environ: Mapping[str, str]) -> None:
        self.imported = True
        self._lock = threading.Lock()
        self._conn, theirs = Pipe()
        command = [sys.executable, "-X", "faulthandler", "-m", "relascope.engine.worker"]
        folder = Scratch()
        command += ["--ir", ir, "--fd", str(theirs.fileno()), "--folder", folder.name]
        command += ["--session", session] if session else []
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        # A group of its own: Ctrl-C in the terminal is the app's affair.
        how: dict[str, Any] = {**streams, "cwd": IMPORT_ROOT, "start_new_session": True}
        with theirs:
            fd = theirs.fileno()
            self._process = subprocess.Popen(command, pass_fds=[fd], env=environ, **how)
        weakref.finalize(self, _end_server, self._conn, self._process, folder)

    def usable(self) -> bool:
        """Whether it runs, and its imports succeeded; the cause of a failure may be gone."""
        return self.imported and self._process.poll() is None

    def start(self, access: Access, files: Sequence[int]) -> None:
        """Start a process in a sandbox with open files: its socket, its log, the pipe for its exit
        status, and the file that `engine.turns` shares."""
        with self._lock:
            self._conn.send((access, len(files)))
            for file in files:
                send_handle(self._conn, file, self._process.pid)

    def reap(self, pid: int) -> None:
        """Forget a process that has ended: another may get its number."""
        with self._lock, contextlib.suppress(OSError):
            self._conn.send(pid)


def _end_server(conn: Connection, process: subprocess.Popen[bytes], folder: Scratch) -> None:
    conn.close()
    process.kill()
    process.wait()
    folder.cleanup()


_PASSING = "PYTEST_CURRENT_TEST"
"""A variable that differs in each test, and that no import reads."""

_servers: Memo[ForkServer] = Memo(4)


def _fork_server(ir: str, session: str | None) -> ForkServer:
    """The fork server of an IR, in this environment."""
    environ = {n: v for n, v in os.environ.items() if n != _PASSING}
    environ["PYTHONPATH"] = with_import_root(os.environ.get("PYTHONPATH", ""))
    key = (sys.executable, ir, session, *sorted(environ.items()))
    make = partial(ForkServer, ir, session, environ)
    found = _servers.get(key, make)
    if not found.usable():
        found = make()
        _servers.put(key, found)
    return found


class EngineProcess:
    """A process, its socket, and the file that its output goes to."""

    def __init__(self, ir: str, session: str | None, wants: Wants) -> None:
        self.wants = wants
        self.readable = _identities(wants.files)
        self.folder = Scratch()
        handle, name = tempfile.mkstemp(prefix="relascope-")
        os.close(handle)
        # Appending, so that the file can be cut short while the child writes to it.
        self.log: IO[bytes] = open(name, "a+b", buffering=0)  # noqa: SIM115
        os.unlink(name)
        self.conn, theirs = Pipe()
        self._status, status = Pipe(duplex=False)
        self._known = threading.Lock()  # guards what the status says
        self._pid, self._killed = 0, False
        self._code: int | None = None  # its exit status, or a signal's number below 0
        turns = [t for t in (shared_file(),) if t >= 0]
        self.had_run_out = 0  # `out_of_memory` before its last request
        files = [theirs.fileno(), self.log.fileno(), status.fileno(), *turns]
        try:
            self._server = _fork_server(ir, session)
            self._server.start(wants.access(self.folder.name), files)
        except BaseException:
            self.conn.close()
            self.log.close()
            self.folder.cleanup()
            raise
        finally:
            theirs.close()
            status.close()

    def serves(self, wants: Wants) -> bool:
        """Whether its sandbox allows what a request needs, also after a file was replaced."""
        return self.wants == wants and self.readable == _identities(wants.files)

    def _look(self, seconds: float = 0.0) -> None:
        """Read what the fork server says about it, waiting at most `seconds`."""
        with self._known:
            while self._code is None and self._status.poll(seconds):
                try:
                    said = self._status.recv()
                except (EOFError, OSError):  # the fork server is gone
                    said = -signal.SIGKILL
                if isinstance(said, tuple):
                    self._pid, self._server.imported = said
                    if self._killed:
                        self._kill()
                else:
                    self._code = said

    @property
    def pid(self) -> int:
        """0 while unknown."""
        self._look()
        return self._pid

    def running(self) -> bool:
        """Whether it runs; it keeps its process number until `end`."""
        self._look()
        return self._code is None and not (self._killed and not self._pid)

    def kill(self) -> None:
        self._killed = True
        if self.running():
            self._kill()

    def _kill(self) -> None:
        """Kill it and its children, if its number is known."""
        for kill in (os.killpg, os.kill) if self._pid else ():  # it may have no group yet
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(self._pid, signal.SIGKILL)

    def send(
        self,
        number: int,
        method: str,
        payload: bytes,
        crossed: Mapping[Unit, EngineError],
        shelf: str,
    ) -> None:
        """Send a request, as `engine.worker` describes it. Raises OSError if it has ended."""
        self.had_run_out = out_of_memory()
        self.conn.send((number, method, payload, dict(crossed), shelf))

    def receive(self, seconds: float) -> tuple[Any, ...] | None:
        """Its next message, as `engine.worker` describes it; None if none came in time. A malformed
        one becomes an error with None for the request's number. Raises EOFError or OSError if the
        process has ended, and TooLarge for a message that is too large."""
        if not wait_for([self.conn], seconds):
            # A process that it started may hold its socket open after its death.
            if not self.running() and not self.conn.poll():
                raise EOFError
            return None
        try:
            data = self.conn.recv_bytes(wire.MOST_BYTES)
        except OSError as error:
            if str(error) != "bad message length":
                raise
            raise TooLarge from error
        try:
            what, number, *rest = wire.loads(data)
        except Exception as error:  # unpickling raises whatever is wrong with the bytes
            message = f"The engine sent something that the app cannot read: {error}"
            hint = "This is a fault of the engine: its answers must be plain data."
            return "error", None, EngineError("engine", message, hint=hint)
        return what, number, *rest

    def usage(self) -> Usage:
        return usage(self.pid)

    def output(self) -> str:
        size = os.fstat(self.log.fileno()).st_size
        data = os.pread(self.log.fileno(), _LOG_BYTES, max(0, size - _LOG_BYTES))
        os.ftruncate(self.log.fileno(), 0)
        return data.decode(errors="replace")

    def end(self) -> tuple[int, str, bool]:
        """Wait for its end, or kill it. Returns the exit status, the last output, and whether the
        kernel ran out of memory meanwhile."""
        self.conn.close()
        deadline = time.monotonic() + _GRACE
        while self.running() and time.monotonic() < deadline:
            time.sleep(0.005)
        self._killed = True
        self._kill()  # also what it started and left behind
        if self._pid:
            self._look(_GRACE)
            self._server.reap(self._pid)
        status = -signal.SIGKILL if self._code is None else self._code
        self._status.close()
        output = self.output()
        self.log.close()
        self.folder.cleanup()
        return status, output, out_of_memory() > self.had_run_out


def usage(pid: int) -> Usage:
    """What a process and its children have used until now, seen from outside, and the clock's time.

    Memory is not address space (RLIMIT_AS): stacks, arenas and CUDA reserve far more than they use,
    and TVM dies of a failed reservation. Children count with the memory that they do not share.
    """
    now, seconds, memory = time.monotonic(), 0.0, 0
    for member in _family(pid):
        with contextlib.suppress(psutil.Error):  # it has just ended
            process = psutil.Process(member)
            seconds += sum(process.cpu_times()[:4])  # its own, and of its children that have ended
            whole = process.memory_info().rss
            try:
                memory += whole if member == pid else process.memory_full_info().uss
            except psutil.AccessDenied:
                memory += whole
    return Usage(now, seconds, memory)


def _family(pid: int) -> Iterator[int]:
    """A process and, on Linux, all its descendants except orphans."""
    todo = [pid]
    while todo:
        yield (member := todo.pop())
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{member}/task"):
                with contextlib.suppress(OSError):
                    text = Path(f"/proc/{member}/task/{thread}/children").read_text()
                    todo += map(int, text.split())


def out_of_memory() -> int:
    """How many processes the kernel has ended because memory ran out; 0 where unknown."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


def fate(status: int) -> str:
    if status >= 0:
        return f"ended with {ending(status)}"
    return f"was ended by signal {-status} ({ending(status)})"


_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
_NO_MEMORY = ("std::bad_alloc", "MemoryError", "Cannot allocate memory")
_SMALLER = "Try a smaller model or batch"


def _cause(status: int, output: str, ran_out: bool) -> tuple[str, str]:
    """Why a process ended, as far as the system tells, and what to do about it."""
    if status == -signal.SIGKILL and ran_out:
        return "memory ran out, and the system's kernel ended it", f"{_SMALLER}."
    if status == -signal.SIGXCPU:
        return "it had used up its limit of processor time", f"{_SMALLER}, or look for a loop."
    if any(words in output for words in _NO_MEMORY):
        return "it could get no more memory", f"{_SMALLER}, or give it more."
    if -status in _OUTSIDE:
        return "the signal came from outside", "Try again: the request is probably not at fault."
    return "", "The same request would probably end the same way."


def death(
    ir: str, method: str, status: int, output: str, ran_out: bool, file: str = ""
) -> EngineError:
    """The error of a request during which a process ended, with what `EngineProcess.end` returned.
    `file` was being opened: a damaged one can crash its reader."""
    if file and -status in _CRASHES:
        message = f"{file} cannot be read: it crashes its reader ({ending(status)})."
        hint = "It may be damaged: download it again, or save it again."
        return EngineError("reader", message, file, hint)
    words, (cause, hint) = _last_words(output), _cause(status, output, ran_out)
    message = f"The {ir} engine's process {fate(status)} during {method}"
    message += f": {cause}." if cause else "."
    if words:
        message += "\nIts last output:\n" + "\n".join(words)
    return EngineError("engine", message, where=method, hint=hint)


def _last_words(output: str) -> list[str]:
    """The last lines of a process's output, or, after a crash, where Python was."""
    lines = [line.rstrip()[:300] for line in output.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("Extension modules:")]
    fatal = next((i for i, s in enumerate(lines) if s.startswith("Fatal Python error:")), None)
    if fatal is None:
        return lines[-12:]
    # Faulthandler writes the innermost frame first; the thread that crashed is "Current".
    stack = lines[fatal + 1 :]
    begin = next((i for i, s in enumerate(stack) if s.startswith("Current thread")), 0)
    frames = itertools.takewhile(lambda s: s.lstrip().startswith("File "), stack[begin + 1 :])
    ours = itertools.takewhile(lambda s: "worker.py" not in s, frames)
    return [*lines[max(0, fatal - 3) : fatal + 1], *itertools.islice(ours, 8)]
