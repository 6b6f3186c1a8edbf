"""How many engines this process may run at once, because each takes most of a gigabyte.

A new one takes the place of the engine idle the longest, which restarts at its next request.
"""

import os
import threading
from collections.abc import Callable
from operator import itemgetter
from typing import Protocol

from relascope.core.errors import refusing

MOST = "RELASCOPE_ENGINES"
"""Environment variable: how many engines the page may run at once."""

_ENGINE_BYTES = 1.5 * 2**30  # of one, with a model and its builds
_LOOK = 0.2  # s; how often a waiting engine looks for an idle one
_PAUSE = 3.0  # s; an engine idle for less counts as in use


class Holder(Protocol):
    """An engine that has a place, or wants one."""

    def idle(self) -> float | None:
        """Seconds since its last request finished; None while it has one."""

    def rest(self, busy: bool) -> bool:
        """End its process; return whether it did. `busy` also cancels its requests."""


class Places:
    def __init__(self, most: int = 0) -> None:
        self.most = most
        self._changed = threading.Condition()
        self._held: list[Holder] = []

    def take(
        self, holder: Holder, given_up: Callable[[], bool], say: Callable[[str], None]
    ) -> bool:
        """Wait for a place; False if the wait was given up. `say` is called with why it waits."""
        with self._changed:
            while holder not in self._held and not given_up():
                if not self.most or len(self._held) < self.most:
                    self._held.append(holder)
                else:
                    say(f"waiting for one of {self.most} engines")
                    self._make_room()
                    self._changed.wait(_LOOK)
            return holder in self._held

    def leave(self, holder: Holder) -> None:
        with self._changed:
            if holder in self._held:
                self._held.remove(holder)
                self._changed.notify_all()

    def _make_room(self) -> None:
        idle = [(seconds, h) for h in self._held if (seconds := h.idle()) is not None]
        # Its lock comes before ours (it leaves while holding it), so ours is released meanwhile.
        self._changed.release()
        try:
            seconds, longest = max(idle, key=itemgetter(0), default=(0.0, None))
            if longest is not None and seconds >= _PAUSE:
                longest.rest(False)
        finally:
            self._changed.acquire()


def most_of_page() -> int:
    """How many engines the page may run: by default as many as fit in two thirds of the machine's
    memory. Raises EngineError of kind "usage" if the setting is not a number."""
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with refusing("usage", "the number of engines cannot be read: {}.", MOST, "Set a number."):
        return int(os.environ.get(MOST) or max(2, 2 * whole / 3 // _ENGINE_BYTES))


PLACES = Places()
"""The app's own; without a limit unless one is set."""
