"""What tests pass for `progress`, and how an engine refuses."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from relascope.core.errors import EngineError


def quiet(fraction: float, text: str) -> None:
    """Say nothing; what it is told must be a share and words."""
    assert 0 <= fraction <= 1
    assert isinstance(text, str)


@contextmanager
def refused(
    kind: str = "", match: str = "", *, where: str = "", says: str = "", hint: str = ""
) -> Iterator[None]:
    """What is done in it ends in an EngineError.

    Args:
        kind, where: of the error; "" is any; `where` may leave out the line.
        match: a pattern that its message has.
        says, hint: texts that message and hint have.
    """
    with pytest.raises(EngineError, match=match or None) as caught:
        yield
    error = caught.value
    assert kind in ("", error.kind), error
    assert where in ("", error.where, error.where.partition(", ")[0]), error
    assert says in error.message, error
    assert hint in error.hint, error
