"""Two texts side by side: changed lines and words marked, what is the same folded.

Python side of a small component; `text_diff.js` and `text_diff.css` are its other half. Where it is
narrow, the two columns become one. Texts are a stranger's: the browser takes them as text alone.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from pathlib import Path

import streamlit as st

from relascope.viz.compare.text import Stretch

_HERE = Path(__file__).parent


def packed(stretches: Sequence[Stretch], titles: tuple[str, str], same: str) -> bytes:
    """What stands side by side, as the browser takes it, for `text_diff`.

    Args:
        titles: of the two sides.
        same: what is said where nothing differs.
    """
    plain = [
        [s.rows[0][0][0], s.rows[0][1][0], [row[1][1][0][0] for row in s.rows if row[1]]]
        if s.same and s.rows[0][0] and s.rows[0][1]
        else s.rows
        for s in stretches
    ]
    data = {
        "titles": titles,
        "sameText": same,
        "same": [s.same for s in stretches],
        "rows": plain,
        "changed": sum(s.changed for s in stretches),
    }
    return zlib.compress(json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode(), 1)


def text_diff(data: bytes, *, key: str) -> None:
    """Draw it.

    Args:
        data: as `packed` makes it.
    """
    component = st.components.v2.component(
        "relascope_text_diff",
        html=(_HERE / "text_diff.html").read_text(encoding="utf-8"),
        css=(_HERE / "text_diff.css").read_text(encoding="utf-8"),
        js=(_HERE / "text_diff.js").read_text(encoding="utf-8"),
    )
    component(key=key, data=data)
