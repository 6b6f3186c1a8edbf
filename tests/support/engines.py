"""Engines that the tests of one process share: starting one is what most of their time went to."""

from __future__ import annotations

import functools

from page_session import session_of
from relascope.engine.client import EngineClient


class Shared(EngineClient):
    """A client that its users may close: the process goes on until the tests end."""

    def close(self) -> None:
        pass


@functools.cache
def shared(ir: str, session: str | None = None) -> Shared:
    """The one engine of an IR, or of a session that stands in for it."""
    return Shared(ir, session)


def shared_fake(ir: str) -> Shared:
    """The engine without a TVM that stands in for an IR's (page_session.py)."""
    return shared(ir, session_of(ir))
