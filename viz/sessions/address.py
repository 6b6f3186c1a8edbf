"""A session's screen as the query parameters of an address, as far as possible."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_type_hints

from relascope.samples import SAMPLES
from relascope.viz.sessions.state import SETTINGS, Session, faults_of, get, pipeline_text, set_all

_NAMES = {setting.parameter: path for path, setting in SETTINGS.items() if setting.parameter}
_UNSAID = [path for path, setting in SETTINGS.items() if not setting.parameter]
_MOST, _LONGEST = 1000, 10_000  # parameters of one name, and characters of one
_SWITCHES = {
    "model.training": ("inference", "training"),
    "cut.offload": ("off", "on"),
    "cut.per_use": ("off", "on"),
}
Query = dict[str, str | list[str]]


def written(session: Session) -> Query:
    """The parameters of a session's screen, without values that a new page has."""
    plain = _new(session)
    query: Query = {}
    for name, path in _NAMES.items():
        value = get(session, path)
        if path == "pipeline":
            value = "" if value == pipeline_text(replace(session, pipeline="")) else value
        if value == get(plain, path):
            continue
        if path in _SWITCHES:
            value = _SWITCHES[path][value]
        query[name] = list(value) if isinstance(value, tuple) else str(value)
    return query


def session_of(
    query: Mapping[str, list[str]], base: Session | None = None
) -> tuple[Session, list[str]]:
    """The session `base` (a new page) with parameters, and words on each that cannot be read."""
    base, wrong = base or Session(), []
    session = set_all(Session(), {path: get(base, path) for path in _UNSAID})
    paths: dict[str, Any] = {}
    for name, path in _NAMES.items():
        if values := query.get(name):
            try:
                paths[path] = _value(session, path, values)
            except ValueError:
                wrong.append(f"{name}={values[-1][:40]}")
    while bad := [p for p in faults_of(set_all(session, paths)) if p[0] in paths]:
        wrong += [why for _, why in bad]
        paths = {path: value for path, value in paths.items() if path not in dict(bad)}
    session = set_all(session, paths)
    sizes = ("model.batch", "model.tokens")
    missing = {p: get(_new(session), p) for p in sizes if get(session, p) is None}
    return set_all(session, missing), wrong


def knows(name: str) -> bool:
    """Whether a parameter of an address belongs to a session."""
    return name in _NAMES or name == "ir"


def _new(session: Session) -> Session:
    """A new page on the same model."""
    model = session.model
    sample = SAMPLES.get(model.name) if not model.digest else None
    if sample is None:
        return Session()
    tokens = sample.default_tokens
    return set_all(Session(), {"model.batch": sample.default_batch, "model.tokens": tokens})


def _value(session: Session, path: str, values: list[str]) -> Any:
    """A field's value from a parameter's. Raises ValueError if it is invalid."""
    part, _, name = path.rpartition(".")
    kind = get_type_hints(type(get(session, part) if part else session))[name]
    text = values[-1]
    if len(values) > _MOST or any(len(v) > _LONGEST for v in values):
        raise ValueError
    if kind is bool:
        return bool(_SWITCHES[path].index(text))
    if kind == tuple[str, ...]:
        return tuple(values)
    if kind is str:
        return text.lower() if path == "ir" else text
    return int(text)
