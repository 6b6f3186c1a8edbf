"""Documents and sections of results, the same for the page, a file and the command line.

Functions take an engine's plain result and return JSON values with the field names that the command
line promises; functions named `_sections` or `_table` format these for people.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import starmap
from math import isfinite
from typing import Any

from relascope.core.graph import Graph, Kind
from relascope.core.identity import flat
from relascope.engine.jobs import accuracy, bisect, node_accuracy, nth
from relascope.engine.protocol.accuracy import Comparison
from relascope.engine.protocol.plain import plain
from relascope.engine.protocol.results import ModelInfo, ModuleRow, StepRecord
from relascope.engine.protocol.times import BEST_BUDGET, BUDGETS, TorchSaved
from relascope.passes.catalogue import PassInfo, recorded
from relascope.passes.catalogue.entry import COUNT
from relascope.passes.cuts.cut import STRATEGIES, Cut, Joint, cut, cut_of
from relascope.passes.cuts.frontier import FrontierPoint, frontier
from relascope.passes.cuts.joint import DRAW_PREFIX
from relascope.passes.cuts.peak import peak_curve
from relascope.passes.cuts.problem import Wish
from relascope.passes.pipeline import Pipeline
from relascope.passes.search.bisect import IMPORT
from relascope.samples import Sample
from relascope.viz.compare.align import Alignment
from relascope.viz.rows import Row, fields, memory
from relascope.viz.rows.formats import milliseconds, net_text, number, size, work_text
from relascope.viz.rows.sections import Section, chart, figures, sentence, table

_MODULES = "module: path; class; parameters; calls; inputs; outputs; takes: seconds"
IMPORTED = "import: kind; what; of: operator; count; became; modules"
SAVED = (
    "name; line?: line; what; bytes; copies take?: copy_share; why: reason; shape; dtype; "
    "made in: scope; from: source; read in the backward by: reader_labels"
)
UNSAVED = "name; line?: line; what; times?; bytes; why: reason; made in: scope"
AXES = {"Saved bytes": "bytes", "Peak of a step": "peak_bytes"}
"""What the chart of cuts may have along its axis, by its title."""
TORCH_CUTS = (
    "budget; kept: bytes; time added?: net_share; peak, estimated?: peak_bytes; masks drawn anew: "
    "drawn_anew"
)
MEASURED = (
    "cut: title; captures; kept: bytes; work again, estimated: share; work again, measured: "
    "measured_share; peak, estimated: estimated_peak_bytes; peak, measured: peak_bytes; forward: "
    "forward_ms; forward + backward: forward_backward_ms; times eager: ratio; max abs error: "
    "max_abs_error"
)
OUTCOMES = (
    "inputs?; stage?; strategy?; pipeline?; dtype; outcome; max abs error?: max_abs; relative to "
    "scale?: max_rel; limit?; worst tensor?: worst; first bad node?: node; in?: scope; failure?"
)
"""Columns of a session's findings: a report's stages, or a search's tries."""
_KINDS = (
    "inputs; verdict; stage; strategy?; dtype; relative to scale: error; scale; limit; worst "
    "tensor: worst"
)
INSIDE = (
    "node: op; line?: line; error / limit: ratio; max abs: max_abs; mean abs: mean_abs; median "
    "abs: median_abs; max rel: max_rel; mean rel: mean_rel; median rel: median_rel; NaN: nans; "
    "Inf: infinities; compared with: counterpart; module: scope; id"
)
ALIGNED = {
    "groups": ("By module", "module: scope; PyTorch operator: source"),
    "operators": ("By PyTorch operator", "PyTorch operator: source; modules"),
    "calls": ("By TVM operator", "TVM operator: operator"),
}
TRIES = (
    "steps up to?: up_to; without?; outcome; worst tensor?: worst; relative to scale?: max_rel; "
    "limit?; whole to this?: ratio; runs?; bad?; test's exit status?: test.status; "
    "error?: error.message"
)
BEST = f"activation_memory_budget={BEST_BUDGET}"
"""The setting with which PyTorch's partitioner keeps least."""
PROVEN = "No cut lies below the line; each point on it is a cut."
STOPPED = "Each point on the line is a cut. The search ended early, so others may lie below it."
"""Notes on a frontier's line, by `proven` of `frontier_document`."""
LIVE_NOTE = (
    "Everything that forward and backward hold while each node runs, without inputs and "
    "parameters, in the order that holds least, which engines use. Click an entry of the legend to "
    "see it alone."
)


def model_rows(samples: Iterable[Sample], engines: Sequence[str]) -> list[Row]:
    """One row for each sample, as `models` prints them."""
    return [
        {
            **fields(s, "name title summary parameters training inputs"),
            "engines": list(engines),
            "batch": s.default_batch,
            "tokens": s.default_tokens,
        }
        for s in samples
    ]


def module_rows(modules: Iterable[ModuleRow]) -> list[Row]:
    """One row for each module, as `modules MODEL` prints them; types as text."""

    def row(m: ModuleRow) -> Row:
        types = {"inputs": [*map(str, m.inputs)], "outputs": [*map(str, m.outputs)]}
        return {**fields(m, "path parameters calls seconds"), "class": m.kind, **types}

    return [*map(row, modules)]


def modules_table(modules: Iterable[Row]) -> Section:
    rows = [{**row, "path": row["path"] or "the whole model"} for row in modules]
    return table("", rows, _MODULES)


def model_document(
    info: ModelInfo, ir: str, graph: Graph | None = None, pipeline: Pipeline | None = None
) -> Row:
    """The document of `graph MODEL`, for the imported graph or one after a pipeline."""
    graph = graph or info.graph
    return {
        "model": info.source.model,
        **(fields(info.source, "module call") if info.source.module else {}),
        "engine": ir,
        "pipeline": str(pipeline or ""),
        **graph_facts(graph, info),
        "graph": graph.to_json(),
    }


def overlay_rows(graph: Graph, overlays: Mapping[str, Mapping[str, float | str]]) -> Row:
    """By overlay, the nodes that have a value, the largest number first, then texts."""
    nodes = {n.id: n for n in flat(graph)}

    def row(ident: str, value: float | str) -> Row:
        told = value if isinstance(value, str) or isfinite(value) else str(value)  # as JSON can
        node = nodes[ident]
        return {"value": told, "node": node.title, "module": node.scope, "id": ident}

    def order(one: Row) -> tuple[bool, Any]:
        text = isinstance(one["value"], str)
        return text, one["value"] if text else -one["value"]

    return {k: sorted(starmap(row, v.items()), key=order) for k, v in overlays.items()}


def graph_facts(graph: Graph, info: ModelInfo | None = None) -> Row:
    """The counts of `graph MODEL`; for an imported model also the arguments, inputs first, and the
    import's changes, a row for each PyTorch operator or sort of tensors."""
    counts = {
        "nodes": len(graph),
        "edges": graph.edge_count,
        "operators": graph.operators,
        "parameter_bytes": sum(n.bytes or 0 for n in graph if n.kind is Kind.PARAMETER),
    }
    if info is None:
        return counts
    return {
        **fields(info, "parameters seconds notes"),
        "arguments": [
            {"name": name, **fields(kind, "shape dtype bytes"), "input": index < info.input_count}
            for index, (name, kind) in enumerate(info.arguments)
        ],
        "changes": [
            fields(c, "kind what operator count nodes modules became") for c in info.changes
        ],
        **counts,
    }


def graph_sections(document: Row) -> list[Section]:
    """The sections of `graph_facts`: figures, and tables of operators, arguments and the import."""
    arguments = [
        {**a, "kind": "input" if a["input"] else "parameter"} for a in document.get("arguments", ())
    ]
    changes = [
        {**c, "modules": _few(c["modules"]), "became": c["became"] or None}
        for c in document.get("changes", ())
    ]
    parameters, seconds = document.get("parameters"), document.get("seconds")
    return [
        figures(
            (number(document["nodes"]), "nodes"),
            (number(document["edges"]), "edges"),
            (number(len(document["operators"])), "operators"),
            ("" if parameters is None else number(parameters), "parameters"),
            (size(document["parameter_bytes"]), "of weights"),
            ("" if seconds is None else milliseconds(seconds), "to import"),
        ),
        table("Operators", [{"operator": o, "calls": n} for o, n in document["operators"].items()]),
        table("Arguments", arguments, "name; kind; shape; dtype; bytes", most=10),
        table("What the import did", changes, IMPORTED),
    ]


def _few(modules: list[str]) -> str:
    more = f", {len(modules) - 1} more" if len(modules) > 1 else ""
    return f"{modules[0] or 'the top'}{more}" if modules else ""


def pass_row(entry: PassInfo) -> Row:
    """One pass, as `passes` and `passes NAME` print it."""
    names = "name title summary origin required looking needs excludes before after"
    parameters = [fields(q, "name kind default choices unit about") for q in entry.parameters]
    return {**fields(entry, names), "parameters": parameters}


def step_rows(records: Sequence[StepRecord], errors: Mapping[int, Row] | None = None) -> list[Row]:
    """One row for each step of `step MODEL`; `errors` has a step's error, or why there is none."""
    return [
        {
            "pass": r.pass_name,
            **fields(r, "enabled changed added removed nodes seconds operators printed"),
            **(errors or {}).get(i, {"error": None, "check_failure": None}),
            "failure": plain(r.error),
        }
        for i, r in enumerate(records)
    ]


def cut_document(cut: Cut) -> Row:
    """One cut in the document of `captures MODEL`: what is saved, why, and for which readers.
    `bytes` are those of `captures` and `masks` but for those `on_host`, which `host_bytes` counts
    and whose copies take `copy_seconds`. FLOPs and seconds are estimates (`passes.cost`), of which
    only ratios are meaningful, unless `prices` says "measured". `held` is a `live_document`."""
    by_id, whole = cut.joint.graph.by_id, cut.forward_seconds or 1.0
    captures, masks = (
        [{**plain(c), "reader_labels": [by_id[r].title for r in c.readers]} for c in saved]
        for saved in (cut.captures, cut.masks)
    )
    for row in (r for r in captures if r["id"] in cut.offloaded):
        taken = cut.joint.copy_seconds([row["id"]])
        row |= {"on_host": True, "copy_seconds": taken, "copy_share": taken / whole}
    names = (
        "strategy bytes peak_bytes uncapped_bytes cap mask_bytes budget extra_bytes recomputed "
        "recomputed_flops forward_flops recomputed_seconds forward_seconds share net_share"
    )
    return {
        **fields(cut, names),
        "spared": [{**plain(s), **fields(by_id[s.id], "scope source line")} for s in cut.unsaved],
        "captures": captures,
        "masks": masks,
        "by_hand": {
            "save": sorted(cut.wish.save),
            "recompute": sorted(cut.wish.recompute),
            "idle": cut.idle,
        },
        "prices": "estimated" if cut.joint.measured is None else "measured",
        "held": memory.live_document(cut),
        **memory.measured_peak(cut),
        **({"least_peak_bytes": least} if (least := cut.least_peak_bytes) else {}),
        **(fields(cut, "host_bytes copy_seconds") if cut.offloaded else {}),
        **({"recomputed_times": dict(cut.lifetimes.times)} if cut.rewiring else {}),
    }


def saved_rows(document: Row) -> list[Row]:
    """A cut's captures and masks, for a table with the columns `SAVED`."""
    rows = (*document["captures"], *document["masks"])
    places = "captured", "on the host"
    return [{"copy_share": None, **r, "what": places[r.get("on_host", False)]} for r in rows]


def idle_lines(cut: Cut) -> list[str]:
    """A line for each reason why some wishes of a cut change nothing."""
    groups: dict[tuple[str, str], list[str]] = {}
    for node_id, why in cut.idle.items():
        does = "compute {} again" if node_id in cut.wish.recompute else "save {}"
        groups.setdefault((does, why), []).append(node_id)
    return [f"To {d.format(', '.join(ids))} changes nothing. {w}" for (d, w), ids in groups.items()]


def cut_figures(document: Row) -> list[tuple[str, str]]:
    """A cut's figures with their labels; `document` is from `cut_document`."""
    again = work_text(document["recomputed_flops"], document["forward_flops"])
    peak = size(document["peak_bytes"])
    words = memory.peak_words(document).removeprefix(peak)
    masks = len(document["masks"])
    drawn = any(m["name"].startswith(DRAW_PREFIX) for m in document["masks"])
    drawn_kind = "random input" if drawn else "dropout mask"
    away = document.get("host_bytes")
    share = document.get("copy_seconds", 0.0) / (document["forward_seconds"] or 1.0)
    on_host = [(size(away), "on the host"), (work_text(share, 1.0), "to copy there and back")]
    return [
        (number(len(document["captures"])), "captures"),
        (number(masks), drawn_kind if masks == 1 else f"{drawn_kind}s"),
        (size(document["bytes"]), "kept for the backward"),
        *(on_host if away else ()),
        (peak, f"peak of a step,{words}"),
        (number(len(document["recomputed"])), "nodes recomputed"),
        (again, "of the forward's FLOPs again"),
        (work_text(document["share"], 1.0), f"of its {document['prices']} time"),
        (net_text(document["net_share"]), "net of spared writes and reads"),
    ]


def cut_sections(document: Row) -> list[Section]:
    """A `cut_document`'s sections; it may hold a `torch_saved_document` ("rivals") and frontier."""
    title = STRATEGIES[document["strategy"]].title
    kept, again = saved_rows(document), set(document["recomputed"])
    times = document.get("recomputed_times", {})
    spared = [
        {**r, "what": "again" if r["id"] in again else "forward", "times": times.get(r["id"])}
        for r in document["spared"]
    ]
    rivals = document.get("rivals")
    beside = rivals and (
        f"PyTorch eager keeps {size(rivals['pytorch_eager_bytes'])}, its min-cut partitioner "
        f"{size(rivals['pytorch_min_cut_bytes'])}, and with {BEST} "
        f"{size(rivals['pytorch_best_bytes'])}. {rivals['note']}{masks_line(rivals)}".strip()
    )
    measure = "" if "measured_peak_bytes" in document else memory.MEASURE
    left, ids = "Read by the backward and not saved, and why", [r["id"] for r in spared]
    sections = [
        figures((title, ""), *cut_figures(document)),
        *(sentence(text) for text in (document["cap"], measure, beside) if text),
        table("Saved for the backward, and why", kept, SAVED, [r["id"] for r in kept]),
        table(left, spared, UNSAVED, ids, most=10),
        memory.live_section(document["held"]["at_peak"]),
    ]
    if rivals and len(rivals["pytorch_cuts"]) > len(BUDGETS[0]):
        told = "PyTorch's partitioner, within each activation_memory_budget"
        sections.append(table(told, rivals["pytorch_cuts"], TORCH_CUTS))
    if "frontier" in document:
        now = {**document, "what": f"chosen: {title}"}
        note = PROVEN if document["proven"] else STOPPED
        for told, x in AXES.items():
            told = f"{told} against time added"
            sections.append(chart(told, "frontier", document, rivals, now, x, note=note))
    held = chart("Bytes held over one step", "live_bytes_chart", document["held"], note=LIVE_NOTE)
    return [*sections, held, *([chart("Bytes of each", "capture_bytes", kept)] if kept else [])]


def torch_saved_document(saved: TorchSaved) -> Row:
    """What PyTorch keeps for the module's backward within each budget, or why none is known."""
    return {
        "pytorch_eager_bytes": saved.eager_bytes,
        "pytorch_min_cut_bytes": saved.within(1.0),
        "pytorch_best_bytes": saved.within(BEST_BUDGET),
        "pytorch_cuts": plain(saved.cuts),
        "note": saved.note,
    }


def masks_line(pytorch: Row) -> str:
    """In a sentence, what PyTorch's cuts of a `torch_saved_document` do with dropout masks."""
    anew = [c["budget"] for c in pytorch["pytorch_cuts"] if c["drawn_anew"]]
    if not anew:
        return ""
    return (
        f"Within {', '.join(f'{b:g}' for b in anew)} PyTorch's backward draws masks anew, from "
        "other seeds: they cost no bytes, but its gradients are of other masks. Else it saves "
        "masks, a byte an element."
    )


def frontier_document(joint: Joint, peaks: bool = True) -> Row:
    """Bytes against time: the cuts on the frontier, the fewest bytes first, and the strategies;
    `proven` says whether the frontier has every cut that is best at some price. Of each also the
    estimated peak of a step if `peaks`, which takes some milliseconds a cut, and the measured one;
    with `peaks`, also the cuts `within_peak` as the limit falls, and that strategy's lowest."""
    names = [n for n, s in STRATEGIES.items() if not s.has_budget] + ["peak"] * peaks
    line, cuts = frontier(joint), {name: cut(joint, name) for name in names}
    return {
        "frontier": frontier_rows(joint, reversed(line), peaks),
        "proven": line.proven,
        "within_peak": frontier_rows(joint, peak_curve(joint) if peaks else (), peaks),
        "strategies": [{"strategy": n, **cut_row(c, peaks)} for n, c in cuts.items()],
    }


def frontier_rows(joint: Joint, points: Iterable[FrontierPoint], peaks: bool) -> list[Row]:
    """One row a cut of the frontier, as of `frontier_document`."""
    return [cut_row(cut_of(joint, p, Wish()), peaks) for p in points]


def cut_row(cut: Cut, peaks: bool) -> Row:
    names = f"bytes share net_share{' peak_bytes' if peaks else ''}"
    return {**fields(cut, names), **memory.measured_peak(cut), "captures": len(cut.ids)}


def alignment_document(alignment: Alignment) -> Row:
    """What each PyTorch operator became in two IRs, as `diff` prints it. `groups` has a row for
    each module and PyTorch operator, `operators` for each PyTorch operator, `calls` for each
    operator of TVM's, and `unmatched` each side's nodes without an origin. Sides are named by their
    IR; `only` is the only side that has a row's operator, or None."""
    left, right = (g.ir for g in alignment.graphs)
    groups: list[Row] = [
        {
            **fields(g, "scope source"),
            left: g.operators[0],
            right: g.operators[1],
            "occurrences": dict(zip((left, right), g.occurrences, strict=True)),
            "paired": g.paired,
            "only": None if all(g.nodes) else left if g.nodes[0] else right,
        }
        for g in alignment.groups
    ]
    ours, theirs = (Counter(g.operators) for g in alignment.graphs)
    return {
        "operators": _by_operator(groups, left, right),
        "groups": groups,
        "calls": [
            {
                "operator": op,
                left: ours[op],
                right: theirs[op],
                "only": None if ours[op] and theirs[op] else left if ours[op] else right,
            }
            for op in sorted(ours | theirs, key=lambda op: (-ours[op] - theirs[op], op))
        ],
        "unmatched": {
            g.ir: [
                {"id": i, "operator": g.by_id[i].title, "scope": g.by_id[i].scope}
                for i in alignment.without_origin(side)
            ]
            for side, g in enumerate(alignment.graphs)
        },
    }


def alignment_sections(document: Row) -> list[Section]:
    """The sections of `alignment_document`: figures, and a table for each of `ALIGNED`."""
    only = Counter(g["only"] for g in document["groups"])
    facts = [(number(only[None]), "PyTorch operators in both")]
    for ir, lost in document["unmatched"].items():
        facts.append((number(only[ir]), f"only in {ir.capitalize()}"))
        if lost:
            facts.append((number(len(lost)), f"{ir.capitalize()} nodes without an origin"))
    sides = "Relay: relay; Relax: relax; only in: only"
    kinds = ALIGNED.items()
    tables = (table(title, document[kind], f"{of}; {sides}") for kind, (title, of) in kinds)
    return [figures(*facts), *tables]


def _by_operator(groups: Iterable[Row], left: str, right: str) -> list[Row]:
    """Groups of all modules together, one row for each PyTorch operator."""
    rows: dict[str, Row] = {}
    for group in groups:
        new: Row = {"source": group["source"], "modules": 0, left: Counter(), right: Counter()}
        row = rows.setdefault(group["source"], new)
        row["modules"] += 1
        for side in (left, right):
            row[side].update(group[side])
        row["only"] = None if row[left] and row[right] else left if row[left] else right
    return list(rows.values())


def worst(comparisons: Iterable[Comparison]) -> Row | None:
    """The largest errors of a comparison with PyTorch, or None if nothing was compared."""
    found = list(comparisons)
    return _errors(found, max(found, key=lambda c: c.max_rel)) if found else None


def _errors(found: Sequence[Comparison], worst: Comparison) -> Row:
    return {
        "max_abs": plain(max(c.max_abs for c in found)),
        **fields(worst, "max_rel dtype"),
        "worst": worst.name,
        **plain(worst.spread),
    }


def judged_row(judged: accuracy.Judged) -> Row:
    """One step of `step --check`: the tensor nearest to its limit, or farthest over it."""
    worst, found = judged.worst, judged.comparisons
    return {
        "verdict": judged.verdict,
        **_errors(found, worst),
        "scale": plain(worst.scale),
        "limit": judged.limit.of(worst.name),
        "compared": len(found),
    }


def node_error_rows(inside: node_accuracy.Inside) -> list[Row]:
    """One row for each node with a counterpart in PyTorch, the largest ratio to its limit first."""
    rows = []
    for e in inside.errors.values():
        node, ratio = inside.graph.by_id[e.id], plain(inside.ratio(e.id))
        about = {**fields(node, "scope line"), **plain(e.spread), "op": node.title, "ratio": ratio}
        rows.append({**fields(e, "id max_abs max_rel counterpart"), **about})
    return sorted(rows, key=lambda r: -float(r["ratio"]))


def inside_document(results: Sequence[node_accuracy.Inside]) -> Row:
    """One step of `step --inside`: a comparison for each precision, and the verdict."""
    return {
        "compared": [
            {
                **fields(one, "dtype over"),
                "wrong_results": [c.name for c in one.wrong_results],
                "first_bad": plain(one.first),
                "without_counterpart": list(one.without),
                "nodes": node_error_rows(one),
            }
            for one in results
        ],
        "verdict": node_accuracy.verdict(*results),
    }


def inside_sections(document: Row) -> list[Section]:
    """The sections of `inside_document`: the verdict, and the nodes farthest off."""
    shown = [sentence(document["verdict"])]
    for one in document["compared"]:
        title = f"{one['dtype']}: {len(one['nodes'])} nodes compared; "
        title += f"{len(one['without_counterpart'])} without a counterpart"
        shown.append(table(title, one["nodes"], INSIDE, most=5))
    return shown


def error_text(inside: node_accuracy.Inside, ident: str) -> str:
    """A node's error in a line, for its tooltip."""
    error, ratio = inside.errors[ident], inside.ratio(ident) or 0.0
    odd = {"NaN": error.spread.nans, "Inf": error.spread.infinities}
    wrong = [f"{count} {what}" for what, count in odd.items() if count]
    numbers = f"error {error.max_abs:.1e}, {error.max_rel:.1e} of the scale, {ratio:.2g} of limit"
    return "; ".join([numbers, *wrong, f"compared with {error.counterpart}"])


def accuracy_document(
    model: str, ir: str, target: str, rows: Sequence[accuracy.AccuracyRow], against: str
) -> Row:
    """The document of `check MODEL`; `against` is as for `accuracy.verdict`."""
    return {
        "model": model,
        "engine": ir,
        "target": target,
        "stages": plain(rows),
        "inputs": [
            {**plain(row), "verdict": verdict} for verdict, row in accuracy.by_inputs(rows, against)
        ],
        "passed": bool(rows) and all(r.passed for r in rows),
        "verdict": accuracy.verdict(rows, against),
    }


def accuracy_sections(document: Row) -> list[Section]:
    """The sections of `check MODEL`: every stage; of several kinds of inputs, each, and faults."""
    kinds = document["inputs"] if len(document["inputs"]) > 1 else []
    stages = [s for s in document["stages"] if not (kinds and s["passed"])]
    return [
        table("", kinds, _KINDS),
        table("", map(finding, stages), OUTCOMES),
        sentence(document["verdict"]),
    ]


def finding(stage: Row) -> Row:
    """A stage of `accuracy_document` with the fields of a `viz.sessions.state.SavedFinding`."""
    names = ("stage", "strategy", "inputs", "dtype", "max_abs", "limit", "worst")
    bad, failure = stage["first_bad"] or {}, stage["failure"] or {}
    over = "over" if stage["dtype"] == "float32" else "wrong"  # float64 tells it from rounding
    return {
        **{n: stage[n] for n in names},
        "pipeline": "",
        "outcome": "cannot be run" if failure else "right" if stage["passed"] else over,
        "max_rel": stage["error"],
        "node": bad.get("title", ""),
        "scope": bad.get("scope", ""),
        "failure": failure.get("message", ""),
    }


def bisect_document(ir: str, result: bisect.Bisection, inside: nth.Nth | None = None) -> Row:
    """The document of `bisect MODEL`: the culprit, the place in it, its effect, and all tries."""
    question = result.question
    suspects = [_step_at(question.pipeline, i) for i in result.culprits.suspects]
    log, taken = (*result.log, *(inside.log if inside else ())), result.taken
    said = [bisect.verdict(ir, result), *([nth.verdict(ir, result, inside)] if inside else [])]
    return {
        "model": question.source.model,
        "engine": ir,
        "target": question.target,
        "inputs": question.source.values,
        "pipeline": str(question.pipeline),
        "culprit": suspects[0] if len(suspects) == 1 else None,
        "suspects": suspects,
        "kind": result.kind or None,
        "compiles": sum(t.runs for t in log),
        "log": [try_row(question.pipeline, t) for t in log],
        "float64": plain(result.double),
        "taken": taken
        and {
            "longest": {**_step_at(question.pipeline, taken.longest), "seconds": taken.seconds},
            "most_kept": {**_step_at(question.pipeline, taken.keeper), "bytes": taken.kept},
        },
        "application": inside
        and {**fields(inside, "number before of"), "node": plain(inside.place)},
        "verdict": " ".join(said),
    }


def try_row(pipeline: Pipeline, tried: bisect.Try) -> Row:
    """One try of a bisection of a pipeline; `last` has the fields of a suspect."""
    count = dict(tried.pipeline.steps[tried.last].params).get(COUNT) if tried.last >= 0 else None
    last = {**_step_at(pipeline, tried.last), "count": None if count is None else int(count)}
    return {**plain(tried), "pipeline": str(tried.pipeline), "last": last}


def tries_table(log: Iterable[Row]) -> Section:
    """The tries of a bisection, from `try_row`: which steps were on, and the outcome."""
    rows = []
    for row in log:
        last = row["last"]
        step = f"{last.get('number', last['index'] + 1)} {last['pass']}"
        first = "" if last["count"] is None else f", the first {last['count']}"
        more: Row = {"up_to": step + first, "without": None}
        if row["ratio"] is not None:
            more = {"up_to": None, "without": step if last["index"] >= 0 else "nothing"}
        if (row["error"] or {}).get("kind") == "type":
            more["outcome"] = "types"
        rows.append(row | more | ({} if row["runs"] > 1 else {"runs": None, "bad": None}))
    return table("", rows, TRIES)


def _step_at(pipeline: Pipeline, index: int) -> Row:
    """A step, with the number of its pass if it is a recorded one."""
    if index == IMPORT:
        return {"index": index, "pass": "import"}
    step = pipeline.steps[index]
    if step.name != recorded.NAME:
        return {"index": index, "pass": step.name}
    name = recorded.entry("", step).title
    return {"index": index, "number": recorded.number_of(step), "pass": name}
