"""The error that every part raises, for a person to act on."""

import difflib
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


class EngineError(Exception):
    """Something a person can act on: in one sentence what was wrong, the node, operator, module,
    file or value it was wrong with (`where`), and what to do about it (`hint`). The kind is a word
    that programs can test for: "file", "reader" (what reads a file fails over it, and does not
    refuse it), "operator", "input", "pass", "type" (a pass changed one, or left an ill-formed
    program), "engine", "cancelled", "target", "code" (what a file brings, which nobody said may
    run), "usage". `instead` has, of a model that cannot be opened, paths of submodules without what
    is wrong, the largest first; an engine's answer has those that open. None where it is no such
    error."""

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
        # A script's traceback ends in them, from Python 3.11 on.
        self.__notes__ = [*filter(None, (where and f"Where: {where}", hint))]

    def __reduce__(self) -> tuple[Any, ...]:
        return EngineError, (self.kind, self.message, self.where, self.hint, self.instead)

    def as_finding(self) -> "EngineError":
        """This error, as what was found; that a call was cancelled is none, and is raised again."""
        if self.kind == "cancelled":
            raise self
        return self

    def to_json(self) -> dict[str, Any]:
        """Its parts, as the command line prints them; `instead` where there is something."""
        parts = {"kind": self.kind, "message": self.message, "where": self.where}
        more = {"instead": [*self.instead]} if self.instead else {}
        return {**parts, "hint": self.hint, **more}


def lines_of(error: object) -> list[str]:
    """The lines of what an error says, without empty ones; its type's name where there are none."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines or [type(error).__name__]


@contextmanager
def refusing(
    kind: str, message: str, where: str = "", hint: str = "", *of: type[Exception]
) -> Iterator[None]:
    """Raise a ValueError of the block, or exceptions `of` other types, as an EngineError. The
    `message` is in a sentence, with a place for what the exception says where that is not all."""
    kinds = of or (ValueError,)
    try:
        yield
    except kinds as wrong:
        said = message.format(str(getattr(wrong, "strerror", None) or wrong))
        raise EngineError(kind, said[0].upper() + said[1:], where, hint) from wrong


@contextmanager
def reporting(report: Callable[[Exception], EngineError]) -> Iterator[None]:
    """Raise whatever else the block raises as an EngineError, which `report` makes of it: a library
    or a model raises anything."""
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
    """That an operator's gradient is not known: "the gradient of `of`, or the operator, ..."."""
    return EngineError("pass", f"the gradient of {of or operator} {why}", operator, hint)


_ALIKE = 0.5
"""How alike two messages must be, numbers aside, to be of one fault: 1 is the same text."""


def alike(message: str, other: str) -> bool:
    """Whether two messages are of one fault, by their first lines."""
    one, two = (
        re.sub(r"0x[0-9a-f]+|\d+", "", text.partition("\n")[0])[:300] for text in (message, other)
    )
    return difflib.SequenceMatcher(None, one, two).ratio() >= _ALIKE
