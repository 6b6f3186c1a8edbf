"""The screen as a session: written to Streamlit's state when a page opens, and read from it."""

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import streamlit as st
from streamlit import runtime
from streamlit import session_state as state
from streamlit.runtime.scriptrunner import get_script_run_ctx

from relascope.core.errors import EngineError
from relascope.engine.files.formats import is_recording
from relascope.engine.protocol.source import ModelSource, has_name
from relascope.samples import SAMPLES
from relascope.viz.component.views import select, selected_of, toggle, toggled
from relascope.viz.panels.shell import noting
from relascope.viz.panels.shell.cut_choice import RECOMPUTE, SAVE, forced_ids
from relascope.viz.panels.shell.frame import plain_text
from relascope.viz.panels.shell.holding import put
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.panels.shell.settings import recall
from relascope.viz.panels.shell.sidebar import FILE, MODES, NAMED, look_into
from relascope.viz.sessions import address, store
from relascope.viz.sessions.state import (
    PIPELINES,
    RECORDED_TABS,
    SETTINGS,
    TABS,
    Compile,
    CutChoice,
    ModelChoice,
    ScreenState,
    Session,
    get,
    pipeline_key,
    pipeline_text,
)

VIEWS = {
    "Graph": ("graph_view",),
    "Passes": ("step_view", "error_view"),
    "Gradient & cut": ("joint_view",),
}
"""The graphs of each tab, one of which is drawn."""
RECORDED_VIEW = "recorded_view"  # the graph of a recording's pass
_VIEW_KEYS = [*(view for views in VIEWS.values() for view in views), RECORDED_VIEW]
RECORDED_PASS, RECORDED_TAB = "recorded_pass", "keep_recorded_tab"
_CHOICES = (
    "keep_only_to_chosen keep_layout keep_show_removed keep_cut_view keep_cut_axis "
    "keep_change_view keep_step_colours keep_error_dtype keep_types "
    "keep_against keep_against_ir keep_against_pipeline keep_against_sample keep_against_file "
    "keep_against_session keep_against_at keep_against_table keep_against_all_steps"
)
_SWITCHES = _CHOICES.split()
_WRITTEN, _UNREAD = "address_written", "address_unread"
_ID, _KEPT, _OPEN = "session_id", "session_kept", "session_to_open"
_MOST_OPEN = 1000
_OPEN_IN: dict[str, str] = {}  # by session id, Streamlit's id of the tab that has it


def arrive() -> list[str]:
    """Go where the address says, before anything is drawn; sentences on what could not be done."""
    context = get_script_run_ctx()
    if _OPEN in state:  # delete only after entering: each access to the state may end the run
        missing = enter(state[_OPEN])
        del state[_OPEN]
        return missing
    went = context is not None and context.is_history_navigation
    query = {name: st.query_params.get_all(name) for name in st.query_params}
    if _WRITTEN not in state or (went and query != state[_WRITTEN]):
        state[_UNREAD] = _go(dict(query), went)
        state[_WRITTEN] = query
    return list(state.get(_UNREAD, ()))


def _go(query: dict[str, list[str]], went: bool) -> list[str]:
    """Go where the address says; `query` is all of it."""
    wrong = []
    if old := query.pop("ir", None):  # the engine's name in addresses of 0.2
        query.setdefault("engine", old)
    ident = query.pop("session", [""])[-1]
    base: Session | None = state.get("session")
    if ident != state.get(_ID):
        base = None
        try:
            base = store.get(ident)
        except EngineError as error:
            wrong.append(error.message)
        state[_ID] = store.new_id() if base is None else _free_id(ident)
    if not query and ident and base is not None:
        return enter(base)
    if not query and not went:
        return wrong if ident else _begin(os.environ.get(store.OPEN, ""))
    session, unread = address.session_of(query or {"engine": [recall("ir") or Session.ir]}, base)
    if query.get("engine", [session.ir])[-1].lower() != session.ir:  # an unknown engine
        session = replace(session, ir=recall("ir") or session.ir)
    if unread:
        wrong.append(f"Parts of the address cannot be shown: {'; '.join(unread)}.")
    return wrong + enter(session)


def _begin(named: str) -> list[str]:
    """Show the session or file that the page was started on, if any."""
    if not named.startswith(store.OF_SESSION):
        if named:
            look_into(named)
            put("keep_model", FILE)
        return []
    ident = named.removeprefix(store.OF_SESSION)
    try:
        found = store.get(ident)
    except EngineError as error:
        return [error.message]
    if found is None:
        return [f"There is no session {ident!r}."]
    state[_ID] = _free_id(ident)
    return enter(found)


def go_to(session: Session, ident: str) -> None:
    """Show another session in the next run of the page, and save changes under its id."""
    state[_OPEN], state[_ID] = session, ident
    state.pop("history", None)


def _free_id(ident: str) -> str:
    """A session's id, or a new one if another open tab has that session."""
    context = get_script_run_ctx()
    if context is None or not runtime.exists():
        return ident
    other = _OPEN_IN.get(ident, context.session_id)
    taken = other != context.session_id and runtime.get_instance().is_active_session(other)
    return store.new_id() if taken else ident


def enter(session: Session) -> list[str]:
    """Write a session's screen to the state, before controls; sentences on what is missing."""
    model = session.model
    missing = _files(model)
    state.setdefault("history", {(t.request, n): t for n, t in enumerate(session.timings)})
    for path, setting in SETTINGS.items():
        value = get(session, path)
        if not setting.widget:
            continue
        if value is None or (value == "" and not setting.clears):
            state.pop(setting.widget, None)
        else:
            put(setting.widget, [*value] if isinstance(value, tuple) else value)
    _choose(model)
    key = pipeline_key(session.ir, model.training, model.gradient)
    state.update(session.pipelines)
    state[key] = session.pipeline or None
    recorded, tab = _is_recorded(session), session.look.tab
    put("keep_tab", tab if tab in TABS and not recorded else TABS[0])
    put(RECORDED_TAB, tab if tab in RECORDED_TABS else RECORDED_TABS[0])
    step = RECORDED_PASS if recorded else step_key(model)
    if session.look.step is None:
        state.pop(step, None)
    else:
        state[step] = session.look.step
    forced = dict.fromkeys(session.cut.save, SAVE) | dict.fromkeys(session.cut.recompute, RECOMPUTE)
    state.forced_anew = forced
    state.update({n: value for n, value in session.look.choices.items() if n in _SWITCHES})
    for view in (RECORDED_VIEW,) if recorded else VIEWS.get(tab, ()):
        select(view, session.look.selected)
    for view, groups in session.look.modules.items():
        if view in _VIEW_KEYS:
            toggle(view, groups)
    state.session = session
    noting.entered()
    return missing


def _files(model: ModelChoice) -> list[str]:
    """Open a model's files; a sentence for each that is missing."""
    missing = []
    before: Session | None = state.get("session")
    if model.digest and (before is None or before.model.digest != model.digest):
        file = store.model_file(model.digest)
        look_into(None if file is None else str(file))
        if file is None:
            said = f"The model's file (hash {model.digest}) is not on this machine"
            missing = [f"{said}: choose it again."]
    files = {d: store.model_file(d) for d in model.tensors}
    missing += [f"Saved inputs (hash {d}) are not on this machine." for d in files if not files[d]]
    state.tensor_paths = tuple(str(f) for f in files.values() if f is not None)
    return missing


def _choose(model: ModelChoice) -> None:
    """Write the choice of model to the controls that consist of several fields."""
    named = not model.digest and has_name(model.name)
    put("keep_model", FILE if model.digest else NAMED if named else model.name)
    if named:
        name, _, changes = model.name.partition("?")
        put("keep_name", name)
        put(f"keep_changes_{name}", changes)
        put("keep_random", bool(model.weights))
    state.keep_piece_of = model.name, model.digest
    put("keep_mode", MODES[model.training])
    for name, size in (("batch", model.batch), ("tokens", model.tokens)):
        if size is not None and not model.digest:
            put(f"keep_{name}_{model.name}", size)


def settle(screen: Screen) -> None:
    """Once the screen's model is known, force tensors again that were forced by hand."""
    forced = state.pop("forced_anew", None)
    if forced is not None:
        state.keep_by_hand = {**(state.get("keep_by_hand") or {}), screen.place: forced}


def step_key(model: ModelChoice | ModelSource) -> str:
    return f"step_{model.gradient if model.training else 'inference'}"


def choose_pass(index: int) -> None:
    """Show a recording's pass from the next run of the page on."""
    state[RECORDED_PASS] = index


def _controls(part: str) -> dict[str, Any]:
    """The values of the controls of a part of a session, except empty ones."""
    found = {
        path.removeprefix(f"{part}."): state.get(setting.widget)
        for path, setting in SETTINGS.items()
        if path.startswith(f"{part}.") and setting.widget
    }
    said = {name: value for name, value in found.items() if value not in (None, "")}
    return {n: tuple(v) if isinstance(v, list) else v for n, v in said.items()}


def current(screen: Screen) -> Session:
    """The screen as a session."""
    source = screen.source
    typed = state.get("keep_inputs", "") if source.digest else ""
    model = ModelChoice.of(source, screen.label, typed)
    tab = state.get("keep_tab") or ScreenState.tab
    below = screen.fewer_than
    session = Session(
        ir=screen.ir,
        model=model,
        pipeline=str(screen.pipeline),
        cut=CutChoice(**_controls("cut"), **forced_ids(screen)),
        build=Compile(**_controls("build")),
        look=_look(tab, step_key(model), VIEWS.get(tab, ()), _VIEW_KEYS, fewer_than=below),
    )
    default = pipeline_text(replace(session, pipeline=""))
    here = pipeline_key(screen.ir, model.training, model.gradient)
    others = {n: text for n in PIPELINES if n != here and (text := state.get(n))}
    text = "" if session.pipeline == default else session.pipeline
    return replace(session, pipeline=text, pipelines=others)


def _look(
    tab: str, step: str, drawn: Iterable[str], views: Iterable[str], **more: Any
) -> ScreenState:
    """The state of the screen; `step` is the key of the chosen step, `drawn` are the graphs of
    which one is drawn, `views` those whose modules may be open."""
    selected = next((s for view in drawn if (s := selected_of(view))), "")
    choices = {n: state[n] for n in _SWITCHES if state.get(n) is not None}
    modules = {view: groups for view in views if (groups := toggled(view))}
    return ScreenState(tab, state.get(step), selected, choices=choices, modules=modules, **more)


def so_far(screen: Screen) -> Session:
    """The screen as a session, with its results from before this run of the page."""
    session = replace(current(screen), timings=tuple(state.get("history", {}).values()))
    before: Session | None = state.get("session")
    if before is None or noting.subject(before) != noting.subject(session):
        return session
    return replace(session, results=before.results)


def keep(screen: Screen) -> None:
    """After everything is drawn, save the session and write it to the address. While the model is
    not open, and if it cannot be opened, both stay unchanged."""
    session, before = so_far(screen), state.get("session")
    other = before is not None and before.model != session.model
    if other or (before is not None and before.ir != session.ir):
        state.pop(_UNREAD, None)
    if state.get("model_refused") or (other and state.get("model_waits")):
        return
    source = screen.source
    files = [(source.model, source.digest)] if source.digest else []
    _keep(noting.noted(screen, session, before), [*files, *source.tensors])


def way_back(screen: Screen) -> None:
    """If a model cannot be opened, a button that goes back to the previous one."""
    ident, session = now()
    refused = state.get("model_refused")
    if refused and session is not None and session.model != current(screen).model:
        label = f"Back to {plain_text(about(session))}"
        icon, to = ":material/undo:", (session, ident)
        st.button(label, key="way_back", icon=icon, on_click=go_to, args=to)


def keep_recorded(screen: Screen) -> None:
    """As `keep`, for a recording."""
    source = screen.source
    tab, views = state.get(RECORDED_TAB) or RECORDED_TABS[0], (RECORDED_VIEW,)
    function = state.get("keep_recorded_function") or ""
    look = _look(tab, RECORDED_PASS, views, views, function=function)
    timings = tuple(state.get("history", {}).values())
    ir = state.get("ir") or recall("ir") or Session.ir
    model = ModelChoice(screen.label, source.digest)
    _keep(Session(ir=ir, model=model, look=look, timings=timings), [(source.model, source.digest)])


def _keep(session: Session, files: Iterable[tuple[str, str]]) -> None:
    state.session = session
    query = address.written(session)
    if set(query) - {"engine"} or session.timings or _KEPT in state:
        query |= _store(session, files)
    said = {name: [value] if isinstance(value, str) else value for name, value in query.items()}
    if said != state.get(_WRITTEN):
        others = {n: st.query_params.get_all(n) for n in st.query_params if not address.knows(n)}
        others.pop("session", None)
        st.query_params.from_dict({**others, **query})  # the next run may cut this one short here
        state[_WRITTEN] = said


def _store(session: Session, files: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Save the session if it changed; the address's parameters for it."""
    ident = state.setdefault(_ID, store.new_id())
    context = get_script_run_ctx()
    if context is not None:
        _OPEN_IN[ident] = context.session_id
        for old in list(_OPEN_IN)[:-_MOST_OPEN]:  # other tabs' threads may drop the same
            _OPEN_IN.pop(old, None)
    if state.get(_KEPT) != (ident, session):
        try:
            store.put(ident, session, about(session), files)
        except EngineError as error:
            state.keep_failed = error
            return {}
        state.keep_failed, state[_KEPT] = None, (ident, session)
    return {"session": ident}


def about(session: Session) -> str:
    """A session in a few words: the model, an unusual batch, the mode and the IR."""
    model, sample = session.model, SAMPLES.get(session.model.name)
    if _is_recorded(session):
        return f"{model.name}, recording of a compile"
    words = [sample.title if sample else model.name]
    if sample and model.batch not in (None, sample.default_batch):
        words.append(f"batch {model.batch}")
    if model.module:
        words.append(model.module)
    return ", ".join([*words, MODES[model.training].lower(), session.ir.capitalize()])


def _is_recorded(session: Session) -> bool:
    """Whether the session's file is kept, and a recording."""
    file = store.model_file(session.model.digest)
    return file is not None and is_recording(file)


def forget(ident: str) -> None:
    """If this is the tab's own session, continue as a new one."""
    if state.get(_ID) == ident:
        state[_ID] = store.new_id()
        state[_KEPT] = state[_ID], state.get("session")


def now() -> tuple[str, Session | None]:
    """The id and the session of this tab."""
    return state.get(_ID, ""), state.get("session")
