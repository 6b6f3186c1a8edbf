"""An engine as the app uses it: ask, wait, cancel. Imports neither a TVM nor torch.

Requests run one at a time in a process of its own. Each is self-contained, so a new process gives
the same answer.
"""

import weakref
from collections.abc import Callable
from typing import Any

from relascope.core.errors import EngineError
from relascope.engine.limits import Limits
from relascope.engine.process import usage
from relascope.engine.registry import ENGINES
from relascope.engine.supervisor import Job, Supervisor

__all__ = ["EngineClient", "Job"]


class EngineClient:
    """An engine in a process of its own, which starts at the first request.

    The process ends when the client is closed or collected, or the interpreter exits. `session` is
    "module:Class" of another session than the IR's own, importable in the child. Raises EngineError
    of kind "usage" for an IR that no engine speaks.
    """

    def __init__(self, ir: str, session: str | None = None) -> None:
        if session is None and ir not in ENGINES:
            message = f"There is no engine for {ir!r}."
            raise EngineError("usage", message, ir, f"Engines: {', '.join(ENGINES)}.")
        self.ir = ir
        self._supervisor = Supervisor(ir, session)
        # Its thread refers to the supervisor, never to the client, so the client can be collected.
        self._finalizer = weakref.finalize(self, self._supervisor.close)

    def submit(self, method: str, *args: Any, **kwargs: Any) -> Job:
        """Ask for a method of the session, by name; returns at once. Raises EngineError of kind
        "usage" when the arguments are not plain data, or the client is closed."""
        return self._supervisor.submit(method, args, kwargs)

    def call(
        self,
        method: str,
        *args: Any,
        on_progress: Callable[[float, str], None] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Ask and wait, with `on_progress(fraction, text)` called in this thread.

        Progress that arrives faster than it is read is skipped, except the last. An exception that
        ends the wait (an interrupt, or one of `on_progress`) cancels the request. Raises
        EngineErrors as `Job.result` does.
        """
        job = self.submit(method, *args, **kwargs)
        try:
            if on_progress is not None:
                job._follow(on_progress)
            return job.result()
        finally:
            job.cancel()

    def limit(self, limits: Limits) -> None:
        """Set the limits of each pass and each build from now on.

        A unit that crosses one ends the process, and raises at once in this client's later ones.
        """
        self._supervisor.limits = limits

    def warm(self) -> Job:
        """Start the process and have it import what it needs, by asking it to describe itself."""
        return self.submit("describe")

    @property
    def limits(self) -> Limits:
        return self._supervisor.limits

    def rest(self, busy: bool = False) -> bool:
        """End the process until the next request; return False where unfinished requests keep it.
        With `busy`, those are cancelled."""
        return self._supervisor.rest(busy)

    @property
    def idle(self) -> float | None:
        """Seconds since its last request finished; None while it has one."""
        return self._supervisor.idle()

    @property
    def memory(self) -> int:
        """Bytes of memory of the process and its children; 0 without a process."""
        pid = self.pid
        return 0 if pid is None else usage(pid).memory

    @property
    def pid(self) -> int | None:
        return self._supervisor.pid()

    def close(self) -> None:
        self._finalizer()
        self._supervisor.join()

    def __enter__(self) -> "EngineClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
