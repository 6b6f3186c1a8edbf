"""A session's screen as the query parameters of an address, as far as one can say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_type_hints

from relascope.samples import SAMPLES
from relascope.viz.sessions.state import Session, get, pipeline_text, problems

# A parameter's name, and the field that it says. Only what is not as on a new page is said.
_FIELDS = (
    "ir:ir model:model.name file:model.digest batch:model.batch tokens:model.tokens "
    "inputs:model.inputs pins:model.pins tensors:model.tensors "
    "seed:model.seed dtype:model.dtype mode:model.training "
    "gradient:model.gradient module:model.module call:model.call weights:model.weights "
    "pipeline:pipeline tab:look.tab step:look.step function:look.function node:look.selected "
    "below:look.fewer_than "
    "strategy:cut.strategy budget:cut.budget frontier:cut.frontier prices:cut.prices "
    "save:cut.save recompute:cut.recompute target:build.target "
    "threads:build.threads repeats:build.repeats"
)
_NAMES = dict(pair.split(":") for pair in _FIELDS.split())
_UNSAID = (
    "build.baselines build.variants look.choices look.modules pipelines engines results timings"
)
_MOST, _LONGEST = 1000, 10_000  # parameters of a name, and characters of one
_MODES = ("inference", "training")
Query = dict[str, str | list[str]]


def written(session: Session) -> Query:
    """The parameters that say a session's screen."""
    plain = _new(session)
    query: Query = {}
    for name, path in _NAMES.items():
        value = get(session, path)
        if path == "pipeline":
            value = "" if value == pipeline_text(replace(session, pipeline="")) else value
        if value == get(plain, path):
            continue
        if name == "mode":
            value = _MODES[value]
        query[name] = list(value) if isinstance(value, tuple) else str(value)
    return query


def session_of(
    query: Mapping[str, list[str]], base: Session | None = None
) -> tuple[Session, list[str]]:
    """The session that parameters say, and a few words on each that cannot be read.

    Args:
        base: what is shown where they say nothing; a new page otherwise. Of it counts what an
            address cannot say.
    """
    base, wrong = base or Session(), []
    session = _changed(Session(), {path: get(base, path) for path in _UNSAID.split()})
    paths: dict[str, Any] = {}
    for name, path in _NAMES.items():
        if values := query.get(name):
            try:
                paths[path] = _value(session, path, values)
            except ValueError:
                wrong.append(f"{name}={values[-1][:40]}")
    while bad := [p for p in problems(_changed(session, paths)) if p[0] in paths]:
        wrong += [why for _, why in bad]
        paths = {path: value for path, value in paths.items() if path not in dict(bad)}
    session = _changed(session, paths)
    sizes = ("model.batch", "model.tokens")
    missing = {p: get(_new(session), p) for p in sizes if get(session, p) is None}
    return _changed(session, missing), wrong


def knows(name: str) -> bool:
    """Whether an address says something of a session by a parameter of this name."""
    return name in _NAMES


def _new(session: Session) -> Session:
    """A new page on the same model."""
    model = session.model
    sample = SAMPLES.get(model.name) if not model.digest else None
    sizes = {}
    if sample is not None:
        tokens = sample.default_tokens if sample.has_tokens else None
        sizes = {"model.batch": sample.default_batch, "model.tokens": tokens}
    return _changed(Session(), sizes)


def _changed(session: Session, paths: Mapping[str, Any]) -> Session:
    for path, value in paths.items():
        part, _, name = path.rpartition(".")
        if part:
            session = replace(session, **{part: replace(getattr(session, part), **{name: value})})
        else:
            session = replace(session, **{name: value})
    return session


def _value(session: Session, path: str, values: list[str]) -> Any:
    """A field's value from a parameter's; ValueError where it is none."""
    part, _, name = path.rpartition(".")
    kind = get_type_hints(type(get(session, part) if part else session))[name]
    text = values[-1]
    if len(values) > _MOST or any(len(v) > _LONGEST for v in values):
        raise ValueError
    if kind is bool:
        return bool(_MODES.index(text))
    if kind == tuple[str, ...]:
        return tuple(values)
    if kind is str:
        return text.lower() if path == "ir" else text
    return int(text)
