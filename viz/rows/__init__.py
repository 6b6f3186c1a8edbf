"""Results as rows, the same on the page and in the command line."""

import io
import zipfile
from collections.abc import Mapping
from typing import Any

from relascope.engine.protocol.plain import plain

Row = dict[str, Any]


def fields(value: object, names: str) -> Row:
    """Some fields of a result as JSON values; `names` are separated by spaces."""
    return {name: plain(getattr(value, name)) for name in names.split()}


def archive(files: Mapping[str, bytes | str]) -> bytes:
    """Files as a zip archive; equal files are equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        for name, content in files.items():
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            made.writestr(info, content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
