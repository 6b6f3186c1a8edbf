"""A pane beside the picture: as high as it, with a scroll of its own; it resizes, folds, remembers.

`pane.js` and `pane.css` draw the edge between the two; the browser keeps width and fold."""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from relascope.viz.component import small

_HTML = (
    "<div class='edge' role='separator' aria-orientation='vertical' tabindex='0'></div>"
    "<button class='fold' type='button'><svg viewBox='0 0 10 16'>"
    "<path d='M6.5 4L3 8l3.5 4'/></svg></button>"
)


def beside(name: str, what: str) -> tuple[DeltaGenerator, DeltaGenerator]:
    """A pane at the left, above on a narrow page, and the place of the picture; `name` is "steps"
    or "cut" in the page's style, `what` its edge's: "Steps"."""
    row = st.container(key=f"pane_{name}")
    pane, picture = row.columns([1, 4], gap="xxsmall")
    with picture.container(key=f"edge_{name}"):
        small("pane", _HTML)(key=f"edge_of_{name}", data={"name": name, "what": what})
    return pane, picture
