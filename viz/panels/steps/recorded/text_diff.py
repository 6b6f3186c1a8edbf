"""Two texts side by side: changed lines and words marked, what is the same folded.

Python side of a small component; `text_diff.js` of `viz/component/` is its other half. Where it is
narrow, the two columns become one. Texts are a stranger's: the browser takes them as text alone.
"""

import json
import struct
import time
import zlib
from collections.abc import Sequence

import streamlit as st

from relascope.viz.compare.text import Stretch, beside
from relascope.viz.component import small


def packed(stretches: Sequence[Stretch], titles: tuple[str, str], same: str) -> bytes:
    """What stands side by side, as the browser takes it; `same` is said where nothing differs."""
    data = beside(stretches, titles, same)
    return zlib.compress(json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode(), 1)


def text_diff(data: bytes, *, key: str) -> None:
    """Draw what `packed` made."""
    sent: tuple[bytes, float] | None = st.session_state.get(f"{key}_sent")
    if sent is None or sent[0] != data:
        sent = st.session_state[f"{key}_sent"] = data, time.time()
    # A component that is being loaded may get what was sent last before what was sent first.
    small("text_diff")(key=key, data=struct.pack("<d", sent[1]) + data)
