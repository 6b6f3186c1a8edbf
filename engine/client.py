"""The app's side of an engine: start its process, ask, wait, cancel.

Nothing here imports a TVM or torch. Requests run one at a time, in order. Every request says in
full what it is about, so a process that was cancelled is replaced by a new one at the next request,
and nothing is lost but what it remembered. One that died is replaced at once, and remembers again
what the last answer came from (`_REPLAYED`): a request that had not begun goes on there, one that
had is told that it failed, and of what.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import logging
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import wait as wait_for
from typing import IO, Any

from relascope.core.errors import EngineError
from relascope.core.place import IMPORT_ROOT, with_import_root
from relascope.core.scratch import Scratch
from relascope.engine import wire
from relascope.engine.limits import (
    NO_LIMITS,
    Limits,
    Unit,
    halted,
    kind_of,
    out_of_memory,
    resident,
)
from relascope.engine.places import PLACES
from relascope.engine.protocol import records
from relascope.engine.protocol.tuning import Fleet
from relascope.engine.registry import ENGINES
from relascope.engine.turns import shared_file

_log = logging.getLogger("relascope.engine")

_POLL = 0.25  # s; how late the end of a child is seen when its socket outlives it
_LOOK = 0.05  # s; how late the crossing of a limit is seen
_GRACE = 1.0  # s; between asking a child to end and ending it
_LOG_BYTES = 64 * 1024  # of a request's standard error that are kept
_WAKING = 5.0  # s; a stopped process that does not go on by then has died
_REPLAYED = ("load", "step", "graph_after", "text", "split")  # what makes the programs of a screen
_REPLAYS = 3  # new processes for one death; that many only where they are killed, too


class Job:
    """One request to an engine. Safe to use from any thread.

    A job does not keep its client alive: when the client is closed or collected, the job fails with
    kind "cancelled".
    """

    def __init__(
        self, engine: _Engine, number: int, method: str, payload: bytes, own: bool = False
    ) -> None:
        self.method, self.own = method, own  # own: nobody asked for it
        self._engine, self._number, self._payload = engine, number, payload
        self._changed = threading.Condition()
        self._progress = (0.0, "waiting")
        self._version = 0
        self._done = False
        self._value: Any = None
        self._error: EngineError | None = None
        self._begun = time.monotonic()
        self._ended = 0.0

    @property
    def done(self) -> bool:
        """Whether there is a result or an error."""
        return self._done

    @property
    def progress(self) -> tuple[float, str]:
        """How much is done (0 to 1), and what is being done."""
        return self._progress

    @property
    def seconds(self) -> float:
        """Time since it was submitted, or that it took until it was done, waiting included."""
        return (self._ended if self._done else time.monotonic()) - self._begun

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the result.

        Raises:
            EngineError: when the request failed or was cancelled, or the engine's process died.
            TimeoutError: when there is none after `timeout` seconds; the request goes on.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._done, timeout):
                raise TimeoutError(f"{self.method} is not done after {timeout} s")
        if self._error is not None:
            # A copy, because each raise adds to an exception's traceback.
            raise EngineError(*self._error.__reduce__()[1])
        return self._value

    def cancel(self) -> None:
        """Give it up: a waiting request is dropped, for a running one the process is ended.

        Other requests are not touched. Does nothing to a request that is done.
        """
        self._engine.cancel(self)

    def _follow(self, on_progress: Callable[[float, str], None]) -> None:
        """Call back, in this thread, at each progress until it is done."""
        seen = 0
        while True:
            with self._changed:
                while not self._done and self._version == seen:
                    self._changed.wait()
                version, progress = self._version, self._progress
            if version == seen:
                return
            seen = version
            on_progress(*progress)

    def _report(self, fraction: float, text: str) -> None:
        with self._changed:
            self._progress = (fraction, text)
            self._version += 1
            self._changed.notify_all()

    def _finish(self, value: Any = None, error: EngineError | None = None) -> bool:
        """Settle it, once: whoever comes first. Returns whether that was us."""
        with self._changed:
            if self._done:
                return False
            self._value, self._error = value, error
            self._payload = b""
            self._ended = time.monotonic()
            self._done = True
            self._changed.notify_all()
        return True


class EngineClient:
    """An engine in a process of its own, which starts at the first request.

    Args:
        ir: "relay".
        session: "module:Class" of another session than the IR's own, importable in the child.

    Raises:
        EngineError: kind "usage", for an IR that no engine speaks.

    When the client is closed, collected as garbage, or the interpreter exits, the process ends.
    """

    def __init__(self, ir: str, session: str | None = None) -> None:
        if session is None and ir not in ENGINES:
            message = f"There is no engine for {ir!r}."
            raise EngineError("usage", message, ir, f"Engines: {', '.join(ENGINES)}.")
        self.ir = ir
        self._engine = _Engine(ir, session)
        # The engine's thread holds the engine, never the client: so the client can be collected.
        self._finalizer = weakref.finalize(self, self._engine.close)

    def submit(self, method: str, *args: Any, **kwargs: Any) -> Job:
        """Ask for a method of the session, by name; returns at once.

        Raises:
            EngineError: kind "usage", when the arguments are not plain data, or the client is
                closed.
        """
        return self._engine.submit(method, args, kwargs)

    def call(
        self,
        method: str,
        *args: Any,
        on_progress: Callable[[float, str], None] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Ask and wait, with `on_progress(fraction, text)` called in this thread.

        Progress that comes faster than it is taken is skipped, except the last. When the wait is
        left by an exception (an interrupt, or one that `on_progress` raises), the request is
        cancelled: nobody could receive its result.

        Raises:
            EngineError: as `Job.result`.
        """
        job = self.submit(method, *args, **kwargs)
        try:
            if on_progress is not None:
                job._follow(on_progress)
            return job.result()
        finally:
            job.cancel()

    def limit(self, limits: Limits) -> None:
        """Set what each pass and each build may take from now on.

        One that crosses a limit is ended with its process, and raises in the next one, as often as
        it comes up while this client lives.
        """
        self._engine.limits = limits

    def warm(self) -> Job:
        """Start the process and have it import what it needs, by asking it to describe itself."""
        return self.submit("describe")

    @property
    def limits(self) -> Limits:
        """What `limit` was told last."""
        return self._engine.limits

    def rest(self, busy: bool = False) -> bool:
        """End the process until the next request; whether that was done, or there was none.

        Args:
            busy: cancel what is not done, too; else nothing happens while there is such a request.
        """
        return self._engine.rest(busy)

    @property
    def idle(self) -> float | None:
        """Seconds since its last request was done; None while it has one."""
        return self._engine.idle()

    @property
    def memory(self) -> int:
        """Bytes of memory that the process has; 0 where there is none."""
        pid = self.pid
        return 0 if pid is None else resident(pid)

    @property
    def pid(self) -> int | None:
        """The process's id, or None while there is none."""
        return self._engine.pid()

    @property
    def alive(self) -> bool:
        """Whether the process is running."""
        return self.pid is not None

    def close(self) -> None:
        """End the process; requests that are not done fail with kind "cancelled"."""
        self._finalizer()
        self._engine.join()

    def __enter__(self) -> EngineClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class Wants:
    """What an engine may do beyond what its sandbox allows, because a request needs it.

    Args:
        network: reach other machines.
        folders: that it may write to.
    """

    network: bool = False
    folders: frozenset[str] = frozenset()

    def with_(self, method: str, arguments: Iterable[Any]) -> Wants:
        """And what a request needs: a fleet's tracker, a folder to leave files in."""
        given = tuple(arguments)
        network = self.network or any(isinstance(a, Fleet) for a in given)
        named = {a for a in given if method == "compile" and isinstance(a, str) and a}
        return Wants(network, self.folders | named)

    def options(self) -> list[str]:
        """Of the process's command line; the folders are made where they can be."""
        folders = [*self.folders]
        with contextlib.suppress(RuntimeError):  # a user without a home
            folders.append(str(records.root()))
        for folder in folders:
            with contextlib.suppress(OSError):  # which is told where it is written to
                os.makedirs(folder, exist_ok=True)
        there = [os.path.abspath(f) for f in folders if os.path.isdir(f)]
        return [*(["--network"] if self.network else []), *(f"--writes={f}" for f in there)]


class _Child:
    """A process, its socket, and the file that its output goes to."""

    def __init__(self, ir: str, session: str | None, wants: Wants) -> None:
        self.wants = wants
        self.folder = Scratch()
        handle, name = tempfile.mkstemp(prefix="relascope-")
        os.close(handle)
        # Appending, so that the file can be cut short while the child writes to it.
        self.log: IO[bytes] = open(name, "a+b", buffering=0)  # noqa: SIM115
        os.unlink(name)
        self.conn, theirs = Pipe()
        command = [sys.executable, "-X", "faulthandler", "-m", "relascope.engine.worker"]
        command += ["--ir", ir, "--fd", str(theirs.fileno())]
        command += ["--session", session] if session else []
        command += ["--folder", self.folder.name, *wants.options()]
        turns = shared_file()
        command += ["--turns", str(turns)] if turns >= 0 else []
        self.had_run_out = 0  # `out_of_memory` before its last request
        path = with_import_root(os.environ.get("PYTHONPATH", ""))
        try:
            # A group of its own: Ctrl-C in the terminal is the app's affair, and the group is how
            # to end what the child itself started.
            streams = {"stdin": subprocess.DEVNULL, "stdout": self.log, "stderr": self.log}
            place = {"cwd": IMPORT_ROOT, "env": {**os.environ, "PYTHONPATH": path}}
            how: dict[str, Any] = {**streams, **place, "start_new_session": True}
            passed = [f for f in (theirs.fileno(), turns) if f >= 0]
            self.process = subprocess.Popen(command, pass_fds=passed, **how)
        except BaseException:
            self.conn.close()
            self.log.close()
            self.folder.cleanup()
            raise
        finally:
            theirs.close()

    def running(self) -> bool:
        """Whether it is; without reaping it, so that its number stays its own until `end`."""
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            return self.process.poll() is None
        try:
            flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self.process.pid, flags) is None
        except ChildProcessError:
            return False

    def signal(self, number: int) -> None:
        if self.running():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def output(self) -> str:
        """The end of what it wrote since it was last asked."""
        size = os.fstat(self.log.fileno()).st_size
        data = os.pread(self.log.fileno(), _LOG_BYTES, max(0, size - _LOG_BYTES))
        os.ftruncate(self.log.fileno(), 0)
        return data.decode(errors="replace")

    def end(self) -> tuple[int, str, bool]:
        """Wait for its end, or make it.

        Returns:
            Its exit status, its last output, and whether the kernel ran out of memory meanwhile.
        """
        self.conn.close()
        deadline = time.monotonic() + _GRACE
        while self.running() and time.monotonic() < deadline:
            time.sleep(0.005)
        # Also what it started and left behind.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        status = self.process.wait()
        output = self.output()
        self.log.close()
        self.folder.cleanup()
        return status, output, out_of_memory() > self.had_run_out


class _Engine:
    """The queue of requests and the thread that serves it, while there is something to serve."""

    def __init__(self, ir: str, session: str | None) -> None:
        self.ir, self.session, self.limits = ir, session, NO_LIMITS
        self.crossed: dict[Unit, EngineError] = {}
        # Reentrant, because a client may be collected, and so closed, at any allocation.
        self.changed = threading.Condition(threading.RLock())
        self.waiting: collections.deque[Job] = collections.deque()
        self.running: Job | None = None
        self.wants = Wants()
        self.idle_since = time.monotonic()
        self.begun = False  # whether the session has set to work on the running one
        self.known: tuple[str, bytes] | None = None  # the last of `_REPLAYED` that was answered
        self.replays = 0  # how often it may still be asked again by ourselves
        self.child: _Child | None = None
        self.kill_at = 0.0  # when a child that was asked to end is ended; 0: not asked
        self.closed = False
        self.thread: threading.Thread | None = None
        self.numbers = itertools.count(1)

    def submit(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Job:
        try:
            payload = pickle.dumps((args, kwargs))
        except Exception as error:
            message = f"The arguments of {method} cannot be sent to the engine: {error}"
            raise EngineError("usage", message, method, "Pass plain data.") from error
        job = Job(self, next(self.numbers), method, payload)
        with self.changed:
            self.wants = self.wants.with_(method, (*args, *kwargs.values()))
            if self.closed:
                raise EngineError("usage", "This engine is closed.", where=method)
            self.waiting.append(job)
            if self.thread is None:
                name = f"engine-{self.ir}"
                self.thread = threading.Thread(target=self.serve, name=name, daemon=True)
                self.thread.start()
            self.changed.notify_all()
        return job

    def cancel(self, job: Job) -> None:
        if not job._finish(error=EngineError("cancelled", f"{job.method} was cancelled.")):
            return
        with self.changed:
            if job is self.running:
                self.kill_at = time.monotonic() + _GRACE
                if self.child is not None:
                    self.child.signal(signal.SIGTERM)
            elif job in self.waiting:
                self.waiting.remove(job)

    def pid(self) -> int | None:
        child = self.child
        return child.process.pid if child is not None and child.running() else None

    def close(self) -> None:
        """End everything now. The child keeps nothing, so it gets no time to tidy up."""
        with self.changed:
            self.closed = True
            jobs = [*([self.running] if self.running else []), *self.waiting]
            self.waiting.clear()
            if self.child is not None:
                self.child.signal(signal.SIGKILL)
            self.changed.notify_all()
        for job in jobs:
            job._finish(error=EngineError("cancelled", f"{job.method}: the engine was closed."))

    def join(self) -> None:
        """Wait until the thread has seen that it is over, and the process is reaped."""
        if self.thread is not None and self.thread is not threading.current_thread():
            self.thread.join(3 * _GRACE)

    def idle(self) -> float | None:
        """As of the client; takes no lock."""
        busy = self.running is not None or self.waiting or self.replays
        return None if busy else time.monotonic() - self.idle_since

    def rest(self, busy: bool) -> bool:
        """As of the client."""
        with self.changed:
            jobs = [*([self.running] if self.running else []), *self.waiting]
            if jobs and not busy:
                return False
            self.replays = 0
            for job in jobs:
                job.cancel()
            if self.running is None and self.child is not None:
                self.child.signal(signal.SIGKILL)
                self.drop_child()
        return True

    def serve(self) -> None:
        try:
            while (job := self.next_job()) is not None:
                self.run(job)
        finally:
            with self.changed:
                self.drop_child()

    def next_job(self) -> Job | None:
        """The next request, one of our own after a death; None when closed."""
        with self.changed:
            self.idle_since = time.monotonic()
            while not self.closed:
                if self.child is not None and not self.child.running():
                    status, output, _ = self.drop_child()
                    words = "the idle %s engine's process %s\n%s"
                    _log.warning(words, self.ir, _fate(status), output)
                    self.replays = _REPLAYS
                if self.waiting:
                    self.running = self.waiting.popleft()
                elif self.known is None:
                    self.replays = 0
                elif self.replays and time.monotonic() - self.idle_since >= _POLL:
                    self.replays -= 1  # nobody has asked for something else since
                    self.running = Job(self, next(self.numbers), *self.known, own=True)
                if self.running is not None:
                    self.kill_at = 0.0
                    return self.running
                watched = self.child is not None or self.replays
                self.changed.wait(_POLL if watched else None)
            return None

    def run(self, job: Job) -> None:
        """Serve one request; where the process dies before it has begun, in another one."""
        lost, failure = False, None
        try:
            lost = not self.converse(job)
            if lost and not self.begun and not self.kill_at and not self.closed:
                with self.changed:
                    status, output, _ = self.drop_child()
                    self.replay_after(job)
                words = "the %s engine's process %s before %s had begun, which is asked again\n%s"
                _log.warning(words, self.ir, _fate(status), job.method, output)
                lost = not self.converse(job)
        except Exception as error:  # the conversation has its own errors in hand
            _log.exception("starting the %s engine", self.ir)
            message = f"The {self.ir} engine's process could not be started: {error}"
            hint = "Check that this Python can be run, and that memory is not used up."
            failure = EngineError("engine", message, sys.executable, hint)
        with self.changed:
            cancelled, self.running = self.kill_at > 0, None
            if not (lost or failure or cancelled):
                return
            died = self.drop_child()
            if self.closed or cancelled:
                return
            if failure is None:
                failure = _death(self.ir, job.method, *died)
                _log.error("%s", failure.message)
                self.replay_after(job)
        job._finish(error=failure)

    def replay_after(self, job: Job) -> None:
        """Have a new process remember what the one that ended over a request did."""
        if not job.own:
            self.replays = _REPLAYS

    def converse(self, job: Job) -> bool:
        """Ask, and pass on what comes back; False when the process died over it."""
        self.begun = False
        child = self.ready_child(job)
        if child is None:
            return True
        try:
            child.had_run_out = out_of_memory()
            child.conn.send((job._number, job.method, job._payload, self.crossed, not job.own))
            unit, began, had = None, 0.0, 0
            since, waits, halt = time.monotonic(), "", 0.0
            while True:
                if unit is not None and not waits and self.stopped(child, unit, began, had):
                    break
                if self.kill_at and time.monotonic() > self.kill_at:
                    child.signal(signal.SIGKILL)
                kind = kind_of(job.method) if self.begun else "start"
                late = self.limits.overdue(kind, job.method, time.monotonic() - since)
                if late is not None and not waits:
                    return self.give_up(child, job, late)
                if not wait_for([child.conn], _POLL if unit is None else _LOOK):
                    # A process that it started may hold its socket open after its death.
                    if not child.running() and not child.conn.poll():
                        return False
                    if not halted(child.process.pid):
                        halt = 0.0
                        continue
                    halt = halt or time.monotonic()
                    if time.monotonic() - halt > _WAKING:
                        return self.give_up(child, job, _asleep(self.ir, job.method))
                    self.report(job, job.progress[0], "waking the engine, which was stopped")
                    child.signal(signal.SIGCONT)
                    continue
                try:
                    data = child.conn.recv_bytes(wire.MOST_BYTES)
                except OSError as error:
                    if str(error) != "bad message length":
                        raise
                    return self.give_up(child, job, _too_large(job.method))
                try:
                    what, number, *rest = wire.loads(data)
                except Exception as error:  # unpickling raises whatever is wrong with the bytes
                    what, number, rest = "error", job._number, [_unreadable(error, self.ir)]
                if number != job._number and what not in ("progress", "waits"):
                    continue  # what it was asked when it stood by
                if what == "progress":
                    self.report(job, *rest)
                elif what == "begun":
                    self.begun, since = True, time.monotonic()
                elif what == "waits":
                    # What it waits for others counts for nothing.
                    began += time.monotonic() - since if waits else 0.0
                    waits, since = rest[0], time.monotonic()
                    self.report(job, job.progress[0], waits)
                elif what == "unit":
                    unit, began, had = rest[0], time.monotonic(), resident(child.process.pid)
                else:
                    break
        except (EOFError, OSError):
            return False
        if unit is not None:
            return self.converse(job)  # a new process, which raises at the unit
        assert number == job._number, "one request at a time, so one answer"
        output = child.output()
        if output:
            _log.log(logging.DEBUG if what == "result" else logging.WARNING, "%s", output)
        with self.changed:
            if what == "gone":  # it could not start its session, and leaves
                self.drop_child()
            if job.own or (what == "result" and job.method in _REPLAYED):
                self.known, self.replays = (job.method, job._payload), 0
        if what == "result":
            job._finish(value=rest[0])
        else:
            job._finish(error=rest[0])
        return True

    def report(self, job: Job, fraction: float, text: str) -> None:
        job._report(fraction, text)
        if job.own:  # whoever waits sees what for
            with self.changed:
                for first in list(self.waiting)[:1]:
                    first._report(0.0, f"bringing the engine back: {text}")

    def give_up(self, child: _Child, job: Job, error: EngineError) -> bool:
        """End a process that goes on no more, and the request with it."""
        _log.warning("%s", error.message)
        with self.changed:
            child.signal(signal.SIGKILL)
            self.drop_child()
            self.replay_after(job)
        job._finish(error=error)
        return True

    def stopped(self, child: _Child, unit: Unit, began: float, had: int) -> bool:
        """Whether a unit crossed a limit; the process is ended then.

        Args:
            had: bytes that the process had when it began.
        """
        taken = resident(child.process.pid) - had if self.limits.memory else 0
        error = self.limits.crossed(unit, time.monotonic() - began, taken)
        if error is None:
            return False
        _log.warning("%s", error.message)
        self.crossed[unit] = error
        with self.changed:
            child.signal(signal.SIGKILL)
            self.drop_child()
            self.replays = _REPLAYS
        return True

    def ready_child(self, job: Job) -> _Child | None:
        """The process to ask, started if need be; None when the request was given up."""
        with self.changed:
            if self.child is not None and not self.child.running():
                status, output, _ = self.drop_child()
                _log.warning("the idle %s engine's process %s\n%s", self.ir, _fate(status), output)
        say = partial(self.report, job, 0.0)
        placed = PLACES.take(self, lambda: self.closed or job.done, say)
        with self.changed:
            try:
                if placed and not self.closed and not job.done:
                    if self.child is not None and self.child.wants != self.wants:
                        # A sandbox cannot be widened.
                        self.child.signal(signal.SIGKILL)
                        self.child.end()
                        self.child = None
                    if self.child is None and self.wants == Wants():
                        self.child = STANDBY.take(self.ir, self.session)
                    self.child = self.child or _Child(self.ir, self.session, self.wants)
                    return self.child
                return None
            finally:
                if self.child is None:
                    PLACES.leave(self)

    def drop_child(self) -> tuple[int, str, bool]:
        """End the process, as `_Child.end` says."""
        child, self.child = self.child, None
        PLACES.leave(self)
        return child.end() if child is not None else (0, "", False)


class Standby:
    """One process that is warm, for whichever engine of its kind needs one next."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: _Child | None = None
        self._kind: tuple[str, str | None] = "", None
        self._left = 0  # of its calls, not yet answered

    def keep(
        self, ir: str, *calls: tuple[str, tuple[Any, ...]], session: str | None = None
    ) -> None:
        """Have one, which makes these calls while it waits, for what they import.

        Args:
            ir, session: as of an `EngineClient`.
        """
        with self._lock:
            if self._child is not None and self._kind == (ir, session) and self._child.running():
                return
            self._end()
            self._child, self._kind, self._left = (
                _Child(ir, session, Wants()),
                (ir, session),
                len(calls),
            )
            for method, arguments in calls:
                self._child.conn.send((0, method, pickle.dumps((arguments, {})), {}, True))

    def take(self, ir: str, session: str | None) -> _Child | None:
        """The process, for an engine that needs one; None where there is none for it."""
        with self._lock:
            fits = self._kind == (ir, session)
            if self._child is None or not fits or not self._child.running():
                if PLACES.most and not PLACES.free:
                    self._end()  # the new one takes its place
                return None
            child, self._child = self._child, None
            return child

    def is_of(self, ir: str) -> bool:
        """Whether there is one of an IR that is ready."""
        return self.ready and self._kind[0] == ir

    @property
    def ready(self) -> bool:
        """Whether there is one, and it has made its calls."""
        with self._lock:
            try:
                while self._child is not None and self._left and self._child.conn.poll():
                    what, *_ = wire.loads(self._child.conn.recv_bytes(wire.MOST_BYTES))
                    self._left -= what in ("result", "error", "gone")
            except (EOFError, OSError, pickle.UnpicklingError):
                self._end()
            return self._child is not None and not self._left

    def end(self) -> None:
        """End it."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.signal(signal.SIGKILL)
            child.end()


STANDBY = Standby()
"""The app's own: one at most, whatever the IR."""


def _unreadable(error: Exception, ir: str) -> EngineError:
    message = f"The {ir} engine sent something that the app cannot read: {error}"
    hint = "This is a fault of the engine: its answers must be plain data."
    return EngineError("engine", message, ir, hint)


def _fate(status: int) -> str:
    """How a process ended, from its exit status."""
    if status >= 0:
        return f"ended with exit status {status}"
    known = {s.value: s.name for s in signal.Signals}
    return f"was ended by signal {-status} ({known.get(-status, 'unknown')})"


def _too_large(method: str) -> EngineError:
    most = wire.MOST_BYTES >> 20
    message = f"The engine's answer to {method} was larger than {most} MiB, and was not read."
    return EngineError("engine", message, method, "Try a smaller model, or fewer passes.")


def _asleep(ir: str, method: str) -> EngineError:
    message = f"The {ir} engine's process was stopped from outside (SIGSTOP) during {method}, and "
    hint = "Look for who stops it: a debugger, or a manager of jobs."
    return EngineError("engine", f"{message}could not be woken.", method, hint)


_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
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
        return "the signal came from outside", "Ask again: the request is not known to be at fault."
    return "", "The same request would probably end the same."


def _death(ir: str, method: str, status: int, output: str, ran_out: bool) -> EngineError:
    words, (cause, hint) = _last_words(output), _cause(status, output, ran_out)
    message = f"The {ir} engine's process {_fate(status)} during {method}"
    message += f": {cause}." if cause else "."
    if words:
        message += "\nThe last it said:\n" + "\n".join(words)
    return EngineError("engine", message, where=method, hint=hint)


def _last_words(output: str, limit: int = 12) -> list[str]:
    """The last lines of a process's output, or, after a crash, where Python was."""
    lines = [line.rstrip()[:300] for line in output.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("Extension modules:")]
    fatal = next((i for i, s in enumerate(lines) if s.startswith("Fatal Python error:")), None)
    if fatal is None:
        return lines[-limit:]
    # Faulthandler writes the innermost frame first; the thread that crashed is "Current".
    stack = lines[fatal + 1 :]
    begin = next((i for i, s in enumerate(stack) if s.startswith("Current thread")), 0)
    frames = itertools.takewhile(lambda s: s.lstrip().startswith("File "), stack[begin + 1 :])
    ours = itertools.takewhile(lambda s: "worker.py" not in s, frames)
    return [*lines[max(0, fatal - 3) : fatal + 1], *itertools.islice(ours, limit - 4)]
