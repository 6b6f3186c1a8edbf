"""What panels and the command line say about a result: the same rows for both.

Each function takes an engine's plain result and returns JSON values with the field names that the
command line promises. The page draws tables of them, `cli.py` prints them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from relascope.core.graph import Graph, Kind, Role
from relascope.engine.jobs import accuracy as truth
from relascope.engine.jobs import bisect as bisection
from relascope.engine.jobs import node_accuracy as nodewise
from relascope.engine.jobs.bisect import Bisection, Try
from relascope.engine.jobs.node_accuracy import Inside
from relascope.engine.protocol.accuracy import Comparison
from relascope.engine.protocol.plain import plain
from relascope.engine.protocol.results import ModelInfo, PassExample, StepRecord
from relascope.engine.protocol.times import Rivals, TimeResult
from relascope.passes.catalogue import CATALOGUE, PassInfo
from relascope.passes.cuts.cut import STRATEGIES, Capture, Cut, Joint, cut
from relascope.passes.cuts.depth import depth
from relascope.passes.cuts.frontier import Point, frontier
from relascope.passes.pipeline import Pipeline
from relascope.passes.search.bisect import IMPORT
from relascope.samples import Sample
from relascope.viz.compare.align import Alignment

Row = dict[str, Any]


def facts(graph: Graph) -> Row:
    """Counts of a graph: nodes, edges, operators with their counts, bytes of its parameters."""
    held = [n.bytes or 0 for n in graph if n.kind is Kind.PARAMETER]
    return {
        "nodes": len(graph),
        "edges": graph.edge_count,
        "operators": graph.operators,
        "parameter_bytes": sum(held),
    }


def model_rows(samples: Iterable[Sample], engines: Sequence[str]) -> list[Row]:
    """One row a sample, as `models` prints them."""
    return [
        {
            "name": s.name,
            "title": s.title,
            "summary": s.summary,
            "parameters": s.parameters,
            "training": s.training,
            "engines": list(engines),
            "inputs": list(s.inputs),
            "batch": s.default_batch,
            "tokens": s.default_tokens,
        }
        for s in samples
    ]


def model_document(
    info: ModelInfo, ir: str, graph: Graph | None = None, pipeline: Pipeline | None = None
) -> Row:
    """The document of `graph MODEL`.

    Args:
        graph: the graph after `pipeline`; None for the imported one.
    """
    graph = graph or info.graph
    return {
        "model": info.source.model,
        "engine": ir,
        "parameters": info.parameters,
        "arguments": argument_rows(info),
        "pipeline": str(pipeline or ""),
        **facts(graph),
        "seconds": info.seconds,
        "notes": list(info.notes),
        "graph": graph.to_json(),
    }


def argument_rows(info: ModelInfo) -> list[Row]:
    """One row an argument of the program: inputs first, then parameters."""
    return [
        {
            "name": name,
            "shape": list(kind.shape),
            "dtype": kind.dtype,
            "bytes": kind.bytes,
            "input": index < info.input_count,
        }
        for index, (name, kind) in enumerate(info.arguments)
    ]


def pass_rows(ir: str) -> list[Row]:
    """Every pass of one IR, as `passes` prints them."""
    return [pass_row(p) for p in CATALOGUE.values() if p.ir == ir]


def pass_row(entry: PassInfo) -> Row:
    """One pass, as `passes` and `passes NAME` print it."""
    return {
        "name": entry.name,
        "title": entry.title,
        "summary": entry.summary,
        "origin": entry.origin,
        "required": entry.required,
        "looking": entry.looking,
        "needs": list(entry.needs),
        "excludes": list(entry.excludes),
        "before": entry.before,
        "after": entry.after,
        "parameters": [
            {
                "name": q.name,
                "kind": q.kind,
                "default": q.default,
                "choices": list(q.choices),
                "unit": q.unit,
                "about": q.about,
            }
            for q in entry.parameters
        ],
    }


def example_document(example: PassExample | None) -> Row | None:
    """What a pass does to its small program, as `passes NAME` prints it; None where it has none."""
    return None if example is None else dict(plain(example))


def step_rows(records: Sequence[StepRecord], errors: Mapping[int, Row] | None = None) -> list[Row]:
    """One row a step of a pipeline, as `step MODEL` prints them.

    Args:
        records: what the engine's `step` returned.
        errors: by step, the numeric error against PyTorch after it, where it was measured.
    """
    return [
        {
            "pass": r.pass_name,
            "enabled": r.enabled,
            "changed": r.changed,
            "added": r.added,
            "removed": r.removed,
            "nodes": r.nodes,
            "seconds": r.seconds,
            "error": (errors or {}).get(i),
            "failure": None if r.error is None else r.error.to_json(),
            "operators": r.operators,
        }
        for i, r in enumerate(records)
    ]


def cut_document(cut: Cut) -> Row:
    """The part of `captures MODEL` that tells of one cut: what is saved, why, and for whom.

    Masks are inputs, so they are listed apart, and `bytes` leaves them out. FLOPs and seconds are
    estimates (`passes.cost`); the seconds are good for their ratio only, unless `prices` says that
    they were measured. `held` has how many nodes forward and backward execute, and the bytes held
    between them wherever they change.
    """
    by_id = cut.joint.graph.by_id

    def row(capture: Capture) -> Row:
        return {**plain(capture), "reader_labels": [by_id[r].title for r in capture.readers]}

    return {
        "strategy": cut.strategy,
        "bytes": cut.bytes,
        "captures": [row(c) for c in cut.captures],
        "masks": [row(m) for m in cut.masks],
        "mask_bytes": cut.mask_bytes,
        "budget": cut.budget,
        "by_hand": {"save": sorted(cut.wish.save), "recompute": sorted(cut.wish.recompute)},
        "extra_bytes": cut.extra_bytes,
        "recomputed": list(cut.recomputed),
        "recomputed_flops": cut.recomputed_flops,
        "forward_flops": cut.forward_flops,
        "recomputed_seconds": cut.recomputed_seconds,
        "forward_seconds": cut.forward_seconds,
        "share": cut.share,
        "prices": "estimated" if cut.joint.measured is None else "measured",
        "spared": [plain(s) for s in cut.spared],
        "held": plain(depth(cut.joint, cut.ids, cut.recomputed)),
    }


def rivals_document(rivals: Rivals) -> Row:
    """What PyTorch keeps for the backward of the same module, and why a figure is missing."""
    return {
        "pytorch_eager_bytes": rivals.eager_bytes,
        "pytorch_min_cut_bytes": rivals.min_cut_bytes,
        "note": rivals.note,
    }


def frontier_document(joint: Joint) -> Row:
    """Bytes against work: the cuts on the frontier, the fewest bytes first, and the strategies.

    `share` is the estimated time of what is computed again, of the forward's.
    """
    cuts = {name: cut(joint, name) for name, s in STRATEGIES.items() if not s.has_budget}
    return {
        "frontier": frontier_rows(joint, tuple(reversed(frontier(joint)))),
        "strategies": [
            {"strategy": n, "bytes": c.bytes, "share": c.share, "captures": len(c.ids)}
            for n, c in cuts.items()
        ],
    }


def frontier_rows(joint: Joint, points: Iterable[Point]) -> list[Row]:
    """One row a cut of the frontier; `share` is as of `frontier_document`."""
    own = (i for i in joint.forward if i not in joint.free)
    whole = sum(joint.work.seconds[i] for i in own)
    return [
        {"bytes": p.bytes, "share": p.seconds / whole if whole else 0.0, "captures": len(p.saved)}
        for p in points
    ]


def alignment_document(alignment: Alignment) -> Row:
    """What each PyTorch operator became in two IRs, as `compare MODEL` prints it.

    `groups` has one row a module and PyTorch operator, `operators` one a PyTorch operator, `calls`
    one an operator of TVM's, and `unmatched` each side's nodes that name no origin. Sides go by
    their IR; `only` names the one that has what a row tells of, and is None where both do.
    """
    left, right = (g.ir for g in alignment.graphs)
    groups: list[Row] = [
        {
            "scope": g.scope,
            "source": g.source,
            left: g.operators[0],
            right: g.operators[1],
            "occurrences": dict(zip((left, right), g.occurrences, strict=True)),
            "paired": g.paired,
            "only": None if all(g.nodes) else left if g.nodes[0] else right,
        }
        for g in alignment.groups
    ]
    calls = [g.operators for g in alignment.graphs]
    names = sorted({*calls[0], *calls[1]}, key=lambda op: (-sum(c.get(op, 0) for c in calls), op))
    return {
        "operators": _by_operator(groups, left, right),
        "groups": groups,
        "calls": [
            {
                "operator": op,
                left: calls[0].get(op, 0),
                right: calls[1].get(op, 0),
                "only": left if op not in calls[1] else right if op not in calls[0] else None,
            }
            for op in names
        ],
        "unmatched": {
            g.ir: [
                {"id": i, "operator": g.by_id[i].title, "scope": g.by_id[i].scope}
                for i in alignment.without_origin(side)
            ]
            for side, g in enumerate(alignment.graphs)
        },
    }


def _by_operator(groups: Iterable[Row], left: str, right: str) -> list[Row]:
    """Groups of all modules together, one row a PyTorch operator."""
    rows: dict[str, Row] = {}
    for group in groups:
        new: Row = {"source": group["source"], "modules": 0, left: {}, right: {}, "only": None}
        row = rows.setdefault(group["source"], new)
        row["modules"] += 1
        for side in (left, right):
            for op, count in group[side].items():
                row[side][op] = row[side].get(op, 0) + count
    for row in rows.values():
        if not (row[left] and row[right]):
            row["only"] = left if row[left] else right
    return list(rows.values())


def counts_text(counts: Mapping[str, int]) -> str:
    """Operators, and how often each is called if more than once: `nn.dense, reshape ×3`."""
    return ", ".join(f"{op} ×{n}" if n > 1 else op for op, n in counts.items()) or "nothing"


def gradient_row(gradient: str, known: Joint, errors: Iterable[Comparison] | None = None) -> Row:
    """What `gradients MODEL` says of one way to the gradient.

    Args:
        gradient: whose, a key of `passes.catalogue.GRADIENTS`.
        known: the joint graph at the end of its pipeline, with roles.
        errors: the program's comparison with PyTorch, where it was made.
    """
    joint = known.graph
    cuts = {name: cut(known, name) for name in STRATEGIES}
    backward = sum(n.role is Role.BACKWARD for n in joint)
    forward = sum(n.role in (Role.FORWARD, Role.CAPTURED) for n in joint)
    return {
        "gradient": gradient,
        "nodes": len(joint),
        "forward_nodes": forward,
        "backward_nodes": backward,
        "operators": joint.operators,
        "strategies": [
            {"strategy": name, "captures": len(c.captures), "bytes": c.bytes}
            for name, c in cuts.items()
        ],
        "error": worst_gradient(errors or ()),
    }


def gradients_beside(rows: Sequence[Row]) -> list[Row]:
    """The same with a column for each way, and a line for each figure, as people compare them."""
    lines: list[Row] = [
        {"": text, **{r["gradient"]: number(r[key]) for r in rows}}
        for key, text in (
            ("nodes", "nodes"),
            ("forward_nodes", "of the forward"),
            ("backward_nodes", "of the backward"),
        )
    ]
    for index, strategy in enumerate(s["strategy"] for s in rows[0]["strategies"]):
        kept = {r["gradient"]: r["strategies"][index] for r in rows}
        said = {n: f"{k['captures']}, {size(k['bytes'])}" for n, k in kept.items()}
        lines.append({"": f"captures by {strategy}", **said})
    if any(r["error"] for r in rows):
        errors = {r["gradient"]: r["error"] for r in rows}
        said = {n: f"{e['max_rel']:.1e}" if e else "not compared" for n, e in errors.items()}
        lines.append({"": "largest error of a gradient", **said})
    return lines


def operators_beside(rows: Sequence[Row]) -> list[Row]:
    """How often each operator stands in the joint graph of each way."""
    names = sorted({o for r in rows for o in r["operators"]})
    return [
        {"operator": o, **{r["gradient"]: r["operators"].get(o, 0) for r in rows}} for o in names
    ]


def work_text(part: float, whole: float) -> str:
    """A share of work as people read it: `none`, `less than 0.1 %`, `4.2 %`."""
    share = 100 * part / whole if whole else 0.0
    if share < 0.1:
        return "less than 0.1 %" if part else "none"
    return f"{share:.1f} %"


def worst(comparisons: Iterable[Comparison]) -> Row | None:
    """The largest errors of a comparison with PyTorch, or None where nothing was compared."""
    found = list(comparisons)
    if not found:
        return None
    worst = max(found, key=lambda c: c.max_rel)
    return {
        "max_abs": plain(max(c.max_abs for c in found)),
        "max_rel": plain(worst.max_rel),
        "dtype": worst.dtype,
        "worst": worst.name,
        **plain(worst.spread),
    }


def worst_gradient(comparisons: Iterable[Comparison]) -> Row | None:
    """The largest errors among the gradients of a comparison with PyTorch."""
    return worst(c for c in comparisons if c.name.startswith("gradient of "))


def comparison_rows(comparisons: Iterable[Comparison]) -> list[Row]:
    """One row a compared tensor."""
    return [plain(c) for c in comparisons]


def node_error_rows(inside: Inside) -> list[Row]:
    """One row a node with a counterpart in PyTorch, the farthest over its limit first.

    `ratio` is its error over its limit.
    """
    by_id = inside.graph.by_id
    rows = [
        {
            "id": e.id,
            "op": by_id[e.id].title,
            "scope": by_id[e.id].scope,
            "max_abs": plain(e.max_abs),
            "max_rel": plain(e.max_rel),
            **plain(e.spread),
            "ratio": plain(inside.ratio(e.id)),
            "counterpart": e.counterpart,
        }
        for e in inside.errors.values()
    ]
    return sorted(rows, key=lambda r: -float(r["ratio"]))


def inside_document(found: Sequence[Inside]) -> Row:
    """What `step --inside` says of a step: a comparison a precision, and the verdict of both."""
    return {
        "compared": [
            {
                "dtype": one.dtype,
                "over": list(one.over),
                "first_bad": plain(one.first),
                "without_counterpart": list(one.without),
                "nodes": node_error_rows(one),
            }
            for one in found
        ],
        "verdict": nodewise.verdict(*found),
    }


def error_text(inside: Inside, ident: str) -> str:
    """A node's error in a line, as it is told where the node is pointed at."""
    error, ratio = inside.errors[ident], inside.ratio(ident) or 0.0
    wrong = [
        f"{count} {what}"
        for count, what in ((error.spread.nans, "NaN"), (error.spread.infinities, "Inf"))
        if count
    ]
    numbers = f"error {error.max_abs:.1e}, {error.max_rel:.1e} of the scale, {ratio:.2g} of limit"
    return "; ".join([numbers, *wrong, f"held against {error.counterpart}"])


def truth_rows(rows: Iterable[truth.Row]) -> list[Row]:
    """One row a stage of the truth table, as `check` prints them."""
    return [plain(r) for r in rows]


def truth_document(model: str, ir: str, target: str, rows: Sequence[truth.Row]) -> Row:
    """The document of `check MODEL`."""
    return {
        "model": model,
        "engine": ir,
        "target": target,
        "stages": truth_rows(rows),
        "passed": bool(rows) and all(r.passed for r in rows),
        "verdict": truth.verdict(rows),
    }


def bisect_document(ir: str, result: Bisection) -> Row:
    """What `bisect MODEL` prints: the culprit, what it does, and every try on the way."""
    question = result.question
    suspects = [_step_at(question.pipeline, i) for i in result.found.suspects]
    return {
        "model": question.source.model,
        "engine": ir,
        "target": question.target,
        "pipeline": str(question.pipeline),
        "culprit": suspects[0] if len(suspects) == 1 else None,
        "suspects": suspects,
        "kind": result.kind or None,
        "compiles": result.compiles,
        "log": [try_row(question.pipeline, t) for t in result.log],
        "float64": None if result.double is None else truth_rows([result.double])[0],
        "verdict": bisection.verdict(ir, result),
    }


def try_row(pipeline: Pipeline, one: Try) -> Row:
    """One try of a bisection; `last` is as of a suspect.

    Args:
        pipeline: the whole that is searched.
    """
    return {**plain(one), "pipeline": str(one.pipeline), "last": _step_at(pipeline, one.last)}


def _step_at(pipeline: Pipeline, index: int) -> Row:
    name = "import" if index == IMPORT else pipeline.steps[index].name
    return {"index": index, "pass": name}


def time_document(result: TimeResult) -> Row:
    """The document of `time MODEL`: the machine, the rows, and the comparisons behind them."""
    return plain(result)


def size(count: int | float | None) -> str:
    """Bytes in the unit that reads well: `429.5 KiB`, as the graph viewer writes them."""
    if count is None:
        return "unknown"
    for unit, step in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(count) >= step:
            return f"{count / step:.1f} {unit}"
    return f"{count:.0f} B"


def flops(count: float | None) -> str:
    """Floating point operations in a unit that reads well."""
    if count is None:
        return "unknown"
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.0f}"


def number(count: int) -> str:
    """A whole number with thin spaces between thousands: `1 137 136`."""
    return f"{count:,}".replace(",", "\u202f")


def milliseconds(seconds: float) -> str:
    """A duration for a narrow column: `0.4 ms`, `12 ms`, `1.3 s`."""
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1e3:.1f} ms" if seconds < 0.01 else f"{seconds * 1e3:.0f} ms"


def shape_text(shape: Iterable[int | str]) -> str:
    """A shape as people write it: `1×14×768`, `scalar` where there is no dimension."""
    return "×".join(map(str, shape)) or "scalar"


def speed_text(ratio: float | None) -> str:
    """A ratio to eager in words: `1.32× slower than eager`, `2.20× faster than eager`."""
    if ratio is None:
        return "baseline"
    if 0.995 <= ratio <= 1.005:
        return "as fast as eager"
    return f"{ratio:.2f}× slower than eager" if ratio > 1 else f"{1 / ratio:.2f}× faster than eager"


def text_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Rows as aligned text: numbers to the right, everything else to the left."""
    cells = [[_cell(row.get(c)) for c in columns] for row in rows]
    right = [
        any(isinstance(r.get(c), int | float) and not isinstance(r.get(c), bool) for r in rows)
        for c in columns
    ]
    widths = [max(len(c), *(len(r[i]) for r in cells), 0) for i, c in enumerate(columns)]

    def line(parts: Sequence[str]) -> str:
        return "  ".join(
            p.rjust(w) if r else p.ljust(w) for p, w, r in zip(parts, widths, right, strict=True)
        ).rstrip()

    return "\n".join([line(columns), line(["-" * w for w in widths]), *map(line, cells)])


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1e-3 or abs(value) >= 1e6 else f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)
