"""Saves the engine's answers on a screen in its session, without new requests."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import streamlit as st

from relascope.core.errors import EngineError
from relascope.engine.protocol.plain import plain
from relascope.viz.panels.shell.cut_choice import screen_cut
from relascope.viz.panels.shell.request_cache import Waiting
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.panels.shell.table import show_sections
from relascope.viz.sessions import results
from relascope.viz.sessions.state import Session

_FOUND, _PLACE = "found_here", "found_at"


def noted(screen: Screen, session: Session, before: Session | None) -> Session:
    """The session with the results known now, and those saved for the same screen before."""
    engines, parts = {}, results.Results()
    if before is not None:
        engines = before.engines
        if subject(before) == subject(session):
            cut = before.cut == session.cut
            parts = {n: p for n, p in before.results.items() if n not in ("cut", "errors") or cut}
    with suppress(Waiting, EngineError):
        engines = {**engines, screen.ir: screen.cache.look_up("describe").version}
    parts = {name: part for name, part in parts.items() if "error" not in part}
    _note(parts, screen, session)
    for name, (place, result) in st.session_state.get(_FOUND, {}).items():
        if place == screen.place:
            parts[name] = plain(result)
    captures = parts.get("cut", {}).get("captures")
    if screen.training and parts.get("profile", {}).get("captures") != captures:
        parts.pop("profile", None)
    st.session_state[_PLACE] = screen.place
    return replace(session, engines=engines, results=parts)


def note_result(screen: Screen, name: str, result: Any) -> None:
    """Save the result of a button, one of `viz.sessions.state.RESULTS`, with this screen."""
    st.session_state.setdefault(_FOUND, {})[name] = screen.place, result


def show_kept(screen: Screen, name: str) -> None:
    """Draw a result on this screen from an earlier run of the app, if any."""
    session, place = st.session_state.get("session"), st.session_state.get(_PLACE)
    if session is None or place not in (None, screen.place):
        return
    result = session.results.get(name) or {}
    if result.get("rows"):
        st.caption("Found before.")
        show_sections(results.result_sections(name, result), f"kept_{name}")


def entered() -> None:
    """Forget the screen of the results, because another session's screen is drawn next."""
    st.session_state.pop(_PLACE, None)


def subject(session: Session) -> tuple[Any, ...]:
    """The part of a session that its results depend on."""
    return session.ir, session.model, session.pipeline


def _note(parts: results.Results, screen: Screen, session: Session) -> None:
    ask, source = screen.cache.look_up, screen.source
    alive = screen.pipeline

    def note(name: str, make: Callable[[], Any], into: results.Results = parts) -> None:
        if name not in into:
            with suppress(Waiting):
                into[name] = results.part(make)

    if "steps" not in parts:
        with suppress(Waiting):
            parts["steps"], alive = results.step_facts(ask, source, alive)
    graphs = {i: g for i, g in parts.get("graphs", {}).items() if "error" not in g}
    last, chosen = screen.last, session.look.step
    for index in sorted({-1, last if chosen is None else min(chosen, last), last}):
        note(str(index), partial(results.graph_of, ask, source, alive, index), graphs)
    if graphs:
        parts["graphs"] = graphs
    if screen.training and session.look.tab in ("Gradient & cut", "Compile & time"):
        after = (source, screen.pipeline, last, True)
        asked = (("graph_after", *after), ("kernels", *after[:2]))
        if all(screen.cache.has(*one) for one in asked):
            note("cut", lambda: results.cut_facts(screen_cut(screen)[0]))
    for one in session.timings:
        request = one.request
        if (request.source, request.pipeline) != (source, screen.pipeline):
            continue
        if not request.split or list(request.captures) == parts.get("cut", {}).get("captures"):
            parts["errors"] = results.error_facts(request.target, one.result.comparisons)
    if (running := st.session_state.get("timing")) is not None:
        try:  # why the last request could not be timed
            screen.cache.peek("time", *running.arguments)
        except EngineError as error:
            if error.kind != "cancelled":
                parts["errors"] = {"target": running.arguments[0].target, "error": error.to_json()}
