"""The requests of one engine: a queue, and the thread that sends them to its process.

A process that was cancelled, was stopped or died is replaced by a new one at the next request.
"""

import collections
import itertools
import logging
import pickle
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from relascope.core.errors import EngineError
from relascope.engine import kept_builds, wire
from relascope.engine.limits import NO_LIMITS, Limits, Unit, Usage, kind_of
from relascope.engine.places import PLACES
from relascope.engine.process import EngineProcess, TooLarge, Wants, death, fate
from relascope.engine.protocol import records

_log = logging.getLogger("relascope.engine")

_POLL = 0.25  # s; how late the end of a process is seen when its socket outlives it
_LOOK = 0.05  # s; how late the crossing of a limit is seen
_LOOKING = 0.1  # share of a processor that looking may take
_JOIN = 3.0  # s; for the thread to see that it is over


class Job:
    """One request to an engine. Safe to use from any thread.

    It does not keep its client alive: it fails with kind "cancelled" when that is closed or
    collected. `progress` is how much is done (0 to 1), and what is being done.
    """

    def __init__(self, supervisor: "Supervisor", number: int, method: str, payload: bytes) -> None:
        self.method = method
        self._supervisor, self._number, self._payload = supervisor, number, payload
        self.wants = Wants()  # of the process that serves it
        self._changed = threading.Condition()
        self.progress = (0.0, "waiting")
        self._version = 0
        self.done = False
        self._value: Any = None
        self._error: EngineError | None = None
        self._begun = time.monotonic()
        self._ended = 0.0

    @property
    def seconds(self) -> float:
        """Seconds since it was submitted, up to its end if it is done; waiting counts."""
        return (self._ended if self.done else time.monotonic()) - self._begun

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the result. Raises EngineError where the request failed or was cancelled, or the
        engine's process died, and TimeoutError after `timeout` seconds; the request then goes
        on."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.done, timeout):
                raise TimeoutError(f"{self.method} is not done after {timeout} s")
        if self._error is not None:
            # A copy, because each raise adds to an exception's traceback.
            raise EngineError(*self._error.__reduce__()[1])
        return self._value

    def cancel(self) -> None:
        """Drop a waiting request, or end the process of a running one; a request that is done
        stays."""
        self._supervisor.cancel(self)

    def _follow(self, on_progress: Callable[[float, str], None]) -> None:
        seen = 0
        while True:
            with self._changed:
                while not self.done and self._version == seen:
                    self._changed.wait()
                version, progress = self._version, self.progress
            if version == seen:
                return
            seen = version
            on_progress(*progress)

    def _report(self, fraction: float, text: str) -> None:
        with self._changed:
            self.progress = (fraction, text)
            self._version += 1
            self._changed.notify_all()

    def _finish(self, value: Any = None, error: EngineError | None = None) -> bool:
        """Settle it, unless it is settled already. Returns whether this call did."""
        with self._changed:
            if self.done:
                return False
            self._value, self._error = value, error
            self._payload = b""
            self._ended = time.monotonic()
            self.done = True
            self._changed.notify_all()
        return True


class _Stopped(Exception):
    def __init__(self, error: EngineError, unit: Unit | None = None) -> None:
        super().__init__(error.message)
        self.error, self.unit = error, unit


class _Exchange:
    """One request sent to a process, watched until it is answered."""

    def __init__(
        self,
        job: Job,
        process: EngineProcess,
        limits: Callable[[], Limits],
        report: Callable[[float, str], None],
    ) -> None:
        self._job, self._process, self._limits, self._report = job, process, limits, report
        self.begun = False  # whether the session has begun on it
        self._records = records.Adding()
        self._since = time.monotonic()  # of what `Limits.calls` limits
        self._units: list[tuple[Unit, Usage]] = []  # under way, with what was used before
        self._paused: Usage | None = None  # what was used when nothing counted any more
        self._look = _LOOK  # s; longer where measuring large processes takes long

    def answer(self) -> tuple[str, Any]:
        """Wait for the answer: "result", "error" or "gone", and the value. Raises EOFError or
        OSError where the process died, and _Stopped where it crossed a limit."""
        with self._records:
            while True:
                try:
                    message = self._process.receive(self._look if self._units else _POLL)
                except TooLarge as large:
                    raise _Stopped(_too_large(self._job.method)) from large
                answer = None if message is None else self._handle(*message)
                if answer is not None:
                    return answer
                if self._paused is None:
                    self._check()

    def _handle(self, what: str, number: int | None, *rest: Any) -> tuple[str, Any] | None:
        if what == "progress":
            self._report(*rest)
        elif what == "waits":
            self._pause(*rest)
        elif what == "unit" and rest[0] is None:
            del self._units[-1:]
        elif what == "unit":
            self._units.append((rest[0], self._process.usage()))
        elif what == "begun":
            self.begun, self._since = True, time.monotonic()
        elif what == "records":
            self._process.conn.send(("records", self._add(rest)))
        elif what == "built":
            kept_builds.keep(kept_builds.shelf(self._job.wants.opened), *rest)
        else:
            return what, rest[0]
        return None

    def _add(self, asked: tuple[Any, ...]) -> EngineError | None:
        """Add records for the engine; return the error if that fails."""
        try:
            if self._job.method != "tune":
                raise EngineError("file", "The engine may add records only while it tunes.")
            self._records.do(*asked)
        except EngineError as error:
            return error
        except (TypeError, AttributeError, RecursionError) as wrong:  # no request of ours is such
            return EngineError("file", f"The engine's records cannot be added: {wrong}.")
        return None

    def _pause(self, why: str) -> None:
        """Count nothing that is used while it waits for others; `why` is "" when it goes on."""
        used = self._process.usage()
        if (paused := self._paused) is not None:
            self._units = [(unit, used - (paused - before)) for unit, before in self._units]
        self._paused, self._since = used if why else None, time.monotonic()
        self._report(self._job.progress[0], why)

    @property
    def file(self) -> str:
        return next((u.where for u, _ in self._units if u.kind == "file"), "")

    def _check(self) -> None:
        """Raise `_Stopped` where a limit is crossed."""
        limits, method = self._limits(), self._job.method
        kind = kind_of(method) if self.begun else "start"
        late = limits.overdue(kind, method, time.monotonic() - self._since)
        if late is not None:
            raise _Stopped(late)
        began = time.thread_time()
        now = self._process.usage() if self._units else Usage()
        self._look = max(_LOOK, (time.thread_time() - began) / _LOOKING)
        for unit, before in self._units:
            error = limits.crossed(unit, now - before)
            if error is not None:
                raise _Stopped(error, unit)


class Supervisor:
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
        self.exchange: _Exchange | None = None  # the last one
        self.process: EngineProcess | None = None
        self.cancelled = False  # whether the running one was
        self.closed = False
        self.thread: threading.Thread | None = None
        self.numbers = itertools.count(1)

    def submit(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Job:
        try:
            payload = pickle.dumps((args, kwargs))
        except Exception as error:
            message = f"The arguments of {method} cannot be sent to the engine: {error}"
            raise EngineError("usage", message, method, "Pass plain data.") from error
        with self.changed:
            self.wants = self.wants.with_(method, (*args, *kwargs.values()))
            job = Job(self, next(self.numbers), method, payload)
            job.wants = self.wants
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
                self.cancelled = True
                if self.process is not None:
                    self.process.kill()
            elif job in self.waiting:
                self.waiting.remove(job)

    def pid(self) -> int | None:
        process = self.process
        return process.pid or None if process is not None and process.running() else None

    def close(self) -> None:
        """End everything now. The process keeps nothing, so it gets no time to tidy up."""
        with self.changed:
            self.closed = True
            jobs = [*([self.running] if self.running else []), *self.waiting]
            self.waiting.clear()
            if self.process is not None:
                self.process.kill()
            self.changed.notify_all()
        for job in jobs:
            job._finish(error=EngineError("cancelled", f"{job.method}: the engine was closed."))

    def join(self) -> None:
        """Wait until the thread has ended and the process is reaped."""
        if self.thread is not None and self.thread is not threading.current_thread():
            self.thread.join(_JOIN)

    def idle(self) -> float | None:
        """As `EngineClient.idle`; takes no lock."""
        busy = self.running is not None or self.waiting
        return None if busy else time.monotonic() - self.idle_since

    def rest(self, busy: bool) -> bool:
        with self.changed:
            jobs = [*([self.running] if self.running else []), *self.waiting]
            if jobs and not busy:
                return False
            for job in jobs:
                job.cancel()
            if self.running is None and self.process is not None:
                self.process.kill()
                self.drop_process()
        return True

    def serve(self) -> None:
        try:
            while (job := self.next_job()) is not None:
                self.run(job)
        finally:
            with self.changed:
                self.drop_process()

    def next_job(self) -> Job | None:
        self.exchange = None
        with self.changed:
            self.idle_since = time.monotonic()
            self.changed.wait_for(lambda: self.waiting or self.closed)
            if self.closed:
                return None
            self.running, self.cancelled = self.waiting.popleft(), False
            return self.running

    def run(self, job: Job) -> None:
        """Serve one request; if the process dies before beginning it, ask another one, once."""
        lost, failure = False, None
        try:
            lost = not self.converse(job)
            begun = self.exchange is not None and self.exchange.begun
            if lost and not begun and not self.cancelled and not self.closed:
                with self.changed:
                    status, output, _ = self.drop_process()
                words = "the %s engine's process %s before %s began; asking again\n%s"
                _log.warning(words, self.ir, fate(status), job.method, output)
                lost = not self.converse(job)
        except Exception as error:  # the conversation has its own errors in hand
            _log.exception("starting the %s engine", self.ir)
            message = f"The {self.ir} engine's process could not be started: {error}"
            hint = "Check that this Python runs, and that memory is free."
            failure = EngineError("engine", message, sys.executable, hint)
        with self.changed:
            cancelled, self.running = self.cancelled, None
            if not (lost or failure or cancelled):
                return
            died = self.drop_process()
            if self.closed or cancelled:
                return
            if failure is None:
                file = self.exchange.file if self.exchange is not None else ""
                failure = death(self.ir, job.method, *died, file)
                _log.error("%s", failure.message)
        job._finish(error=failure)

    def converse(self, job: Job) -> bool:
        """Send a request to the process until it is settled; False if the process died over it."""
        while (process := self.ready_process(job)) is not None:
            self.exchange = _Exchange(job, process, lambda: self.limits, job._report)
            try:
                shelf = kept_builds.shelf(job.wants.opened)
                process.send(job._number, job.method, job._payload, self.crossed, shelf)
                answer = self.exchange.answer()
            except (EOFError, OSError):
                return False
            except _Stopped as stopped:
                if self.stop(process, job, stopped):
                    return True
            else:
                self.settle(process, job, *answer)
                return True
        return True

    def settle(self, process: EngineProcess, job: Job, what: str, value: Any) -> None:
        output = process.output()
        if output:
            _log.log(logging.DEBUG if what == "result" else logging.WARNING, "%s", output)
        with self.changed:
            if what == "gone":  # it could not start its session, and leaves
                self.drop_process()
        if what == "result":
            job._finish(value=value)
        else:
            job._finish(error=value)

    def stop(self, process: EngineProcess, job: Job, stopped: _Stopped) -> bool:
        """End a process that crossed a limit; return whether the request ends with it. Its end is
        reported first, because a process with much memory ends slowly."""
        _log.warning("%s", stopped.error.message)
        unit = stopped.unit
        if unit is not None:
            self.crossed[unit] = stopped.error
        final = unit is None or unit.final
        process.kill()
        if final:
            job._finish(error=stopped.error)
        else:
            job._report(job.progress[0], f"{stopped.error.message} Going on without it.")
        with self.changed:
            self.drop_process()
        return final

    def ready_process(self, job: Job) -> EngineProcess | None:
        """The process to ask, started if need be; None when the request was given up."""
        with self.changed:
            if self.process is not None and not self.process.running():
                status, output, _ = self.drop_process()
                _log.warning("the idle %s engine's process %s\n%s", self.ir, fate(status), output)
        placed = PLACES.take(self, lambda: self.closed or job.done, partial(job._report, 0.0))
        with self.changed:
            try:
                if placed and not self.closed and not job.done:
                    if self.process is not None and not self.process.serves(job.wants):
                        # A sandbox cannot be widened.
                        self.process.kill()
                        self.process.end()
                        self.process = None
                    if self.process is None:
                        job._report(0.0, "starting the engine")
                        self.process = EngineProcess(self.ir, self.session, job.wants)
                    return self.process
                return None
            finally:
                if self.process is None:
                    PLACES.leave(self)

    def drop_process(self) -> tuple[int, str, bool]:
        process, self.process = self.process, None
        PLACES.leave(self)
        return process.end() if process is not None else (0, "", False)


def _too_large(method: str) -> EngineError:
    most = wire.MOST_BYTES >> 20
    message = f"The engine's answer to {method} was larger than {most} MiB, and was not read."
    return EngineError("engine", message, method, "Try a smaller model, or fewer passes.")
