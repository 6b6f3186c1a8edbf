"""Tab "Compile & time": build, compare every output and gradient, time beside PyTorch eager."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from relascope.core.errors import EngineError
from relascope.engine.jobs import variants
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.targets import EngineInfo, Target
from relascope.engine.protocol.times import BASELINES, TimeResult, Variant
from relascope.passes.catalogue import GRADIENTS
from relascope.viz.handed_on.parts import times_tab
from relascope.viz.handed_on.sheet import Sheet
from relascope.viz.panels.shell.cut_choice import choice_of, screen_cut
from relascope.viz.panels.shell.frame import download, plain_text, show_error, side_by_side
from relascope.viz.panels.shell.holding import ask, pressed
from relascope.viz.panels.shell.request_cache import RequestCache
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.panels.shell.table import show_sections
from relascope.viz.panels.time import accuracy, artefact, hazards, profile, tuning
from relascope.viz.rows import artefact as artefacts
from relascope.viz.rows import timings
from relascope.viz.sessions.state import Timing

_HELP = {
    "ratio": "Median over the rounds of our time divided by eager's in the same round.",
    "of minima": "Our best time divided by eager's best.",
    "ours over it": "The median of our time divided by this compiler's; below 1, ours is faster.",
    "peak memory": "The most that one run holds at a time besides inputs and parameters: what "
    "PyTorch's allocator has handed out, and what TVM's functions hold.",
    "kept between runs": "What TVM keeps after a run, to reuse in the next.",
}


@dataclass(frozen=True)
class _Run:
    """A running timing: its title and facts for the history, and the arguments of `time`."""

    title: str
    arguments: tuple[Any, ...]
    facts: dict[str, Any]


def show(screen: Screen) -> None:
    engine: EngineInfo = screen.cache.ask("describe")
    arguments, target = _settings(screen, engine)
    request: BuildRequest = arguments[0]
    if target is not None and not target.runs_here:
        st.info(
            f"{plain_text(target.name)}: programs built for it cannot be timed here. "
            f"{plain_text(target.missing)}"
        )
    running: _Run | None = st.session_state.get("timing")
    if running is not None:
        try:
            _remember(running, screen.cache.ask("time", *running.arguments))
        except EngineError as error:
            show_error(error)
            if running.arguments != arguments:
                st.session_state.timing = None  # the settings have changed since
    _results(screen, engine, arguments)
    if target is None:
        return
    if target.runs_here:
        profile.show(screen, request)
        hazards.show(screen, request)
        tuning.show(screen, request)
    artefact.show(screen.cache, request)
    if target.runs_here:
        accuracy.show(screen, target.name)


def _settings(screen: Screen, engine: EngineInfo) -> tuple[tuple[Any, ...], Target | None]:
    """The controls; returns the request of Run, and the chosen target."""
    targets, state = {t.name: t for t in engine.targets}, st.session_state
    where, threads, repeats, run = st.columns([4, 1.3, 1.3, 1.1], vertical_alignment="bottom")
    typed = state.get("keep_target")
    name = ask(
        where.selectbox,
        "Target",
        list(targets) if typed is None or typed in targets else [*targets, typed],
        key="keep_target",
        accept_new_options=True,
        format_func=lambda n: targets[n].words if n in targets else n,
        help="Choose a target, or type any other in TVM's syntax, such as "
        + ", ".join(f"`{t}`" for t in artefacts.TYPED)
        + ". You can build for a device that is not here, and look at the code. *Tuned* uses the "
        "schedules that tuning found faster.\n\n"
        + "\n".join(f"- {one.words}: `{n}`" for n, one in targets.items()),
    )
    about = "For TVM and PyTorch alike."
    count = ask(threads.number_input, "Threads, 0 for all", 0, 256, key="keep_threads", help=about)
    runs = ask(repeats.number_input, "Repeats", 3, 1000, value=30, key="keep_repeats")
    target = _target(screen.cache, targets, name or "")
    named = target.name if target is not None else name or ""
    request = _cut(
        screen, BuildRequest(screen.source, screen.pipeline, named, int(count), int(runs))
    )
    first, second = side_by_side("variants", [1.2, 2])
    arguments = (request, _baselines(first, named), _variants(second, screen, engine, request))
    can_run = target is not None and target.runs_here
    if pressed("Run", "run", run, type="primary", disabled=not can_run, width="stretch"):
        screen.cache.forget("time", *arguments)
        strategy = choice_of(screen).strategy if screen.training else None
        facts = timings.run_facts(screen.label, request, screen.ir, strategy)
        state.timing = _Run(_title(screen), arguments, facts)
    return arguments, target


def _target(cache: RequestCache, targets: dict[str, Target], name: str) -> Target | None:
    """The target of a chosen or typed name; None, after drawing the error, if it is none."""
    found = targets.get(name)
    try:
        if found is None and name.strip():
            found = cache.ask("target", " ".join(name.split()))
    except EngineError as error:
        show_error(error)
    return found


def _baselines(place: DeltaGenerator, target: str) -> tuple[str, ...]:
    offered = BASELINES[:2] if target.startswith("cuda") else BASELINES[::2]
    label = "Time beside PyTorch eager, too"
    about = "It compiles first, which takes seconds to minutes."
    return tuple(place.pills(label, offered, selection_mode="multi", key="keep_rivals", help=about))


def _variants(
    place: DeltaGenerator, screen: Screen, engine: EngineInfo, request: BuildRequest
) -> tuple[Variant, ...]:
    """The variants to build and time in the same run."""
    target = request.target
    try:
        offered = variants.offers(screen.ir, engine.targets, target) if target else ()
    except EngineError:  # not a target, as shown already
        offered = ()
    others = {o.name: o for o in offered if o.added or o.target != target}
    taken = place.pills(
        "Compare variants",
        list(others),
        selection_mode="multi",
        key="keep_ways",
        format_func=lambda n: n.replace("_", " "),
        help="Built, checked and timed in the same run as the chosen target.\n\n"
        + "\n".join(f"- **{n.replace('_', ' ')}**: {variants.VARIANTS[n]}" for n in others),
    )
    picked = [others[n] for n in taken if n in others]
    return variants.variants(request, picked, lambda one: _cut(screen, one))


def _cut(screen: Screen, request: BuildRequest) -> BuildRequest:
    if not screen.training:
        return request
    return request.split_at(screen_cut(replace(screen, pipeline=request.pipeline))[0].marked)


def _remember(run: _Run, result: TimeResult) -> None:
    history: dict[tuple[Any, ...], Timing] = st.session_state.setdefault("history", {})
    history.pop(run.arguments, None)
    document = timings.run_document(result, run.facts)
    history[run.arguments] = Timing(run.title, run.arguments[0], result, document)
    while len(history) > 20:
        history.pop(next(iter(history)))
    st.session_state.timing = None


def _title(screen: Screen) -> str:
    mode, gradient = "training" if screen.training else "inference", screen.source.gradient
    whose = "" if gradient == "tvm" else f", {GRADIENTS[gradient]} gradient"
    return f"{screen.label}, {mode}{whose}"


def _results(screen: Screen, engine: EngineInfo, arguments: tuple[Any, ...]) -> None:
    """The timing of the present choices; else the newest, or one that the user picks, in grey."""
    history: dict[tuple[Any, ...], Timing] = st.session_state.get("history", {})
    if not history:
        st.caption(
            "Run builds the program for the target, compares every output and gradient with "
            "PyTorch, and times it beside PyTorch eager, run by run in turns."
        )
        return
    runs = list(reversed(history))
    shown = arguments if arguments in history else runs[0]
    state = st.session_state
    if "shown_run" not in state or state.get("shown_unpicked") != shown:  # ends a pick
        state.shown_run = state.shown_unpicked = shown
    row = st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="bottom")
    if len(runs) > 1:
        shown = row.selectbox(
            "Run",
            runs,
            key="shown_run",
            format_func=lambda r: _run_name(r[0], history[r].title, history[r].result),
        )
    documents = [past.document for past in history.values()]
    named = f"{len(documents)} runs" if len(documents) > 1 else "This run"
    texts = {
        "html": partial(_page, screen, history),
        "csv": timings.history_csv(documents),
        "json": timings.history_json(documents),
    }
    for kind, text in texts.items():
        download(f"{named} (.{kind})", text, f"timings.{kind}", f"history_{kind}", row)
    past = history[shown]
    other = _otherwise(screen, arguments[0], past) if shown != arguments else ""
    if other:
        st.info(f"**These times are not of the present choices.** {plain_text(other)}")
    with st.container(key="past_result" if other else "result"):
        run = timings.run_sections(past.run, past.title, engine.targets)
        show_sections(run, "run", help=_HELP, wide={"what": "medium"})


def _page(screen: Screen, history: Mapping[Any, Timing]) -> str:
    file = Sheet(f"Times of {screen.label}", {"engine": screen.ir.capitalize()})
    return times_tab(file, [(t.title, t.run) for t in reversed(list(history.values()))]).html()


def _otherwise(screen: Screen, request: BuildRequest, past: Timing) -> str:
    """How a past timing's choices differ from the present ones."""
    if past.title != _title(screen):
        return f"They are of {past.title}. Press Run to time {_title(screen)}."

    def parts(of: BuildRequest) -> dict[str, Any]:
        sizes = of.source.batch, of.source.tokens
        built = {"target": of.target, "threads": of.threads, "repeats": of.repeats}
        return {"sizes": sizes, **built, "passes": str(of.pipeline), "captures": of.captures}

    now = parts(request)
    changed = [name for name, value in parts(past.request).items() if value != now[name]]
    what = " and the ".join(changed) or "inputs or baselines"
    return f"Since they were measured, the {what} changed. Press Run to time again."


def _run_name(request: BuildRequest, title: str, result: TimeResult) -> str:
    source = request.source
    sizes = [f"batch {source.batch}"] if source.batch else []
    sizes += [f"{source.tokens} tokens"] if source.tokens else []
    sizes += [source.dtype, *([f"{len(request.captures)} captures"] if request.split else [])]
    return ", ".join([title, *sizes, f"{result.threads} threads", f"{request.repeats} repeats"])
