"""The list of a recording's passes: nested as they ran, folded, filtered and searched.

Python side of a small component; `run_list.js` of `viz/component/` is its other half, which draws
only the rows that can be seen: a compile runs thousands of passes. What is folded, filtered and
searched for is the browser's own; Python is told which pass was chosen.
"""

import hashlib
import json
import struct
import zlib
from collections.abc import Callable, Sequence

import streamlit as st

from relascope.viz.component import small
from relascope.viz.rows import Row
from relascope.viz.rows.recording import as_columns


def packed(rows: Sequence[Row]) -> bytes:
    """Rows of `pass_rows` as the browser takes them: a token, and their columns deflated."""
    raw = json.dumps(as_columns(rows), separators=(",", ":")).encode()
    return hashlib.blake2b(raw, digest_size=8).digest() + zlib.compress(raw, 6)


def run_list(
    rows: bytes, count: int, selected: int, *, key: str, on_select: Callable[[int], None]
) -> None:
    """Draw the list.

    Args:
        rows: as `packed` makes them; count: how many they are.
        selected: number of the chosen pass.
        on_select: called with a pass's number when it is chosen.
    """

    def chosen() -> None:
        number = (st.session_state.get(key) or {}).get("select")
        if isinstance(number, int) and 0 <= number < count:
            on_select(number)

    small("run_list")(key=key, data=struct.pack("<i", selected) + rows, on_select_change=chosen)
