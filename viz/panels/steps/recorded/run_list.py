"""The list of a recording's passes: nested as they ran, folded, filtered and searched.

Python side of a small component; `run_list.js` of `viz/component/` is its other half, which draws
only the rows that can be seen: a compile runs thousands of passes. What is folded, filtered and
searched for is the browser's own; Python is told which pass was chosen, and keeps what it is told
of the rest.
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

_MOST = 20_000  # bytes of what is kept of the list


def packed(rows: Sequence[Row]) -> bytes:
    """Rows as the browser takes them, for `run_list`: a token, and their columns deflated.

    Args:
        rows: as of `viz.rows.recording.pass_rows`.
    """
    raw = json.dumps(as_columns(rows), separators=(",", ":")).encode()
    return hashlib.blake2b(raw, digest_size=8).digest() + zlib.compress(raw, 6)


def run_list(
    rows: bytes, count: int, selected: int, *, key: str, kept: str, on_select: Callable[[int], None]
) -> None:
    """Draw the list.

    Args:
        rows: as `packed` makes them; count: how many they are.
        selected: number of the chosen pass.
        kept: where the session's state has what is folded, filtered and searched for.
        on_select: called with a pass's number when it is chosen.
    """

    def chosen() -> None:
        number = (st.session_state.get(key) or {}).get("select")
        if isinstance(number, int) and 0 <= number < count:
            on_select(number)

    def keep() -> None:
        told = (st.session_state.get(key) or {}).get("list")
        if isinstance(told, str) and len(told.encode()) <= _MOST:
            st.session_state[kept] = told

    said = str(st.session_state.get(kept) or "").encode()
    said = said if len(said) <= _MOST else b""
    head = struct.pack("<iH", selected, len(said)) + said
    small("run_list")(key=key, data=head + rows, on_select_change=chosen, on_list_change=keep)
