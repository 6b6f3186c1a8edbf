"""Engines that the tests of one process share: starting one is what most of their time went to."""

import functools
import weakref
from typing import Any

from page_session import session_of
from relascope.engine.client import EngineClient, Job


class Shared(EngineClient):
    """A client that its users may close: the process goes on until the tests end."""

    def __init__(self, ir: str, session: str | None) -> None:
        super().__init__(ir, session)
        self._jobs: weakref.WeakSet[Job] = weakref.WeakSet()

    def submit(self, method: str, *args: Any, **kwargs: Any) -> Job:
        job = super().submit(method, *args, **kwargs)
        self._jobs.add(job)
        return job

    def close(self) -> None:
        pass

    def rest(self, busy: bool = False) -> bool:
        return False

    def stop(self) -> None:
        """Give up what is under way, so that the next test need not wait for it."""
        for job in list(self._jobs):
            job.cancel()


@functools.cache
def shared(ir: str, session: str | None = None) -> Shared:
    """The one engine of an IR, or of a session that stands in for it."""
    return Shared(ir, session)


def shared_fake(ir: str) -> Shared:
    """The engine without a TVM that stands in for an IR's (page_session.py)."""
    return shared(ir, session_of(ir))
