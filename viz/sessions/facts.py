"""A session in words and figures, to compare with another."""

import re
from typing import Any

from relascope.engine.protocol.plain import plain
from relascope.viz.rows import formats
from relascope.viz.sessions.state import Session, pipeline_text


def of(session: Session) -> dict[str, Any]:
    """Values in a few words, by names for people; dicts for parts of the session."""
    document, found = plain(session), session.results
    shown = {"model": "model", "cut": "cut", "compile": "build"}
    parts = {name: _words(document[part]) for name, part in shown.items()}
    graphs = _dict(found.get("graphs"))
    steps = found.get("steps")
    steps = steps if isinstance(steps, list) else []
    compared = _dict(found.get("errors")).get("comparisons")
    rows = [r for t in session.timings[-1:] for r in t.result.rows]
    return {
        "IR": session.ir.capitalize(),
        **parts,
        "pipeline": pipeline_text(session),
        "TVM": session.engines.get(session.ir),
        "step": {f"{n} {r.get('pass_name')}": _step(r) for n, r in enumerate(map(_dict, steps), 1)},
        "graph": {_place(at): _graph(_dict(graph)) for at, graph in graphs.items()},
        "captures": _captures(_dict(found.get("cut"))),
        "error of": {str(c.get("name")): str(c.get("max_abs")) for c in map(_dict, compared or [])},
        "time of": {f"{r.what}, {r.phase}": formats.milliseconds(r.median_ms / 1e3) for r in rows},
    }


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _words(part: dict[str, Any]) -> dict[str, str]:
    lists = {n: ", ".join(map(str, v)) if isinstance(v, list) else v for n, v in part.items()}
    return {n: str(v) for n, v in lists.items() if v not in (None, "")}


def _place(index: str) -> str:
    if index == "-1":
        return "imported"
    return f"after step {int(index) + 1}" if re.fullmatch(r"[0-9]{1,5}", index) else index


def _error(facts: dict[str, Any]) -> str:
    return str(_dict(facts.get("error")).get("message") or "")


def _step(facts: dict[str, Any]) -> str:
    counts = [f"{facts.get(name)} {name}" for name in ("nodes", "added", "removed", "changed")]
    return _error(facts) or (", ".join(counts) if facts.get("enabled") else "off")


def _graph(facts: dict[str, Any]) -> str:
    counts = f"{facts.get('nodes')} nodes, {facts.get('edges')} edges"
    return _error(facts) or f"{counts} ({str(facts.get('hash'))[:8]})"


def _captures(facts: dict[str, Any]) -> str | None:
    if not facts:
        return None
    return _error(facts) or f"{len(facts.get('captures') or ())}, {facts.get('bytes')} bytes"
