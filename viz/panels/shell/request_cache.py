"""The request cache of one browser session: its engine, its running job, and its answers.

A panel asks with all arguments. A known answer is returned at once; another request is started,
and raises `Waiting` if it takes longer than a moment. One job runs at a time, and the next starts
only if a panel still asks for it, so nothing queues behind a model that the user has left.
"""

import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

from streamlit.runtime.scriptrunner import get_script_run_ctx

from relascope.core.errors import EngineError
from relascope.engine.client import EngineClient, Job
from relascope.viz.compare.recording import RecordedCompile

Value = TypeVar("Value")

KEPT = 48  # results; graphs of big models are tens of megabytes
PATIENCE = 0.5  # seconds for which a page rather stands still than flickers


@dataclass(frozen=True)
class Request:
    """One question to the engine; equal ones share an answer."""

    method: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Running:
    """A job, its request, and when it began (`time.monotonic`)."""

    request: Request
    job: Job
    began: float


class Waiting(Exception):
    """The answer is not there yet."""


class RequestCache:
    """See the module. Every method may be called from any rerun of the page."""

    def __init__(self, client: EngineClient) -> None:
        self.client = client
        self._answers: OrderedDict[Request, Any] = OrderedDict()
        self.running: Running | None = None
        weakref.finalize(self, client.close)

    def ask(self, method: str, *arguments: Any, patience: float = PATIENCE) -> Any:
        """The engine's answer. Raises `Waiting` if it is not there after `patience` seconds, and an
        EngineError that was the answer (`forget` it to try again)."""
        request = Request(method, arguments)
        until, context = time.monotonic() + patience, get_script_run_ctx(suppress_warning=True)
        while True:
            self.collect()
            if request in self._answers:
                return self._answer(request)
            if self.running is None:
                job = self.client.submit(method, *arguments)
                self.running = Running(request, job, time.monotonic())
            if time.monotonic() >= until:
                raise Waiting(request)
            time.sleep(0.01)
            if context is not None:
                context.yield_check()  # ends this run if the browser has sent more

    def peek(self, method: str, *arguments: Any) -> Any:
        """The answer, or None if it is not there; raises an EngineError that was the answer."""
        self.collect()
        request = Request(method, arguments)
        return self._answer(request) if request in self._answers else None

    def answers(self, method: str) -> list[tuple[Any, ...]]:
        """All answers of a method that are here: the arguments, and the answer after them."""
        self.collect()
        found = ((r, a) for r, a in self._answers.items() if r.method == method)
        return [(*r.arguments, a) for r, a in found if not isinstance(a, EngineError)]

    def has(self, method: str, *arguments: Any) -> bool:
        """Whether the answer, or an error in its place, is there."""
        self.collect()
        return Request(method, arguments) in self._answers

    def look_up(self, method: str, *arguments: Any) -> Any:
        """The answer; raises `Waiting` if it is not there. Starts nothing."""
        if not self.has(method, *arguments):
            raise Waiting
        return self.peek(method, *arguments)

    def derive(self, make: Callable[[], Value], *key: Hashable) -> Value:
        """The result of `make`, cached by `key`: one object on all reruns, as drawings need it."""
        request = Request("derive", key)
        if request not in self._answers:
            self._keep(request, make())
        return self._answer(request)

    def collect(self) -> bool:
        """Store the running job's answer, if there is one; whether there was."""
        running = self.running
        if running is None or not running.job.done:
            return False
        self.running = None
        try:
            self._keep(running.request, running.job.result(timeout=0))
        except EngineError as error:
            self._keep(running.request, error)
        return True

    def cancel(self) -> None:
        """Stop the running job; its answer becomes the error that says so."""
        if self.running is not None:
            request, job = self.running.request, self.running.job
            job.cancel()
            self.running = None
            self._keep(request, EngineError("cancelled", "Cancelled.", "", "Run it again."))

    def forget(self, method: str, *arguments: Any) -> None:
        """Ask the engine again next time."""
        self._answers.pop(Request(method, arguments), None)

    def forget_errors(self) -> None:
        for request in [r for r, a in self._answers.items() if isinstance(a, EngineError)]:
            del self._answers[request]

    def _answer(self, request: Request) -> Any:
        self._answers.move_to_end(request)
        answer = self._answers[request]
        if isinstance(answer, EngineError):
            raise answer
        return answer

    def _keep(self, request: Request, answer: Any) -> None:
        self._answers[request] = answer
        while len(self._answers) > KEPT:
            self._answers.popitem(last=False)


class RecordingCache(RequestCache):
    """The same for a recording, which answers at once."""

    def __init__(self, recording: RecordedCompile) -> None:
        self.recording, self.running = recording, None
        self._answers = OrderedDict()

    def ask(self, method: str, *arguments: Any, patience: float = PATIENCE) -> Any:
        return self.derive(lambda: self.recording(method, *arguments), method, *arguments)
