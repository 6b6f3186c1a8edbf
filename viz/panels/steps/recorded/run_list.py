"""The list of a recording's passes: nested as they ran, folded, filtered and searched.

Python side of a small component; `run_list.js` and `run_list.css` are its other half, which draws
only the rows that can be seen: a compile runs thousands of passes. What is folded, filtered and
searched for is the browser's own; Python is told which pass was chosen.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import streamlit as st

from relascope.viz.rows import Row

_HERE = Path(__file__).parent
_LONGEST = 200  # characters of a name


def packed(rows: Sequence[Row]) -> bytes:
    """Rows as the browser takes them, for `run_list`: a token, and their columns deflated.

    Args:
        rows: as of `viz.rows.recording.pass_rows`.
    """
    data = {
        "name": [r["pass"][:_LONGEST] for r in rows],
        "depth": [r["depth"] for r in rows],
        "changed": [None if r["touched"] is None else len(r["touched"]) for r in rows],
        "own": [r["own_seconds"] for r in rows],
        "time": [r["seconds"] for r in rows],
        "slow": [int(r["slow"]) for r in rows],
        "failed": [1 if r["failure"] is not None else 0 if r["ended"] else 2 for r in rows],
    }
    raw = json.dumps(data, separators=(",", ":")).encode()
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

    component = st.components.v2.component(
        "relascope_run_list",
        html=(_HERE / "run_list.html").read_text(encoding="utf-8"),
        css=(_HERE / "run_list.css").read_text(encoding="utf-8"),
        js=(_HERE / "run_list.js").read_text(encoding="utf-8"),
    )
    component(key=key, data=struct.pack("<i", selected) + rows, on_select_change=chosen)
