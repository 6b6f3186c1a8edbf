"""Results as rows, the same on the page and in the command line."""

import base64
import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

from relascope.engine.protocol.plain import plain

Row = dict[str, Any]


def fields(value: object, names: str) -> Row:
    """Some fields of a result as JSON values; `names` are separated by spaces."""
    return {name: plain(getattr(value, name)) for name in names.split()}


def packed(value: object, level: int) -> str:
    """A value as JSON for the browser, deflated at a level of zlib's, as base64."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)
    # A name may contain a single surrogate, which is not valid UTF-8.
    return base64.b64encode(zlib.compress(text.encode("utf-8", "replace"), level)).decode()


def archive(files: Mapping[str, bytes | str]) -> bytes:
    """Files as a zip archive; equal files are equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        for name, content in files.items():
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            made.writestr(info, content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
