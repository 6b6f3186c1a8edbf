"""The graph viewer as a Streamlit component: `graph_view` draws a Graph and reports the selection.

The graph is sent as one compressed block, with its modules and looks, to the element
`<relascope-graph>`, which lays it out and draws it. Equal arguments give equal bytes, which
Streamlit does not send again, so reruns of the page leave the view unchanged.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from relascope.core.graph import Graph
from relascope.viz.drawing import javascript
from relascope.viz.drawing.drawing import View, drawing_of, family_of
from relascope.viz.drawing.modules import BACKWARD, fold_constants
from relascope.viz.drawing.union import Union

_HERE = Path(__file__).parent
_PLAIN = View()
_DRAW = """export default async (given) => {
  await customElements.whenDefined("relascope-graph");
  given.parentElement.querySelector("relascope-graph").draw(given);
};"""


def define() -> None:
    """Put the script of the element `<relascope-graph>` on the page once, for all views."""
    _component("element", js=f"{javascript.element()}export default () => {{}};")(key="element")


def graph_view(
    graph: Graph, view: View = _PLAIN, *, key: str, on_select: Callable[[], None] | None = None
) -> str | None:
    """Draw a graph. By the widget's `key`, its state survives reruns and changes of the graph;
    `on_select` is called before the rerun that a changed selection starts. Returns the drawn
    `focus`: None if it is not drawn, and the first node of a module without a group."""
    st.session_state.pop(f"{key}_acted", None)
    drawing = drawing_of(graph, view.fewer_than, _union(graph, view, key))
    focus = drawing.focus(view.focus)
    kept = _kept_selection(key) if focus is None else None
    if kept is not None:
        focus = kept and drawing.focus(kept)
        if focus is None:
            st.session_state.pop(f"{key}_kept")
    view = replace(view, focus=focus, family=view.family or drawing.family)
    toggles = toggled(key, view.family or "")
    # The browser recognises the last `toggle` for this family by its name.
    last: _KeptToggles | None = st.session_state.get(f"{key}_toggled")
    told = last.name if last is not None and last.family == view.family else ""
    more = {"view": key, "recalled": kept is not None, "told": told}
    _component("graph", html="<relascope-graph></relascope-graph>", js=_DRAW, isolate_styles=False)(
        key=key,
        data=drawing.encode(toggles, view, more),
        default={"selected": None, "toggles": None},
        on_selected_change=on_select or _nothing,
        on_toggles_change=_nothing,
        on_alone_change=partial(_alone, key, view.open_alone),
        on_act_change=partial(_act, key, view.act),
        on_show_change=partial(_show, key, view.present),
    )
    return view.focus


def select(key: str, selected: str) -> None:
    """Let a view select a node or a module, or nothing (""), when it is drawn next."""
    before = (st.session_state.get(key) or {}).get("selected") or ""
    if selected != before:
        st.session_state[f"{key}_kept"] = _KeptSelection(selected, before)


def picking(key: str, ids: Sequence[str]) -> Callable[[int | None], None]:
    """A callback for a table, with which the view selects the clicked row's node."""

    def pick(row: int | None) -> None:
        if not st.session_state.get(f"{key}_acted"):
            select(key, "" if row is None else ids[row])

    return pick


def selected_of(key: str) -> str:
    """The selection of a view, or the one to come when it is drawn; or ""."""
    kept, now = _kept_selection(key), (st.session_state.get(key) or {}).get("selected") or ""
    return now if kept is None else kept


def toggle(key: str, groups: Mapping[str, bool]) -> None:
    """Let a view open (True) and close modules, by id ("*": all), when it is drawn next."""
    before = (st.session_state.get(key) or {}).get("toggles") or {}
    st.session_state[f"{key}_toggled"] = _KeptToggles(dict(groups), before)


def toggled(key: str, family: str = "") -> dict[str, bool]:
    """The modules opened and closed in a view (of a family), by the user or a coming `toggle`."""
    asked = (st.session_state.get(key) or {}).get("toggles") or {}
    kept: _KeptToggles | None = st.session_state.get(f"{key}_toggled")
    if kept is not None and kept.before == asked:
        kept.family = kept.family or family
        return kept.groups if family in ("", kept.family) else {}
    return dict(asked.get("groups") or {}) if family in ("", asked.get("family")) else {}


@dataclass
class _KeptToggles:
    """Modules to open and close, the user's before, and the graphs' family."""

    groups: dict[str, bool]
    before: Any
    family: str = ""
    name: str = field(default_factory=partial(secrets.token_hex, 4))


def _kept_selection(key: str) -> str | None:
    """The selection requested by `select`, until the user chooses another."""
    state = st.session_state
    kept: _KeptSelection | None = state.get(f"{key}_kept")
    if kept is None:
        return None
    now = (state.get(key) or {}).get("selected") or ""
    if now == kept.selected:
        kept.done = True
    elif kept.done or now not in ("", kept.before):
        del state[f"{key}_kept"]
        return None
    return kept.selected


@dataclass
class _KeptSelection:
    """A requested selection, the one before, and whether it was made."""

    selected: str
    before: str
    done: bool = False


def _alone(key: str, opening: Callable[[str], None] | None) -> None:
    group = (st.session_state.get(key) or {}).get("alone")
    if group and opening is not None:
        opening(group.removeprefix(BACKWARD))


def _act(key: str, acting: Callable[[str, str], None] | None) -> None:
    """Handle a button on a node's card. The node stays selected, although a table that does not
    know its selection yet reports its previous row with the press."""
    event = (st.session_state.get(key) or {}).get("act")
    if acting is not None and isinstance(event, dict):
        st.session_state.pop(f"{key}_kept", None)
        st.session_state[f"{key}_acted"] = True
        acting(str(event["node"]), str(event["action"]))


def _show(key: str, presenting: Callable[[bool, int | None], None] | None) -> None:
    event = (st.session_state.get(key) or {}).get("show")
    if presenting is not None and isinstance(event, dict):
        take = event.get("take")
        presenting(bool(event.get("open")), None if take is None else int(take))


def _nothing() -> None:
    """A callback, without which Streamlit does not keep a component's state."""


@cache
def small(name: str, folder: Path = _HERE) -> Callable[..., Any]:
    """A component from a folder's style, markup and script of this name."""
    css, html = ((folder / f"{name}.{end}").read_text("utf-8") for end in ("css", "html"))
    return _component(name, html=html, css=css, js=javascript.script(str(folder / name)))


@cache
def _component(name: str, **parts: Any) -> Callable[..., Any]:
    return st.components.v2.component(f"relascope_{name}", **parts)


def panes(name: str, what: str) -> tuple[DeltaGenerator, DeltaGenerator]:
    """A pane at the left, above on a narrow page, and the place of the picture; `name` is "steps"
    or "cut", as in the page's style, and `what` labels its edge: "Steps". The pane is as high as
    the picture, scrolls, resizes and folds; the browser keeps width and fold."""
    pane, picture = st.container(key=f"pane_{name}").columns([1, 4], gap="xxsmall")
    with picture.container(key=f"edge_{name}"):
        small("pane")(key=f"edge_of_{name}", data={"name": name, "what": what})
    return pane, picture


def _union(graph: Graph, view: View, key: str) -> Union | None:
    """The union of steps in whose places a graph is drawn, or None."""
    name = f"{key}_places"
    if view.keep_places is None:
        st.session_state.pop(name, None)
        return None
    family = view.family or family_of(graph)
    union: Union | None = st.session_state.get(name, {}).get(family)
    if union is None:
        union = Union()
        st.session_state[name] = {family: union}  # of the last family only
        for other in view.among:
            union.add(fold_constants(other, view.fewer_than))
    union.add(fold_constants(graph, view.fewer_than), view.keep_places)
    return union
