"""The results of a session's screen: graphs, steps, captures and errors, as plain values.

The page saves the answers of its engine; a replay requests the same again, and compares.
"""

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from relascope.core.errors import EngineError, refusing
from relascope.engine.jobs import accuracy, bisect
from relascope.engine.jobs.accuracy import LIMITS, Tolerance
from relascope.engine.jobs.cut import joint_of
from relascope.engine.jobs.step import Stepped, step
from relascope.engine.protocol.accuracy import Comparison
from relascope.engine.protocol.plain import plain
from relascope.engine.protocol.profile import Profile
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.session import Ask
from relascope.engine.protocol.source import ModelSource, own_inputs
from relascope.passes.catalogue import default_pipeline, read_pipeline
from relascope.passes.cost import MeasuredKernels
from relascope.passes.cuts import cut as cuts
from relascope.passes.pipeline import Pipeline
from relascope.samples import SAMPLES
from relascope.viz.rows import tables
from relascope.viz.rows.sections import Section, sentence, table
from relascope.viz.sessions import state

Results = dict[str, Any]
_CLOSE = 0.01  # relative difference of two errors over their limit
_SKIPPED = ("where", "hint", "target", "measured", "median_ms", "share", "verdict", "kept_bytes")
_TITLES = {"accuracy": "Accuracy report", "bisection": "Bisection", "profile": "Kernels"}
_OF_TRIES = ("outcome", "worst", "max_abs", "max_rel", "limit")
_NUMBERS = ("max_abs", "max_rel", "scale", "spread", "limit", "worst", "dtype")


def part(make: Callable[[], Any]) -> Any:
    """The result of `make`, or its error as a finding; raises if the call was cancelled."""
    try:
        return make()
    except EngineError as error:
        return {"error": error.as_finding().to_json()}


def step_facts(ask: Ask, source: ModelSource, pipeline: Pipeline) -> tuple[Any, Pipeline]:
    """The records of a pipeline's steps, without times and output, or an error in their place; and
    the pipeline without steps that end the engine's process. Raises as `part`."""
    stepped = part(partial(step, ask, source, pipeline))
    if not isinstance(stepped, Stepped):
        return stepped, pipeline
    records = plain(stepped.records)
    for record in records:
        del record["seconds"], record["printed"]
    return records, stepped.pipeline


def cut_facts(cut: cuts.Cut) -> Results:
    """A cut: its captures, and the measured times behind it, if any."""
    return {
        "captures": list(cut.marked),
        "masks": [m.id for m in cut.masks],
        "bytes": cut.bytes,
        "recomputed": len(cut.recomputed),
        "measured": plain(cut.joint.measured),
        **({"copied": cut.joint.copied} if cut.offloaded else {}),
    }


def error_facts(target: str, comparisons: tuple[Comparison, ...]) -> Results:
    return {"target": target, "comparisons": plain(comparisons)}


def stages_of(
    ir: str, source: ModelSource, pipeline: Pipeline, kinds: tuple[str, ...]
) -> tuple[accuracy.Stage, ...]:
    """The accuracy report's stages: the source's mode; the other with its default pipeline."""
    sample = SAMPLES.get(source.model)
    trains = source.training or sample is None or sample.training
    inference, training = pipeline, default_pipeline(ir, True) if trains else None
    if source.training:
        inference, training = default_pipeline(ir, False), pipeline
    return accuracy.with_inputs(accuracy.plan(ir, source, inference, training), kinds)


def saved_accuracy(
    target: str, kinds: Iterable[str], rows: Iterable[accuracy.AccuracyRow]
) -> state.Accuracy:
    found = (state.SavedFinding(**tables.finding(plain(row))) for row in rows)
    return state.Accuracy(target, tuple(kinds), tuple(found))


def saved_search(ir: str, result: bisect.Bisection) -> state.SavedSearch:
    asked, tolerance = result.question, result.question.tolerance
    rows = tuple(
        state.SavedFinding(
            pipeline=str(one.pipeline),
            dtype=asked.source.dtype,
            failure=one.error.message if one.error else "",
            **{n: getattr(one, n) for n in _OF_TRIES},
        )
        for one in result.log
    )
    names = ["import", *(s.name for s in asked.pipeline)]
    suspects = tuple(names[i + 1] for i in result.culprits.suspects)
    wish = asked.target, asked.kind, asked.factor, tolerance.relative, tolerance.absolute
    return state.SavedSearch(*wish, result.kind, suspects, bisect.verdict(ir, result), rows)


def saved_kernels(request: BuildRequest, profile: Profile) -> state.Kernels:
    rows = (
        state.KernelTime(k.name, k.phase, k.median_ms, 100 * k.share, k.nodes)
        for k in profile.kernels
    )
    return state.Kernels(request.target, request.captures, tuple(rows))


def result_sections(name: str, value: Results) -> list[Section]:
    """The sections of a button's saved result, by its name in `RESULTS`."""
    if "error" in value:
        return [sentence(str(value["error"].get("message")), True)]
    found = plain(state.read(state.RESULTS[name], value, name))
    rows, columns = found["rows"], tables.OUTCOMES
    if name == "profile":
        rows = [{**r, "share": r["share"] / 100} for r in rows]
        columns = "kernel; phase; median: median_ms; share; computes: nodes"
    said = [sentence(found["verdict"])] if found.get("verdict") else []
    return [*said, table(f"{_TITLES[name]}, target {found['target']}", rows, columns)]


def cut_with(joint: cuts.Joint, chosen: state.CutChoice) -> cuts.Cut:
    """The cut that a session chose. Raises EngineError of kind "usage" if there is none."""
    forced = (chosen.save, chosen.recompute) if chosen.rule.adapts else ((), ())
    hint = "Choose another strategy or budget, or undo what is forced by hand."
    with refusing("usage", "The graph cannot be cut this way: {}.", chosen.rule.title, hint):
        return cuts.cut(joint, chosen.strategy, chosen.limit, *forced, *chosen.how)


def again(ask: Ask, session: state.Session, path: str) -> Results:
    """All results of a session, computed again; `path` is its model's file. Raises EngineError if
    the call was cancelled, or inputs cannot be read."""
    source = session.model.source(path)
    pipeline = read_pipeline(session.ir, state.pipeline_text(session))
    alive, now = pipeline, Results()
    then = session.results or {"steps": [], "graphs": {"-1": {}, str(len(pipeline) - 1): {}}}
    kept, indices, target = _noted(then)
    if "steps" in then:
        now["steps"], alive = step_facts(ask, source, pipeline)
    if indices:
        now["graphs"] = {i: part(partial(graph_of, ask, source, alive, int(i))) for i in indices}

    def cut() -> cuts.Cut:
        return cut_with(joint_of(ask, source, pipeline, *kept), session.cut)

    def here(name: str) -> str:
        engine = ask("describe")
        return name if name in [t.name for t in engine.targets if t.runs_here] else engine.best

    def request(name: str) -> BuildRequest:
        about = here(name), session.build.threads, session.build.repeats
        built = BuildRequest(source, pipeline, *about)
        return built.split_at(cut().marked) if source.training else built

    def errors() -> Results:
        return error_facts(here(target), ask("check", request(target)))

    def report(one: state.Accuracy) -> state.Accuracy:
        name, kinds = here(one.target), one.inputs or own_inputs(source)
        stages, others = stages_of(session.ir, source, pipeline, kinds), kinds == own_inputs(source)
        stages, _ = accuracy.of_program(ask, stages, name, source.training, others)
        tried = accuracy.each(stages, lambda stage: accuracy.run(ask, stage, name))
        return saved_accuracy(name, kinds, [row for _, found in tried for row in found])

    def search(one: state.SavedSearch) -> state.SavedSearch:
        tolerance = Tolerance(one.relative, one.absolute)
        asked = bisect.Question(source, pipeline, here(one.target), one.asked, tolerance=tolerance)
        return saved_search(session.ir, bisect.bisect(ask, session.ir, asked))

    def profile(one: state.Kernels) -> state.Kernels:
        return saved_kernels(built := request(one.target), ask("profile", built))

    anew: dict[str, Callable[[Any], Any]]
    anew = {"accuracy": report, "bisection": search, "profile": profile}
    if "cut" in then:
        now["cut"] = part(lambda: cut_facts(cut()))
    if "errors" in then:
        now["errors"] = part(errors)
    for name, kind in state.RESULTS.items():
        if name in then and then[name].get("asked") != "slow":  # which depends on times only
            now[name] = plain(part(partial(anew[name], state.read(kind, then[name], name))))
    return now


def _noted(
    then: Results,
) -> tuple[tuple[MeasuredKernels | None, float | None], tuple[str, ...], str]:
    """The times of kernels and the rate of copies, the graphs' indices, and the target of old
    results. Raises EngineError if they are malformed."""
    with refusing("session", "The session's results cannot be read: {}."):
        parts = {
            n: state.read(dict[str, Any], then.get(n) or {}, n) for n in ("graphs", "cut", "errors")
        }
        indices = tuple(parts["graphs"])
        if strange := [i for i in indices if not re.fullmatch(r"-1|\d{1,5}", i)]:
            raise ValueError(f"there is no step {strange[0][:40]!r}")
        kernels = tuple[tuple[tuple[str, ...], float], ...] | None
        times = state.read(kernels, parts["cut"].get("measured"), "what kernels took")
        rate = state.read(float | None, parts["cut"].get("copied"), "the rate of copies")
        if rate is not None and not rate > 0:
            raise ValueError(f"copies cannot move {rate} bytes a second")
        target = state.read(str, parts["errors"].get("target", ""), "the target")
        return (times, rate), indices, target


def graph_of(ask: Ask, source: ModelSource, pipeline: Pipeline, index: int) -> Results:
    """The graph after a step, -1 for the imported one: counts, and a hash of its content."""
    if index >= len(pipeline):
        raise EngineError("session", f"The pipeline has no step {index + 1}.")
    after = "graph_after", source, pipeline.upto(index), index
    graph = ask("load", source).graph if index < 0 else ask(*after)
    text = json.dumps(graph.to_json(), sort_keys=True, ensure_ascii=False)
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return {"nodes": len(graph), "edges": graph.edge_count, "hash": digest}


def changes_of(then: Any, now: Any, where: str = "") -> Iterator[Results]:
    """{"where", "then", "now"} for each value that differs now. Errors of tensors count as equal if
    both are within the limit of their precision, or differ by at most a hundredth, because
    processors round differently. The place of an error in words may differ."""
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        measured: tuple[str, ...] = _SKIPPED
        if "max_abs" in then and "max_abs" in now and then.get("name") == now.get("name"):
            if not _as_wrong(then, now):
                of = f"{where} {then.get('name', '')}".rstrip()
                yield {"where": of, "then": _error(then), "now": _error(now)}
            measured += _NUMBERS
        for name in (n for n in dict.fromkeys((*then, *now)) if n not in measured):
            yield from changes_of(then.get(name), now.get(name), f"{where} {name}".strip())
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for at, (one, other) in enumerate(zip(then, now, strict=True), 1):
            yield from changes_of(one, other, f"{where} {at}")
    elif then != now:
        yield {"where": where, "then": then, "now": now}


def _as_wrong(then: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    limit = LIMITS.get(str(then.get("dtype")), LIMITS["float32"]).of(str(then.get("name")))
    one, other = (float(c.get("max_rel") or 0.0) for c in (then, now))
    if then.get("dtype") != now.get("dtype"):
        return False
    within = [one <= limit, other <= limit]
    if "outcome" in then:  # a row with a limit of its own
        within = [c.get("outcome") in ("right", "good") for c in (then, now)]
    if all(within):
        return True
    nan = math.isnan(one), math.isnan(other)
    return not any(within) and (all(nan) or math.isclose(one, other, rel_tol=_CLOSE))


def _error(comparison: Mapping[str, Any]) -> Results:
    return {name: comparison.get(name) for name in ("max_abs", "max_rel", "dtype")}
