"""Compares two runs of passes: steps aligned, the first that differs, graphs, times.

A run is the pipeline of a model, session or recording, or an imported model alone. Steps are
aligned by name, in order (Ratcliff and Obershelp's method, by `difflib`). Programs after aligned
steps are the same if their texts are known to be equal, or all nodes match (`viz.compare.match`).
"""

import difflib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import Any

from relascope.core.errors import EngineError
from relascope.core.graph import Graph, Kind
from relascope.core.identity import carry_pairs, flat
from relascope.engine.jobs.step import step
from relascope.engine.protocol.results import StepRecord
from relascope.engine.protocol.session import Ask
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue.recorded import after
from relascope.passes.pipeline import Pipeline
from relascope.viz.compare import changes
from relascope.viz.compare.changes import Row
from relascope.viz.compare.match import Matching, match
from relascope.viz.compare.opened import KERNELS, kernel_name
from relascope.viz.compare.text import equal_ends

SLOWER, LEAST = 1.5, 0.005
"""A pass is slower if it takes `SLOWER` times as long and `LEAST` seconds more."""
_PIECE = 1000  # steps that are aligned at once
_APART = "They start from different programs"
SURE = 0.9  # less certain pairs are counted as unsure
_LOWERED = ("call_lowered", "memory.", "vm.", "builtin.alloc")
"""Prefixes of operators of programs whose memory is planned."""


@dataclass(frozen=True)
class ComparedRun:
    """A run to compare."""

    label: str
    ir: str
    steps: tuple[StepRecord, ...]  # in order, without those that did not run
    graph: Callable[[int], Graph | None]  # after a step by its index, -1 before all
    about: Mapping[str, Any] = field(default_factory=dict)  # facts


def run_of(
    ask: Ask,
    ir: str,
    source: ModelSource,
    pipeline: Pipeline,
    label: str,
    about: Mapping[str, Any] | None = None,
) -> ComparedRun:
    """A program through a pipeline, up to where memory is planned, because graphs after that do
    not show the computation; `about` are facts on a recorded compile. Raises as `ask`."""
    stepped = step(ask, source, pipeline)
    ran = [index for index, record in enumerate(stepped.records) if record.enabled]

    @cache
    def graph(index: int) -> Graph | None:
        try:
            at = ran[index] if index >= 0 else -1
            found: Graph = ask("graph_after", source, *after(stepped.pipeline, at))
        except EngineError as error:
            if error.kind != "graph":
                raise
            return None
        return found

    def or_end(index: int) -> Graph | None:
        if index < len(ran) - 1:
            return graph(index)
        ends = (found for i in range(index, -2, -1) if (found := graph(i)) is not None)
        last = next(ends, None)
        unplanned = (
            g for g in chain([last], ends) if g and not any(n.op.startswith(_LOWERED) for n in g)
        )
        return next(unplanned, last)

    about = about or {"pipeline": str(stepped.pipeline), "training": source.training}
    return ComparedRun(label, ir, tuple(stepped.records[i] for i in ran), or_end, about)


def compare(a: ComparedRun, b: ComparedRun) -> Row:
    """The document of `diff`: how two runs differ, the most important first."""
    rows = step_rows(a, b)
    made: dict[tuple[int, int], tuple[Graph, Graph, Row]] = {}

    def program(i: int, j: int) -> Row | None:
        left, right = a.graph(i), b.graph(j)
        if left is None or right is None:
            return None
        key = id(left), id(right)  # kept alive by `made`
        if key not in made:
            made[key] = left, right, program_document(match(left, right))
        return made[key][2]

    first = _first_difference(a, b, rows, program)
    end = program(len(a.steps) - 1, len(b.steps) - 1)
    code = a.about.get("code"), b.about.get("code")
    other_code = None not in code and code[0] != code[1]
    same = first is None and (end is None or bool(end["same"])) and not other_code
    sides = {"a": _about(a), "b": _about(b)}
    found = {"same": same, "other_code": other_code, "steps": rows}
    document = {**sides, **found, "first_difference": first, "end": end}
    return {"verdict": verdict(document), **document}


def _about(run: ComparedRun) -> Row:
    seconds = sum(s.seconds for s in run.steps) if run.steps else None
    taken = {"steps": len(run.steps), "seconds": seconds}
    return {"label": run.label, "engine": run.ir, **taken, **run.about}


def step_rows(a: ComparedRun, b: ComparedRun) -> list[Row]:
    """Steps beside each other: one row for each pair, or step of one run only."""
    pairs: list[tuple[int | None, int | None]] = []
    i = j = 0
    for to_i, to_j, size in _aligned(
        [s.pass_name for s in a.steps], [s.pass_name for s in b.steps]
    ):
        pairs += [(x, None) for x in range(i, to_i)] + [(None, y) for y in range(j, to_j)]
        i, j = to_i + size, to_j + size
        pairs += zip(range(to_i, i), range(to_j, j), strict=True)
    return [_step_row(a, b, *pair) for pair in pairs]


def _aligned(was: list[str], now: list[str]) -> Iterator[tuple[int, int, int]]:
    """Stretches of equal names: where each begins in both lists, and its length. What differs is
    aligned `_PIECE` names at a time, because the matcher's time grows with their square."""
    head, tail = equal_ends(was, now)
    yield 0, 0, head
    i, j, ends = head, head, (len(was) - tail, len(now) - tail)
    while i < ends[0] and j < ends[1]:
        to = min(ends[0], i + _PIECE), min(ends[1], j + _PIECE)
        matcher = difflib.SequenceMatcher(None, was[i : to[0]], now[j : to[1]], autojunk=False)
        found = [(i + x, j + y, size) for x, y, size in matcher.get_matching_blocks() if size]
        yield from found
        i, j = (found[-1][0] + found[-1][2], found[-1][1] + found[-1][2]) if found else to
    yield *ends, tail


def _step_row(a: ComparedRun, b: ComparedRun, i: int | None, j: int | None) -> Row:
    steps = {side: run.steps[at] for side, run, at in (("a", a, i), ("b", b, j)) if at is not None}
    times = {side: s.seconds for side, s in steps.items()}
    failures = {side: s.error.message for side, s in steps.items() if s.error}
    slower = None
    if len(times) == 2 and not failures:
        less, more = sorted(times, key=times.__getitem__)
        much = times[more] > SLOWER * times[less] and times[more] - times[less] > LEAST
        slower = more if much else None
    return {
        "pass": next(iter(steps.values())).pass_name,
        "a": i,
        "b": j,
        "only": None if len(steps) == 2 else next(iter(steps)),
        **{f"{side}_seconds": times.get(side) for side in "ab"},
        "slower": slower,
        **{f"{side}_failure": failures.get(side) for side in "ab"},
    }


def _first_difference(
    a: ComparedRun, b: ComparedRun, rows: list[Row], program: Callable[[int, int], Row | None]
) -> Row | None:
    """The first step after which the programs differ, and the differences."""
    begun = program(-1, -1)
    if begun is not None and not begun["same"]:
        return {"pass": None, "a": -1, "b": -1, "why": f"{_APART}.", **begun}
    texts: Row | None = None
    at = {"a": -1, "b": -1}
    for row in rows:
        at |= {side: row[side] for side in ("a", "b") if row[side] is not None}
        about, only = {"pass": row["pass"], **at}, row["only"]
        why = f"Only {only.upper()} has it." if only else "The programs differ."
        if only and {"a": a, "b": b}[only].steps[row[only]].idle:
            continue
        failures = {s: row[f"{s}_failure"] for s in ("a", "b") if row[f"{s}_failure"]}
        if not only and len(failures) == 1:
            ((side, message),) = failures.items()
            return {**about, "why": f"It fails in {side.upper()}: {message}"}
        states = [run.steps[i].state if i >= 0 else "" for run, i in ((a, at["a"]), (b, at["b"]))]
        same = states[0] == states[1] if all(states) else None  # None if unknown
        if same:
            continue
        here = program(at["a"], at["b"])
        if here is not None and not here["same"]:
            return {**about, "why": why, **here}
        if same is not None or (here is None and only):
            # All texts of two TVMs may differ, so a graph that differs is better evidence.
            why = why if only else "The texts differ, but the graphs are the same."
            texts = texts or {**about, "why": why, **(here or {})}
    return texts


def program_document(matching: Matching) -> Row:
    """Two graphs beside each other: nodes by kind, operators, kernels, bytes, FLOPs."""
    left, right, pairs = matching.left, matching.right, matching.pairs
    changed, was, now = len(matching.changed), kernels(left), kernels(right)
    return {
        "same": matching.same,
        "counts": {
            "same": len(pairs) - changed,
            "changed": changed,
            "added": len(matching.added),
            "removed": len(matching.removed),
            "unsure": sum(p.sure < SURE for p in pairs),
        },
        "same_results": matching.results,
        "rules": dict(Counter(p.rule.value for p in pairs)),
        "nodes": node_rows(matching),
        "operators": [r for r in changes.operator_rows(left, right) if r["before"] != r["after"]],
        "kernels": [
            {"kernel": k, "a": was[k], "b": now[k]} for k in {**was, **now} if was[k] != now[k]
        ],
        "figures": {
            side: {**changes.figures(graph), "kernels": sum(counts.values())}
            for side, graph, counts in (("a", left, was), ("b", right, now))
        },
    }


def outer_nodes(graph: Graph) -> dict[str, str]:
    """For each node in a fused function, the node that is drawn for it."""
    bodies = ((n.id, n.body) for n in graph if n.body is not None)
    return {inner.id: ident for ident, body in bodies for inner in flat(body)}


def coloured_side(matching: Matching, side: int) -> Row:
    """Arguments of a `View` that colour the differences in the left graph (0) or the right (1)."""
    outer = outer_nodes(matching.right if side else matching.left)
    style: dict[str, str] = {}
    pairs = [(p.right if side else p.left, p) for p in matching.pairs]
    changed = [(ident, "changed") for ident, p in pairs if not p.same]
    what, only = ("added", matching.added) if side else ("removed", matching.removed)
    for ident, name in (*changed, *((i, what) for i in only)):
        if ident in outer:
            style.setdefault(outer[ident], "changed")
        else:
            style[ident] = name
    unsure = ((ident, p) for ident, p in pairs if not p.same or p.sure < SURE)
    return {
        "highlight": style,
        "notes": {i: f"{p.rule.value}, {100 * p.sure:.0f} % sure" for i, p in unsure},
        "shines_through": ("changed", "removed", "added", "aligned"),
        "colours": "What differs",
    }


def node_rows(matching: Matching) -> list[Row]:
    """One row for each node that only one graph has, or that differs."""
    left, right = ({n.id: n for n in flat(g)} for g in (matching.left, matching.right))
    texts = _texts(matching)
    rows: list[Row] = [
        {
            "what": "changed",
            "a": p.left,
            "b": p.right,
            "op": left[p.left].title,
            "scope": left[p.left].scope or right[p.right].scope,
            "rule": p.rule.value,
            "sure": p.sure,
            "text": texts.get(p.left, ""),
        }
        for p in matching.changed
    ]
    for what, ids, nodes, side in (
        ("removed", matching.removed, left, "a"),
        ("added", matching.added, right, "b"),
    ):
        for ident in ids:
            node, at = nodes[ident], {"a": None, "b": None, side: ident}
            about = {"op": node.title, "scope": node.scope, "rule": None, "sure": None}
            rows.append({"what": what, **at, **about, "text": texts.get(ident, "")})
    return rows


def _texts(matching: Matching) -> dict[str, str]:
    """What became of each node that differs, in words, if both graphs are of one IR."""
    if matching.left.ir != matching.right.ir:
        return {}
    matched = carry_pairs(matching.left, matching.right, {p.right: p.left for p in matching.pairs})
    own = {new: old for old, new in matched.renamed.items()}
    texts = {str(r["id"]): str(r["text"]) for r in changes.change_rows(matching.left, matched)}
    return {own.get(i, i) if i in matched.added else i: text for i, text in texts.items()}


def kernels(graph: Graph) -> Counter[str]:
    """The numbers of fused groups and of calls of a program's own kernels, by name."""
    found: Counter[str] = Counter()
    for node in graph:
        if node.body is not None:
            found[node.op] += 1
        elif node.kind is Kind.CALL and node.attrs.get("call") in KERNELS:
            found[kernel_name(node)] += 1
    return found


def verdict(document: Row) -> str:
    """The most important differences, in a sentence."""
    end, first = document["end"], document["first_difference"]
    if document["same"]:
        slower = [r["pass"] for r in document["steps"] if r["slower"] == "b"]
        more = f", but {', '.join(slower)} took longer in B, run once each" if slower else ""
        return f"They are the same{more}."
    said = []
    if first is not None:
        name = first["pass"]
        said.append(_APART if name is None else f"They diverge at {name}")
    if end is not None:
        counts = end["counts"]
        words = [f"{counts[k]} {k}" for k in ("changed", "added", "removed") if counts[k]]
        of = f"{counts['same']} nodes the same"
        said.append(f"at the end {', '.join([of, *words])}")
        if end["same"]:
            said[-1] = "at the end their graphs are the same"
        was, now = (end["figures"][side]["kernels"] for side in ("a", "b"))
        if was != now:
            said.append(f"{was} kernels in A, {now} in B")
    if document["other_code"]:
        said.append("the generated code differs")
    text = "; ".join(said) or "They differ"
    return f"{text[0].upper()}{text[1:]}."
