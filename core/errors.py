"""The error that every part raises, for people to act on."""

import difflib
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


class EngineError(Exception):
    """An error that people can act on: one sentence that says what was wrong, the node, operator,
    module, file or value that was wrong (`where`), and what to do (`hint`). Programs can test the
    kind: "file", "reader" (a file's reader failed, and did not refuse it), "operator", "input",
    "pass", "type" (a pass changed one, or left an ill-formed program), "engine", "cancelled",
    "target", "graph" (there is none), "code" (a file's own code, which nobody has allowed to run),
    "usage". For a model that cannot be opened, `instead` has paths of submodules without the cause,
    the largest first; in an engine's answer, those that open. It is None for other errors."""

    def __init__(
        self,
        kind: str,
        message: str,
        where: str = "",
        hint: str = "",
        instead: Sequence[str] | None = None,
    ) -> None:
        super().__init__(message)
        self.kind, self.message, self.where, self.hint = kind, message, where, hint
        self.instead = instead
        # A script's traceback ends with them, from Python 3.11 on.
        self.__notes__ = [*filter(None, (where and f"Where: {where}", hint))]

    def __reduce__(self) -> tuple[Any, ...]:
        return EngineError, (self.kind, self.message, self.where, self.hint, self.instead)

    def as_finding(self) -> "EngineError":
        """This error as a result; a cancelled call is not a result, and is raised again."""
        if self.kind == "cancelled":
            raise self
        return self

    def to_json(self) -> dict[str, Any]:
        """Its parts, as the command line prints them; `instead` only if it has entries."""
        parts = {"kind": self.kind, "message": self.message, "where": self.where}
        more = {"instead": [*self.instead]} if self.instead else {}
        return {**parts, "hint": self.hint, **more}


def lines_of(error: object) -> list[str]:
    """The lines of an error's message, without empty ones; its type's name if there are none."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines or [type(error).__name__]


@contextmanager
def refusing(
    kind: str, message: str, where: str = "", hint: str = "", *of: type[Exception]
) -> Iterator[None]:
    """Raise a ValueError of the block, or exceptions `of` other types, as an EngineError. The
    `message` is a sentence with a place for the exception's own message, or only that place."""
    kinds = of or (ValueError,)
    try:
        yield
    except kinds as wrong:
        said = message.format(str(getattr(wrong, "strerror", None) or wrong))
        raise EngineError(kind, said[0].upper() + said[1:], where, hint) from wrong


@contextmanager
def reporting(report: Callable[[Exception], EngineError]) -> Iterator[None]:
    """Raise any other exception of the block as the EngineError that `report` makes of it: a
    library or a model may raise anything."""
    try:
        yield
    except EngineError:
        raise
    except Exception as wrong:
        raise report(wrong) from wrong


def ending(status: int) -> str:
    """How a process ended, by its exit status: "SIGSEGV", or "exit status 1"."""
    if status >= 0:
        return f"exit status {status}"
    known = {s.value: s.name for s in signal.Signals}
    return known.get(-status, f"signal {-status}")


def no_gradient(operator: str, why: str, hint: str = "", of: str = "") -> EngineError:
    """The error of an unknown gradient: "the gradient of `of`, or of the operator, ..."."""
    return EngineError("pass", f"the gradient of {of or operator} {why}", operator, hint)


_ALIKE = 0.5
"""How alike two messages of one fault must be, except for numbers: 1 is the same text."""


def alike(message: str, other: str) -> bool:
    """Whether two messages are of one fault, by their first lines."""
    lines = (text.partition("\n")[0] for text in (message, other))
    one, two = (re.sub(r"0x[0-9a-f]+|\d+", "", line)[:300] for line in lines)
    return difflib.SequenceMatcher(None, one, two).ratio() >= _ALIKE
