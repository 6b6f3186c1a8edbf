"""Counts the replacements of a rewriter, and stops it after a given number.

A debug counter, like LLVM's `-debug-counter`, to find a pass's first wrong application. The
`ir.rewrite.rewrite` of both IRs asks here before it replaces an expression."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Applications:
    """The replacements of a pass while it ran, limited to `most`; None sets no limit.

    Attributes:
        replaced: the replaced expressions, in order.
        refused: how many replacements `most` prevented.
        at: the expression that a rule examines; None outside a rule.
        asked: whether a rewriter ran at all."""

    most: int | None = None
    replaced: list[Any] = field(default_factory=list)
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
    """Set the expression that a rule is about to examine; None after the last."""
    if (now := _NOW.get()) is not None:
        now.at, now.asked = expr, True


def may_replace(expr: Any) -> bool:
    """Whether an expression may be replaced; if so, count it."""
    now = _NOW.get()
    if now is None:
        return True
    if now.most is not None and len(now.replaced) >= now.most:
        now.refused += 1
        return False
    now.replaced.append(expr)
    return True
