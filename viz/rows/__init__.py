"""What page and command line say about a result: the same rows for both."""

from typing import Any

from relascope.engine.protocol.plain import plain

Row = dict[str, Any]


def fields(value: object, names: str) -> Row:
    """Some fields of a result as JSON values, by their names with spaces between."""
    return {name: plain(getattr(value, name)) for name in names.split()}
