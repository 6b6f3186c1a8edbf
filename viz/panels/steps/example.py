"""What the chosen step's pass does to a program small enough to read."""

import streamlit as st

from relascope.engine.protocol.plain import plain
from relascope.engine.protocol.results import PassExample
from relascope.passes.catalogue import info
from relascope.viz.panels.shell.frame import boundary, plain_text
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.rows.formats import arguments_text


def show(screen: Screen, index: int) -> None:
    """Draw the expander for a step; for the imported program (-1) there is none."""
    if index < 0:
        return
    box = st.expander("On a small program", key="keep_example", on_change="rerun")
    if not box.open:  # the engine is asked for what is looked at
        return
    with box, boundary(screen.cache, "example"):
        entry = info(screen.ir, screen.pipeline.steps[index])
        found: PassExample | None = screen.cache.ask("example", entry.name)
        st.markdown(plain_text(entry.summary))
        if found is None:
            st.caption("This pass has no example.")
            return
        st.caption(plain_text(f"{found.step} on {arguments_text(plain(found))}"))
        before, after = st.columns(2)
        before.code(found.before, language=None)
        after.code(found.after, language=None)
        if found.differs:
            st.caption(plain_text(found.differs))
