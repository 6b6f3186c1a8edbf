"""Around the list of steps: the chosen step's parameters, and the pipeline as text."""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st

from relascope.core.errors import EngineError
from relascope.engine.protocol.plain import plain
from relascope.engine.protocol.results import PassExample
from relascope.passes.catalogue import default_pipeline, info, read_pipeline, with_tvms
from relascope.passes.catalogue.parameters import Parameter
from relascope.passes.catalogue.tvm_named import MARK
from relascope.viz.panels.shell.frame import boundary, download, plain_text, show_error
from relascope.viz.panels.shell.request_cache import Waiting
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.panels.steps.step_list import chosen, now, take
from relascope.viz.rows.formats import arguments_text
from relascope.viz.rows.script import step_script

_REFUSED = "parameter_refused"  # (widget's key, why)
_PASTED = "keep_pipeline_text"

_OURS = "relascope's"


def chooser(screen: Screen) -> Mapping[str, str]:
    """Draw the choice of the default pipeline or TVM's; texts of TVM's by name, not in training."""
    theirs: Mapping[str, str] = {}
    if not screen.training:
        with boundary(screen.cache), suppress(Waiting):
            theirs = screen.cache.ask("pipelines").pipelines
    usual = default_pipeline(screen.ir, screen.training, screen.source.gradient)
    known = {_OURS: usual, **{f"TVM's {n}": read_pipeline(screen.ir, theirs[n]) for n in theirs}}
    current = next((n for n, pipeline in known.items() if pipeline == screen.pipeline), None)
    key = f"pipeline_named_{screen.ir}_{screen.training}_{current}"

    def changed() -> None:
        name = st.session_state[key]
        # After an edit, a slow browser may still send this box's old value, which is no choice.
        if name not in (None, current):
            take(screen, None if name == _OURS else known[name], len(known[name]) - 1)

    st.selectbox(
        "Pipeline",
        list(known),
        None if current is None else list(known).index(current),
        key=key,
        on_change=changed,
        placeholder="Edited",
        help="TVM's are those of the installed TVM, up to the last pass before code generation. "
        "Numbers after a step are from a build that adds the passes TVM requires.",
    )
    return theirs


def parameters(screen: Screen) -> None:
    """A field for each parameter of the chosen step; the pipeline's text omits defaults."""
    if (index := chosen(screen)) < 0:
        return
    step = screen.pipeline.steps[index]
    # Keys contain the other steps; otherwise a field would keep another pipeline's value.
    others = screen.pipeline.without(index)
    for parameter in info(screen.ir, step).parameters:
        key = f"parameter_{index}_{step.name}_{parameter.name}_{screen.ir}_{others}"
        _field(screen, index, parameter, key)
        at, why = st.session_state.get(_REFUSED, ("", ""))
        if at == key:
            st.caption(f":red[{plain_text(why[0].upper() + why[1:])}.]")


def _field(screen: Screen, index: int, parameter: Parameter, key: str) -> None:
    step = screen.pipeline.steps[index]
    text = dict(step.params).get(parameter.name, parameter.default_text)

    def changed() -> None:
        st.session_state.pop(_REFUSED, None)
        given = st.session_state[key]
        new = "" if given is None else str(given).strip()
        new = new.lower() if parameter.kind == "switch" else new
        new = "" if new == parameter.default_text else new
        try:
            if new:
                parameter.read(new)
        except ValueError as wrong:
            st.session_state[_REFUSED] = key, str(wrong)
            return
        pipeline = now(screen)
        # A pipeline pasted meanwhile may lack the step.
        if [s.name for s in pipeline.steps[index : index + 1]] == [step.name]:
            take(screen, pipeline.with_parameter(index, parameter.name, new or None), None)

    label = parameter.name + (f" ({parameter.unit})" if parameter.unit else "")
    more: dict[str, Any] = {"key": key, "on_change": changed, "help": parameter.about or None}
    if parameter.kind == "switch":
        st.toggle(label, bool(parameter.read(text) if text else None), **more)
        return
    more["placeholder"] = "The pass decides"
    if parameter.choices:
        options = list(parameter.choices)
        st.selectbox(label, options, options.index(text) if text in options else None, **more)
    else:
        st.text_input(label, text, **more)


def pipeline_text(screen: Screen, theirs: Mapping[str, str]) -> None:
    """The pipeline as text to copy, as a script, and a field for another, which may name TVM's."""

    def use() -> None:  # as a callback, because a change of tabs may cut the run short
        st.session_state.pop(_REFUSED, None)
        text = st.session_state[_PASTED]
        try:
            text = with_tvms(screen.ir, text, theirs) if MARK in text else text
            take(screen, read_pipeline(screen.ir, text), None)
        except ValueError as wrong:
            st.session_state[_REFUSED] = _PASTED, str(wrong)

    with st.expander("Pipeline as text"):
        st.code(str(screen.pipeline), language=None, wrap_lines=True)
        made = partial(step_script, screen.ir, screen.source, screen.pipeline, screen.label)
        file = f"{Path(screen.label).stem}-{screen.ir}.py"
        about = "A script that runs the pipeline pass by pass, prints what each changed, and "
        about += "compares with PyTorch; the tab In your code shows it."
        download("Download as Python", made, file, "pipeline_script", width="stretch", help=about)
        with st.form("pipeline_form", border=False):
            about = "Names separated by |, a minus before a pass that is off, parameters in "
            about += "parentheses: name(key=value)."
            st.text_input("Paste a pipeline", key=_PASTED, placeholder="cse|bind|-fold", help=about)
            st.form_submit_button("Use it", on_click=use, key="use_pipeline", width="stretch")
        at, why = st.session_state.get(_REFUSED, ("", ""))
        if at == _PASTED:
            show_error(EngineError("usage", why))


def example(screen: Screen) -> None:
    """The chosen step's pass on a small example; nothing for the import."""
    if (index := chosen(screen)) < 0:
        return
    box = st.expander("On a small program", key="keep_example", on_change="rerun")
    if not box.open:
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
