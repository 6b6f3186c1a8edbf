"""What draws a recording in the browser: the list of its passes, and two texts side by side.

The list draws only the rows that can be seen, for a compile runs thousands of passes; what is
folded, filtered and searched for is the browser's own, which takes a stranger's texts as text.
"""

import hashlib
import json
import struct
import time
import zlib
from collections.abc import Callable, Sequence

import streamlit as st

from relascope.viz.compare.text import Stretch, beside
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
    """Draw the list of `count` passes, as `packed` made it, the selected one by its number;
    `on_select` is called with the number of a pass that is chosen."""

    def chosen() -> None:
        number = (st.session_state.get(key) or {}).get("select")
        if isinstance(number, int) and 0 <= number < count:
            on_select(number)

    small("run_list")(key=key, data=struct.pack("<i", selected) + rows, on_select_change=chosen)


def packed_texts(stretches: Sequence[Stretch], titles: tuple[str, str], same: str) -> bytes:
    """What stands side by side, as the browser takes it; `same` is said where nothing differs."""
    data = beside(stretches, titles, same)
    return zlib.compress(json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode(), 1)


def text_diff(data: bytes, *, key: str) -> None:
    """Draw what `packed_texts` made."""
    sent: tuple[bytes, float] | None = st.session_state.get(f"{key}_sent")
    if sent is None or sent[0] != data:
        sent = st.session_state[f"{key}_sent"] = data, time.time()
    # A component that is being loaded may get what was sent last before what was sent first.
    small("text_diff")(key=key, data=struct.pack("<d", sent[1]) + data)
