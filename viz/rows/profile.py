"""Rows on where the time goes and what could be faster, for the page and the command line."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from relascope.core.errors import EngineError
from relascope.core.graph import Graph, Kind, Node
from relascope.engine.protocol.plain import plain
from relascope.engine.protocol.profile import Phase, Profile
from relascope.passes.cost import Kernels, MeasuredKernels, flops_of
from relascope.passes.lint import LINTERS, Finding, lint
from relascope.viz.drawing import palette
from relascope.viz.rows import Row, fields
from relascope.viz.rows.formats import flops as flops_text
from relascope.viz.rows.formats import rate_text, shape_text, size
from relascope.viz.rows.sections import Section, figures, sentence, table
from relascope.viz.rows.tables import worst

_HAZARDS = "hazard: title; found; costs: ms; moves: bytes; removed by: remedy"
_PLACES = (
    "hazard: title; costs: ms; moves: bytes; operators; in: scope; what: message; removed by: "
    "remedy; else: advice"
)
_KERNELS = (
    "kernel: name; phase; median: median_ms; share; of peak: of_peak; bound by: roof; "
    "computes: operators; in: scope; FLOPs: flops; achieves: flops_per_second; "
    "of FLOP/s: of_flops; and moves: bytes_per_second; FLOPs a byte: intensity; shapes; "
    "reads: bytes_in; writes: bytes_out"
)
EXPLAINED = 0.1  # the largest share of the time that is not in kernels of nodes

BEATEN = 1.1
"""A kernel over this many times its peak shows that the peak is wrong; less may be timing noise."""


def profile_document(profile: Profile, graph: Graph) -> Row:
    """The document of `profile MODEL`: kernels, in order of execution, and phases."""
    work = flops_of(graph)
    profile = _with_changed(profile, graph, work)
    names = "machine target threads repeats build_seconds peaks working_set peak_bytes first_bad"
    kernels = [_kernel(profile, graph, work, i) for i in range(len(profile.kernels))]
    notes = list(profile.notes)
    if over := _beaten(kernels):
        notes.append(
            f"{'One kernel is' if over == 1 else f'{over} kernels are'} faster than the peaks "
            "allow: the machine was busy when those were measured. Measure them again when it is "
            "idle."
        )
    return {
        **fields(profile, names),
        "phases": [_phase(profile, p) for p in profile.phases],
        "kernels": kernels,
        "error": worst(profile.comparisons),
        "notes": notes,
    }


def _with_changed(profile: Profile, graph: Graph, work: Mapping[str, float]) -> Profile:
    """A profile with kernels for convolutions into whose weights the build folded the next factor,
    for the kernel is then known only to compute what follows. Kernels named after a convolution,
    but without one, are paired in order with as many convolutions without a kernel."""
    kernels = list(profile.kernels)
    convolutions = {n.id for n in graph if "conv" in n.op}
    named = [i for i, k in enumerate(kernels) if k.nodes and "conv" in k.name]
    bare = [i for i in named if convolutions.isdisjoint(kernels[i].nodes)]
    convolutions.difference_update(*(k.nodes for k in kernels))
    free = [n.id for n in graph if n.kind is Kind.CALL and n.id in convolutions]
    if len(bare) != len(free):
        return profile
    for index, node_id in zip(bare, free, strict=True):
        kernel = kernels[index]
        counted = (kernel.flops or 0.0) + work[node_id]
        kernels[index] = replace(kernel, nodes=(node_id, *kernel.nodes), flops=counted)
    return replace(profile, kernels=tuple(kernels))


def _beaten(kernels: Iterable[Row]) -> int:
    """How many kernels were faster than the peaks allow, which makes shares of peak unknown."""
    return sum((k["of_peak"] or 0) > BEATEN for k in kernels)


def peak_texts(document: Row) -> list[tuple[str, ...]]:
    """Each phase's share of the machine's peak for `figures`; unknown if kernels beat that."""
    known = [p for p in document["phases"] if p["of_peak"] is not None]
    if _beaten(document["kernels"]):
        return [("unknown: kernels beat it", f"{p['name']}, of peak", "unsure") for p in known]
    return [(f"{p['of_peak']:.0%} of peak", f"{p['name']} runs at") for p in known]


def _phase(profile: Profile, phase: Phase) -> Row:
    least, unknown = profile.least_ms(phase.name)
    return {
        **plain(phase),
        **fields(phase, "unexplained_ms mapped_ms mapped_share"),
        "explained": abs(1 - phase.mapped_share) <= EXPLAINED,
        "least_ms": None if profile.peaks is None else least,
        "of_peak": None if profile.peaks is None else least / phase.median_ms,
        "unknown_ms": unknown,
    }


def _kernel(profile: Profile, graph: Graph, work: dict[str, float], index: int) -> Row:
    kernel = profile.kernels[index]
    roof = profile.roof(kernel)
    by_id = graph.by_id
    nodes = [by_id[n] for n in kernel.nodes if n in by_id]
    main = max([n for n in nodes if n.kind is Kind.CALL], key=lambda n: work[n.id], default=None)
    peak = None if profile.peaks is None else profile.peaks.peak(kernel.dtype)
    rate = kernel.flops_per_second
    return {
        **plain(kernel),
        "index": index,
        "operators": [n.title for n in nodes],
        "shapes": "" if main is None else _shapes(main, by_id),
        "scope": nodes[-1].scope if nodes else "",
        "sort": "call" if main is None else palette.category(main.op),
        **fields(kernel, "bad moved intensity flops_per_second bytes_per_second"),
        "roof": roof and roof.name,
        "least_ms": roof and roof.least_ms,
        "of_peak": roof and roof.least_ms / kernel.median_ms,
        "of_flops": None if peak is None or rate is None else rate / peak,
    }


def _shapes(node: Node, by_id: Mapping[str, Node]) -> str:
    """A call's operands and results: `1×64×32×32, 64×64×3×3 → 1×64×32×32`."""
    read = [t.shape for i in node.edges if i in by_id for t in by_id[i].outputs]
    made = [t.shape for t in node.outputs]
    return " → ".join(", ".join(map(shape_text, shapes)) for shapes in (read, made))


def computing(document: Row, operator: str) -> list[int]:
    """The indices of kernels of a `profile_document`, as run, that compute an operator of a name
    or its end ("nn.conv2d", "conv2d"). Raises EngineError of kind "usage" if there are none."""
    kernels, end = document["kernels"], f".{operator}"
    found = [k["index"] for k in kernels if any(f".{o}".endswith(end) for o in k["operators"])]
    if not found:
        known = ", ".join(sorted({o for k in kernels for o in k["operators"]}))
        message = f"No kernel of this program computes {operator}."
        hint = f"They compute {known or 'unknown operators'}."
        raise EngineError("usage", message, "--operator", hint)
    return found


def listed_kernels(document: Row) -> list[Row]:
    """The chosen kernels, in order; else all, the slowest first."""
    kernels: list[Row] = document["kernels"]
    if "chosen" in document:
        return [kernels[i] for i in document["chosen"]]
    return sorted(kernels, key=lambda k: -k["median_ms"])


def profile_sections(document: Row) -> list[Section]:
    """The sections of `profile MODEL`: shares of peak, where the time went, peaks, kernels."""
    bad, notes = document["first_bad"], list(document["notes"])
    if bad is not None:
        name = document["kernels"][bad]["name"]
        notes.append(f"The first kernel that writes NaN or infinity is {name}.")
    said = [*([chosen_text(document)] if "chosen" in document else ()), *phase_texts(document)]
    none = ["no node of the graph"]
    rows = [{**k, "operators": k["operators"] or none} for k in listed_kernels(document)]
    return [
        figures(
            (document["machine"], ""),
            (document["target"], ""),
            (str(document["threads"]), "threads"),
            (str(document["repeats"]), "repeats"),
            (f"{float(document['error']['max_abs']):.1e}", "largest error against PyTorch"),
        ),
        figures(*peak_texts(document), large=True),
        *(sentence(note, True) for note in notes),
        *map(sentence, (*said, peaks_text(document["peaks"]))),
        table("", rows, _KERNELS),
    ]


def chosen_text(document: Row) -> str:
    """A sentence on the chosen kernels of a profile together."""
    rows = [document["kernels"][i] for i in document["chosen"]]
    taken = sum(r["median_ms"] for r in rows)
    work = [r["flops"] for r in rows if r["flops"] is not None]
    rate = sum(work) / (1e-3 * taken) if len(work) == len(rows) else None
    peaks = dict(document["peaks"]["flops"]) if document["peaks"] else {}
    dtypes = {o["dtype"] for r in rows for o in r["outputs"][:1]}
    peak = peaks.get(next(iter(dtypes))) if len(dtypes) == 1 else None
    share = rate / peak if rate and peak else None
    known = share is not None and share <= BEATEN
    of = f", {share_text(share)} of what the machine does at best" if known else ""
    count = "1 kernel computes" if len(rows) == 1 else f"{len(rows)} kernels compute"
    return (
        f"{count} {document['operator']}: {flops_text(sum(work))}FLOP in {taken:.3f} ms, "
        f"{rate_text(rate, 'FLOP/s')}{of}."
    )


def heat(profile: Profile) -> dict[str, float]:
    """By a node's id, the share of all time of the kernels that compute it."""
    shares: dict[str, float] = {}
    for kernel in profile.kernels:
        for node in kernel.nodes:
            shares[node] = shares.get(node, 0.0) + kernel.share
    return shares


def phase_texts(document: Row) -> list[str]:
    """Where the time of each phase went, in sentences."""
    beaten = bool(_beaten(document["kernels"]))
    return [_phase_text(p, beaten) for p in document["phases"]]


def _phase_text(phase: Row, beaten: bool) -> str:
    whole, rest, unmapped = phase["median_ms"], phase["unexplained_ms"], phase["unmapped_ms"]
    parts = [
        f"{phase['name']}: {whole:.3f} ms from end to end. Kernels of nodes of the graph explain "
        f"{phase['mapped_share']:.1%} of it ({phase['mapped_ms']:.3f} ms)"
    ]
    if unmapped:
        parts.append(f"{unmapped / whole:.1%} ({unmapped:.3f} ms) are in kernels of no node")
    parts.append(
        f"{rest / whole:.1%} ({rest:.3f} ms) are not in kernels: room for results, copies, the "
        "calls themselves"
        if rest >= 0
        else f"watching kernels one by one cost {-rest / whole:.1%} ({-rest:.3f} ms) more than "
        "the whole takes unwatched"
    )
    sentences = ["; ".join(parts) + "."]
    if phase["of_peak"] is not None and not beaten:
        sentences.append(
            f"At the machine's peaks its kernels would take {phase['least_ms']:.3f} ms: it runs at "
            f"{phase['of_peak']:.0%} of peak."
        )
        if phase["unknown_ms"]:
            sentences.append(
                "That leaves out kernels whose peak is unknown, which take "
                f"{phase['unknown_ms']:.3f} ms."
            )
    sentences.append(f"Its kernels write to {size(phase['memory_bytes'])} of memory.")
    return " ".join(sentences)


def peaks_text(peaks: Row | None) -> str:
    """The machine's peaks, in a sentence."""
    if peaks is None:
        return "The machine's peaks were not measured."
    threads = f", {peaks['threads']} threads" if peaks["threads"] else ""
    rates = [rate for _, rate in peaks["bandwidth"]]
    texts = [f"{rate_text(rate, 'FLOP/s')} in {dtype}" for dtype, rate in peaks["flops"]]
    texts.append(f"{rate_text(rates[0], 'B/s')} within its caches")
    texts.append(f"{rate_text(rates[-1], 'B/s')} from memory")
    about = f"measured with PyTorch ({peaks['device']}{threads})"
    return f"The machine's peaks, {about}: {', '.join(texts)}."


def share_text(share: float | None) -> str:
    """A share of peak for a narrow column: `61 %`, or "unknown"."""
    return "unknown" if share is None else f"{100 * share:.3g} %"


def findings(
    graph: Graph, kernels: Kernels | None, profile: Profile | None, target: str
) -> tuple[Finding, ...]:
    """The linters' findings in a graph, by its profile, else by the kernels of fusion."""
    computed = {k.phase for k in profile.kernels if k.nodes} if profile else set()
    # Without a phase's nodes, what its kernels compute is unknown.
    if profile is None or {p.name for p in profile.phases} - computed:
        return lint(graph, kernels, None, target)
    measured: MeasuredKernels = [(k.nodes, 1e-3 * k.median_ms) for k in profile.kernels]
    phases: Sequence[str] = [k.phase for k in profile.kernels]
    return lint(graph, None, measured, target, phases if len(set(phases)) > 1 else None)


def lint_document(findings: Iterable[Finding]) -> Row:
    """The document of `lint MODEL`: a row for each finding, and hazards, the costliest first."""
    rows: list[Row] = [
        {
            **fields(f, "hazard nodes operators scope message advice bytes measured"),
            "title": LINTERS[f.hazard].title,
            "remedy": f.remedy or None,
            "ms": 1e3 * f.seconds,
        }
        for f in findings
    ]
    groups: dict[tuple[str, str | None], Row] = {}
    for row in rows:
        new = {k: row[k] for k in ("hazard", "title", "remedy", "measured")}
        new |= {"found": 0, "bytes": 0, "ms": 0.0}
        group = groups.setdefault((row["hazard"], row["remedy"]), new)
        group["found"] += 1
        group["bytes"] += row["bytes"]
        group["ms"] += row["ms"]
        group["measured"] = group["measured"] and row["measured"]
    return {
        "hazards": sorted(groups.values(), key=lambda g: (-g["ms"], -g["bytes"])),
        "findings": rows,
    }


def lint_sections(document: Row) -> list[Section]:
    """The sections of `lint MODEL`: the hazards, and each finding."""
    if not document["findings"]:
        return [sentence(f"None of the {len(LINTERS)} linters finds anything.")]
    places = [
        {**f, "operators": f["operators"][:4] + ["…"] * (len(f["operators"]) > 4)}
        for f in document["findings"]
    ]
    how = "Costs are estimates, and the build may remove some of these itself."
    return [
        sentence("Costs are measured times." if document["measured"] else how),
        table("", document["hazards"], _HAZARDS),
        table("", places, _PLACES, [f["nodes"][0] for f in places], most=60),
    ]
