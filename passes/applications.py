"""Counts what a rewriter replaces, and stops it after so many.

A debug counter, as LLVM's `-debug-counter`, to find a pass's first wrong application. Both IRs'
`ir.rewrite.rewrite` ask here before they replace an expression.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Applications:
    """What was replaced while a pass ran. At `most` so many may be; None is all.

    Attributes:
        made: the replaced expressions, in order.
        refused: how many were kept beyond `most`.
        at: the expression that a rule looks at; None outside a rule.
        asked: whether a rewriter ran at all.
    """

    most: int | None = None
    made: list[Any] = field(default_factory=list)
    refused: int = 0
    at: Any = None
    asked: bool = False


_NOW: ContextVar[Applications | None] = ContextVar("applications", default=None)


@contextmanager
def counting(into: Applications) -> Iterator[None]:
    """Count within the block."""
    token = _NOW.set(into)
    try:
        yield
    finally:
        _NOW.reset(token)


def looking_at(expr: Any) -> None:
    """Say which expression a rule is about to look at; None after the last."""
    if (now := _NOW.get()) is not None:
        now.at, now.asked = expr, True


def may_replace(expr: Any) -> bool:
    """Whether an expression may be replaced, which then counts."""
    now = _NOW.get()
    if now is None:
        return True
    if now.most is not None and len(now.made) >= now.most:
        now.refused += 1
        return False
    now.made.append(expr)
    return True
