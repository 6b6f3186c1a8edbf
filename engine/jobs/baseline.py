"""A baseline of a model's compile: its operators, kernels, captures, memory, errors and times.

Later compiles are compared with it. It is plain JSON data, which people keep beside their code;
`viz.rows.gate.baseline` finds what differs between two. Knows no TVM."""

import statistics
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from relascope.core.graph import Graph, Kind, Node
from relascope.core.version import __version__
from relascope.engine.jobs.accuracy import OURS, Judged, Tolerance, judged
from relascope.engine.jobs.cut import joint_of, with_cut
from relascope.engine.jobs.step import step
from relascope.engine.protocol.plain import plain
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.results import ModelInfo
from relascope.engine.protocol.session import Ask
from relascope.engine.protocol.source import CODE, ModelSource, linkable
from relascope.engine.protocol.targets import EngineInfo
from relascope.engine.protocol.times import CompileTimes, TimeResult
from relascope.passes import cost
from relascope.passes.cuts.cut import STRATEGIES, cut
from relascope.passes.pipeline import Pipeline

VERSION = 1
"""The version of a baseline's format."""

ROUNDS, SECONDS = 7, 20.0
"""The most rounds of timing passes and build, and the seconds after which none begins."""

Document = dict[str, Any]

_DISTINCT = "training batch tokens seed dtype gradient values module call weights"
FACTS: Document = {n: getattr(ModelSource(""), n) for n in _DISTINCT.split()}
"""The options that distinguish programs of one model, with their defaults."""


def take(
    ask: Ask,
    ir: str,
    source: ModelSource,
    pipeline: Pipeline,
    target: str,
    speed: bool = False,
    threads: int = 0,
    tolerance: Tolerance = OURS,
    rounds: int = ROUNDS,
) -> Document:
    """A baseline of a model as it compiles now; with `speed`, also timed against PyTorch eager,
    which takes longest. Raises EngineError where import, a pass, the build or a run fails."""
    info: ModelInfo = ask("load", source, True)  # a failed import is no pass's fault
    described: EngineInfo = ask("describe")
    step(ask, source, pipeline).check()
    graph: Graph = ask("graph_after", source, pipeline, len(pipeline) - 1, True)
    kernels = ask("kernels", source, pipeline, True)

    def of(one: ModelSource) -> BuildRequest:
        return with_cut(ask, BuildRequest(one, pipeline, target, threads), required=False)

    request = of(source)
    found = judged(ask, source, of, tolerance)
    times: CompileTimes = ask("compile_times", request, rounds, SECONDS)
    document: Document = {
        "baseline": VERSION,
        "model": named(source.model),
        "engine": ir,
        "pipeline": str(pipeline),
        "options": {n: v for n, d in FACTS.items() if (v := getattr(source, n)) != d},
        "made": {
            "relascope": __version__,
            "tvm": described.version,
            "target": target,
            "machine": described.machine,
            "threads": threads,
            "when": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        },
        "operators": by_scope(calls(graph)),
        "kernels": kernels if kernels is None else kernel_lines(graph, kernels),
        "bytes": constant_bytes(graph),
        "flops": flops(graph),
        "memory": {"built": times.own_bytes},
        "error": error(found, info.against),
        "compile": compile_document(pipeline, times),
    }
    if graph.forward_outputs is not None:
        document["captures"] = captures(ask, source, pipeline)
    if speed:
        document["speed"] = speed_document(ask("time", request))
    return document


def timed_again(
    ask: Ask,
    document: Document,
    source: ModelSource,
    pipeline: Pipeline,
    target: str,
    threads: int,
    speed: bool,
) -> Document:
    """A document with its times measured again, twice as often; the better ones count."""
    request = with_cut(ask, BuildRequest(source, pipeline, target, threads), required=False)
    times: CompileTimes = ask("compile_times", request, 2 * ROUNDS, 2 * SECONDS)
    old, new = document["compile"], compile_document(pipeline, times)
    for table, again in ((old["passes"], new["passes"]), (old, new)):
        for name, one in again.items():
            if "best_ms" in one and one["best_ms"] < table[name]["best_ms"]:
                table[name] = one
    if speed:
        request = replace(request, repeats=2 * request.repeats)
        again = speed_document(ask("time", request))
        for phase, one in again.items():
            if one["ratio"] < document["speed"][phase]["ratio"]:
                document["speed"][phase] = one
    return document


def named(model: str) -> str:
    return model if linkable(model) else model.removeprefix(f"{CODE}:").rpartition("/")[2]


def calls(graph: Graph) -> list[Node]:
    return [n for g in graph.with_bodies() for n in g if n.kind is Kind.CALL]


def by_scope(nodes: Iterable[Node]) -> Document:
    counts: dict[str, Counter[str]] = {}
    for node in nodes:
        counts.setdefault(node.scope, Counter())[node.title] += 1
    return {scope: dict(sorted(c.items())) for scope, c in sorted(counts.items())}


def kernel_lines(graph: Graph, kernels: Sequence[Sequence[str]]) -> list[list[str]]:
    """The nodes that each kernel computes, one word each: "nn.dense @encoder.layer.0"."""
    computing = {n.id: n for n in graph if n.kind not in (Kind.TUPLE, Kind.ITEM)}
    named = ([computing[i] for i in nodes if i in computing] for nodes in kernels)
    return [[f"{n.title} @{n.scope}" if n.scope else n.title for n in ns] for ns in named if ns]


def constant_bytes(graph: Graph) -> Document:
    sizes = {Kind.PARAMETER: 0, Kind.CONSTANT: 0}
    for node in graph:
        if node.kind in sizes:
            sizes[node.kind] += node.bytes or 0
    return {"parameters": sizes[Kind.PARAMETER], "constants": sizes[Kind.CONSTANT]}


def flops(graph: Graph) -> Document:
    """Estimated floating-point operations (`passes.cost`): in total, and by operator."""
    found: Counter[str] = Counter()
    for node_id, count in cost.flops_of(graph).items():
        if count:
            found[graph.by_id[node_id].title] += round(count)
    return {"total": sum(found.values()), "by operator": dict(sorted(found.items()))}


def captures(ask: Ask, source: ModelSource, pipeline: Pipeline) -> Document:
    joint = joint_of(ask, source, pipeline)
    found: Document = {}
    for name in STRATEGIES:
        one = cut(joint, name)
        nodes = [joint.graph.by_id[i] for i in one.ids]
        found[name] = {"count": len(one.ids), "bytes": one.bytes, "of": by_scope(nodes)}
    return found


def error(result: Judged, against: str) -> Document:
    worst = result.worst
    return {
        "verdict": result.verdict,
        "worst": worst.name,
        "max_rel": plain(worst.max_rel),
        "limit": result.limit.of(worst.name),
        "dtype": worst.dtype,
        "against": against,
    }


def compile_document(pipeline: Pipeline, times: CompileTimes) -> Document:
    """Times of passes and build; a pass is named by its place and name, as "3 fold"."""
    taken = ((i, pipeline.steps[i].name, each) for i, each in sorted(times.passes))
    return {
        "passes": {f"{i + 1} {name}": spread(each) for i, name, each in taken},
        # Older baselines timed a remembered build.
        "build": spread(times.build) | {"anew": True},
        "yardstick": spread(times.yardstick),
    }


def spread(seconds: Sequence[float]) -> Document:
    """The best of some times, their median and quartiles in milliseconds, and their number."""
    ms = sorted(1e3 * s for s in seconds)
    quarters = statistics.quantiles(ms, n=4, method="inclusive") if len(ms) > 1 else ms * 3
    words = ("q1_ms", "median_ms", "q3_ms")
    told = dict(zip(words, (round(q, 4) for q in quarters), strict=True))
    return {"best_ms": round(ms[0], 4), **told, "runs": len(ms)}


def speed_document(result: TimeResult) -> Document:
    """Our time over eager's, by phase: the median of the rounds' ratios, and their quartiles."""
    found: Document = {}
    for row in result.rows:
        ratios = {"ratio": row.ratio_to_eager, "q1": row.ratio_q1, "q3": row.ratio_q3}
        if row.ratio_to_eager is not None:
            found[row.phase] = {n: round(v, 4) for n, v in ratios.items() if v is not None}
    return found
