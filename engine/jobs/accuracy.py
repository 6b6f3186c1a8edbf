"""The accuracy report: every stage, in float32 and float64, against PyTorch. Knows no TVM.

Stages are the forward as inference, the forward in train mode, the joint function built whole, and,
for each capture strategy, the cut (outputs and captures of the forward program) and the split
(outputs and gradients of both)."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from relascope.core.errors import EngineError, refusing
from relascope.core.graph import Graph, Kind, line_number, reached
from relascope.engine.jobs.cut import with_cut
from relascope.engine.jobs.runs import fitting_runs, label_of, on_inputs
from relascope.engine.protocol.accuracy import AS_IMPORTED, WHOLE, Comparison, NodeError
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.results import PYTORCH, ModelInfo
from relascope.engine.protocol.session import Ask
from relascope.engine.protocol.source import INPUTS, ModelSource
from relascope.passes import cost
from relascope.passes.catalogue import info
from relascope.passes.cuts.cut import STRATEGIES, cut
from relascope.passes.pipeline import Pipeline

DTYPES = ("float32", "float64")
_GRADIENT = "gradient of "
_OUTPUT = "output "


@dataclass(frozen=True)
class Limit:
    """How far a tensor may be from PyTorch's: `outputs` and `gradients` relative to its scale; a
    difference up to `absolute` always passes."""

    outputs: float
    gradients: float
    absolute: float = 0.0

    def of(self, name: str) -> float:
        """The relative limit of a comparison, or of a node's counterpart, by its name."""
        return self.gradients if name.startswith(_GRADIENT) else self.outputs

    def ratio(self, error: Comparison | NodeError, name: str) -> float:
        """An error divided by its limit: above 1 is over it; `name` is as in `of`."""
        relative = error.max_rel / self.of(name)
        return min(relative, error.max_abs / self.absolute) if self.absolute else relative

    def over(self, error: Comparison) -> bool:
        return not self.ratio(error, error.name) <= 1

    def worst(self, comparisons: Iterable[Comparison]) -> Comparison:
        """The tensor nearest to its limit, or farthest over it."""
        return max(comparisons, key=lambda c: self.ratio(c, c.name))


LIMITS = {"float32": Limit(1e-5, 1e-4), "float64": Limit(1e-10, 1e-10)}
_STEPS = "steps of int8"
_UNITS = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8, _STEPS: 2.0**-8}
"""Half the distance of 1 to the next number; for values quantized to 127 steps, half a step."""
_FAR = 1 / 8
"""A tensor off by this much of its scale is wrong, however long its sums are."""


@dataclass(frozen=True)
class Tolerance:
    """The user's limit, for every precision: None and 0 leave what `LIMITS` says."""

    relative: float | None = None
    absolute: float = 0.0

    def limit(self, dtype: str) -> Limit:
        given = self.relative
        known = LIMITS[dtype] if given is None else Limit(given, given)
        return replace(known, absolute=self.absolute)

    def fitted(self, model: ModelInfo) -> "Tolerance":
        """The limit for a program that computes in 16 or 8 bits, whatever precision it is opened
        in, or in float32 without a PyTorch module, whose float64 would reveal rounding."""
        if self.relative is not None:
            return self
        kinds = {t.dtype for node in model.graph.nodes for t in node.outputs} & {*_UNITS}
        kinds |= {_STEPS} if in_steps(model.graph) else set()
        single = kinds <= {DTYPES[0]}
        if not kinds or (single and model.against == PYTORCH):
            return self
        # n rounded operations: 8 √n u, with a probability of almost 1 (Higham and Mary, 2019).
        limit = 8.0 * max(cost.longest(model.graph), 1.0) ** 0.5 * max(_UNITS[k] for k in kinds)
        if single and limit <= LIMITS[DTYPES[0]].outputs:
            return self
        return replace(self, relative=min(limit, _FAR))


def in_steps(graph: Graph) -> bool:
    """Whether a program quantizes values as it runs, which PyTorch does only in float32."""
    return any("quantized" in node.source for node in graph.nodes)


OURS = Tolerance()


@dataclass(frozen=True)
class Judged:
    """The results of a program, against PyTorch's. The `verdict` is "right", "rounding" (over a
    limit in float32, within it in float64) or "wrong"; `comparisons` are in the source's own
    precision."""

    verdict: str
    comparisons: tuple[Comparison, ...]
    limit: Limit

    @property
    def worst(self) -> Comparison:
        return self.limit.worst(self.comparisons)


def judged(
    ask: Ask, source: ModelSource, request: Callable[[ModelSource], BuildRequest], given: Tolerance
) -> Judged:
    """Build a program and compare its results; where float32 is over its limit, in float64 too.
    Raises EngineError where it cannot be built, or does not run."""
    limit = given.limit(source.dtype)
    found = ask("check", request(source))
    if not any(map(limit.over, found)):
        return Judged("right", found, limit)
    model: ModelInfo = ask("load", source)
    fitted = given.fitted(model)
    if source.dtype != DTYPES[0] or model.against != PYTORCH or fitted != given:
        limit = fitted.limit(source.dtype)  # a program has one precision
        return Judged("wrong" if any(map(limit.over, found)) else "right", found, limit)
    double, wider = replace(source, dtype=DTYPES[1]), given.limit(DTYPES[1])
    wrong = any(map(wider.over, ask("check", request(double))))
    return Judged("wrong" if wrong else "rounding", found, limit)


@dataclass(frozen=True)
class Stage:
    """A way to compute what the model does. `name` is "forward", "training forward", "gradient", or
    "cut and split"; a `budget` of None is the strategy's own; for `runs` see `BuildRequest`."""

    name: str
    source: ModelSource
    pipeline: Pipeline
    strategy: str = ""
    budget: float | int | None = None
    tolerance: Tolerance = OURS
    runs: int = 1


@dataclass(frozen=True)
class BadNode:
    """The node where the error first jumps. `max_abs` and `max_rel` are its error, `counterpart`
    what it was compared with; None and "" where it has none. `reason` says how it was found."""

    id: str
    title: str
    scope: str
    source: str
    max_abs: float | None
    max_rel: float | None
    counterpart: str
    reason: str
    line: str = ""

    @property
    def within(self) -> str:
        """Its scope and line, as they stand after a name: " in encoder.0, model.py:12", or ""."""
        scope, line = self.scope and f" in {self.scope}", line_number(self.line)
        return f"{scope}, {line}" if line else scope


@dataclass(frozen=True)
class AccuracyRow:
    """One line of the table. `stage` is "forward", "training forward", "gradient", "cut" or
    "split". `max_abs` and `max_rel` are the largest errors of all tensors, None where it failed;
    `worst` names the tensor nearest to its limit, or farthest over it, and `limit` is for its error
    relative to `scale`. `first_bad_node` is where the error first jumps, None where all is within
    the limits, or no single node is to blame; for `inputs` see `engine.jobs.runs.label_of`."""

    stage: str
    strategy: str
    dtype: str
    passed: bool
    max_abs: float | None = None
    max_rel: float | None = None
    limit: float | None = None
    worst: str = ""
    compared: int = 0
    first_bad_node: str | None = None
    first_bad: BadNode | None = None
    failure: EngineError | None = None
    seconds: float = 0.0
    inputs: str = INPUTS[0]
    scale: float | None = None
    error: float | None = None


def plan(
    ir: str,
    source: ModelSource,
    inference: Pipeline | None,
    training: Pipeline | None,
    strategies: Sequence[str] = tuple(STRATEGIES),
    budget: float | int | None = None,
    dtypes: Sequence[str] = DTYPES,
) -> tuple[Stage, ...]:
    """The stages, in the order of their runs. Each sets its mode and dtype, whatever the `source`
    has. If a pipeline, `inference` or `training`, is None, the stages of that mode are left out.
    Steps for inspection are always off."""
    stages = []
    for dtype in dtypes:
        if inference is not None:
            evaluated = replace(source, training=False, dtype=dtype, gradient="tvm")
            stages.append(Stage("forward", evaluated, built(ir, inference)))
        if training is None:
            continue
        trained, joint = replace(source, training=True, dtype=dtype), built(ir, training)
        names = [s.name for s in joint]
        if "root_grad_out" in names:
            before = joint.upto(names.index("root_grad_out") - 1)
            stages.append(Stage("training forward", trained, before))
        stages.append(Stage("gradient", trained, joint))
        # A budget of saved bytes does not limit the peak, unless `peak` alone is asked for.
        limits = [s for s in strategies if STRATEGIES[s].has_budget]
        limits = limits if len(strategies) == 1 else [s for s in limits if s != "peak"]
        cuts = ((s, budget if s in limits else None) for s in strategies)
        stages += (Stage("cut and split", trained, joint, *one) for one in cuts)
    return tuple(stages)


def with_inputs(stages: Sequence[Stage], kinds: Sequence[str]) -> tuple[Stage, ...]:
    return tuple(replace(s, source=replace(s.source, values=k)) for s in stages for k in kinds)


def opened(stages: Sequence[Stage], training: bool) -> ModelSource:
    """The source that opens the model: in the requested mode, because a model traced in train mode
    opens in no other. Its inference is a stage that fails."""
    return next((s.source for s in stages if s.source.training == training), stages[0].source)


def of_program(
    ask: Ask, stages: Sequence[Stage], target: str, training: bool, others: bool
) -> tuple[tuple[Stage, ...], tuple[str, ...]]:
    """The stages that a model has, and sentences on what its runs do not reach. A program that came
    without PyTorch, or that quantizes, has one precision, and a gradient only if requested. With
    `others`, the first stage of a program without PyTorch has other runs than the sample's, too.
    Raises EngineError where it cannot be opened."""
    info: ModelInfo = ask("load", opened(stages, training))
    others = others and info.against != PYTORCH
    if info.against == PYTORCH and not in_steps(info.graph):
        return tuple(stages), ()
    own = [s for s in stages if s.source.dtype == DTYPES[0] and s.source.training == training]
    runs, said = fitting_runs(ask, own[0].source, target) if others else ((), ())
    return (*own, *(replace(own[0], source=run) for run in runs)), said


def each(
    stages: Iterable[Stage], run: Callable[[Stage], tuple[AccuracyRow, ...]]
) -> Iterator[tuple[Stage, tuple[AccuracyRow, ...]]]:
    """The rows of each stage; no cut is tried where the gradient cannot be taken."""
    without: set[ModelSource] = set()
    for stage in stages:
        if stage.strategy and stage.source in without:
            continue
        rows = run(stage)
        if stage.name == "gradient" and rows[0].failure is not None:
            without.add(stage.source)
        yield stage, rows


def built(ir: str, pipeline: Pipeline) -> Pipeline:
    """The pipeline with steps for inspection switched off: they change nothing."""
    looking = (i for i, s in enumerate(pipeline) if s.enabled and info(ir, s).looking)
    return pipeline.switched(looking, False)


def run(ask: Ask, stage: Stage, target: str) -> tuple[AccuracyRow, ...]:
    """Run one stage: build it, compare it, and where it fails find the node. Returns one row, or
    two for "cut and split". Raises EngineError only of kind "cancelled": any other becomes a row
    that did not pass."""
    began = time.perf_counter()
    limit = stage.tolerance.limit(stage.source.dtype)
    names = ("cut", "split") if stage.strategy else (stage.name,)
    about = stage.strategy, stage.source.dtype, False
    empty = [AccuracyRow(n, *about, inputs=label_of(stage.source)) for n in names]
    try:
        request = _request(ask, stage, target)
        found = ask("check", request, request.split)
        rows = [filled(row, _of(row.stage, found), limit) for row in empty]
        if not _passed(rows):
            limit = stage.tolerance.fitted(ask("load", stage.source)).limit(stage.source.dtype)
            rows = [filled(row, _of(row.stage, found), limit) for row in empty]
        if not _passed(rows):
            nodes = ask("inside", request)
            graph = ask("graph_after", stage.source, stage.pipeline, len(stage.pipeline) - 1)
            forward = any(limit.over(c) for c in found if not c.name.startswith(_GRADIENT))
            bad = first_bad(graph, nodes, limit, forward)
            node = None if bad is None else bad.id
            rows = [r if r.passed else replace(r, first_bad=bad, first_bad_node=node) for r in rows]
    except EngineError as error:
        rows = [replace(row, failure=error.as_finding()) for row in empty]
    seconds = time.perf_counter() - began
    return tuple(replace(row, seconds=seconds / len(rows)) for row in rows)


def _request(ask: Ask, stage: Stage, target: str) -> BuildRequest:
    request = BuildRequest(stage.source, stage.pipeline, target, runs=stage.runs)
    if not stage.strategy:
        return request
    hint = "See the steps of the training pipeline."
    with refusing("pass", "The program cannot be cut: {}.", stage.strategy, hint):
        return with_cut(ask, request, lambda joint: cut(joint, stage.strategy, stage.budget))


def _of(stage: str, found: Iterable[Comparison]) -> list[Comparison]:
    """The comparisons that are a row's own."""
    left_out = {"cut": _GRADIENT, "split": "capture "}.get(stage)
    return [c for c in found if left_out is None or not c.name.startswith(left_out)]


def filled(row: AccuracyRow, comparisons: Sequence[Comparison], limit: Limit) -> AccuracyRow:
    """A row with the results: the largest errors, and whether all is within the limits."""
    worst = limit.worst(comparisons)
    passed = not any(map(limit.over, comparisons))
    largest = max(c.max_abs for c in comparisons), max(c.max_rel for c in comparisons)
    about = row.stage, row.strategy, row.dtype, passed, *largest
    told = AccuracyRow(*about, limit.of(worst.name), worst.name, len(comparisons))
    return replace(told, inputs=row.inputs, scale=worst.scale, error=worst.max_rel)


def first_bad(
    graph: Graph, nodes: Iterable[NodeError], limit: Limit, forward: bool
) -> BadNode | None:
    """The node where the error first jumps.

    That is the first in graph order over its limit: every node before it that has a counterpart is
    within. Most nodes of the backward have none; there, the nodes that lead to a right gradient
    count as right, and the first other node on the way from a grad_out to a wrong gradient is the
    result. The same holds for results of a program that came without PyTorch. `forward` says
    whether an output or capture is over its limit; else the limit of gradients holds for the
    forward's nodes, too.

    None where every node that has a counterpart is within its limit: the fault is then not in one
    node, but in how the program was fused or compiled."""
    ahead = graph.ancestors(graph.outputs[: graph.forward_outputs])
    worst = worst_by_node(e for e in nodes if e.id in graph.by_id)

    def over(error: NodeError) -> bool:
        strict = forward and error.id in ahead
        return not limit.ratio(error, "" if strict else _GRADIENT) <= 1

    wrong = {i for i, error in worst.items() if over(error)}
    ends = {i for i in wrong if worst[i].counterpart.startswith((_GRADIENT, _OUTPUT))}
    results = {i for i in ends if worst[i].counterpart.startswith(_OUTPUT)}
    imported = any(e.counterpart.endswith(AS_IMPORTED) for e in worst.values())
    wanted = "as it was imported" if imported else "as PyTorch has it"
    direct = next((n.id for n in graph if n.id in wrong - ends), None)
    if direct is not None:
        return _bad(graph, direct, worst, f"the first node that is not {wanted}")
    if not ends:
        return None
    right = {i for i in worst.keys() - wrong if worst[i].counterpart != WHOLE}
    # Errors in the results also spoil the gradients after them.
    found = _to_blame(graph, results or ends, right, set() if results else ahead)
    what = "result" if results else "gradient"
    if found in worst:
        return _bad(graph, found, worst, f"the first {what} that is not {wanted}")
    reason = f"its inputs also lead to right {what}s; what is computed from it is not {wanted}"
    return _bad(graph, found, worst, reason)


_GIVEN = (Kind.INPUT, Kind.PARAMETER, Kind.CONSTANT)


def _to_blame(graph: Graph, ends: Collection[str], right: Iterable[str], ahead: set[str]) -> str:
    """The first node on the way to wrong ends that leads to nothing right, after inputs that the
    forward (`ahead`) does not read; else the first of the ends."""
    blamed = graph.ancestors(ends) - graph.ancestors(right)
    if ahead:
        others = (i for i in graph.inputs if i not in ahead)
        blamed &= reached(others, graph.readers.__getitem__).keys()
    suspects = (n.id for n in graph if n.id in blamed and n.kind not in _GIVEN)
    return next(suspects, next(n.id for n in graph if n.id in ends))


def worst_by_node(errors: Iterable[NodeError]) -> dict[str, NodeError]:
    worst: dict[str, NodeError] = {}
    for error in errors:
        if error.id not in worst or worst[error.id].max_rel < error.max_rel:
            worst[error.id] = error
    return worst


def _bad(graph: Graph, ident: str, errors: Mapping[str, NodeError], reason: str) -> BadNode:
    node, error = graph.by_id[ident], errors.get(ident)
    about = ident, node.title, node.scope, node.source
    if error is None:
        return BadNode(*about, None, None, "", reason, node.line)
    return BadNode(*about, error.max_abs, error.max_rel, error.counterpart, reason, node.line)


def by_inputs(
    rows: Sequence[AccuracyRow], against: str = PYTORCH
) -> tuple[tuple[str, AccuracyRow], ...]:
    """For each kind of inputs a verdict, and the row nearest to its limit, or farthest over it. The
    verdict is "right", "rounding" (over in float32, within in float64), "wrong", "over" (in
    float32; float64 not tried) or "cannot be run"; `against` is as in `verdict`."""
    one, found = against != PYTORCH, []  # whether there is one precision
    for kind in dict.fromkeys(r.inputs for r in rows):
        own = [r for r in rows if r.inputs == kind]
        over = [r for r in own if not r.passed]
        double = [r for r in over if one or r.dtype != DTYPES[0]]
        failed = [r for r in over if r.failure is not None]
        known = "rounding" if any(r.dtype != DTYPES[0] for r in own) else "over"
        said = "cannot be run" if failed else "wrong" if double else known if over else "right"
        found.append((said, max(failed or double or over or own, key=_share)))
    return tuple(found)


def _share(row: AccuracyRow) -> float:
    return (row.error or 0.0) / row.limit if row.limit else 0.0


def verdict(rows: Sequence[AccuracyRow], against: str = PYTORCH) -> str:
    """The table in a few sentences: is it rounding, or is it wrong?"""
    if not rows:
        return "Nothing was compared."
    if not _passed(rows):
        return " ".join(_sentences(rows, against))
    limits: dict[str, float] = {}
    for row in rows:
        limits[row.dtype] = max(limits.get(row.dtype, 0.0), row.limit or 0.0)
    within = " and ".join(f"{limit:.0e} of the scale in {d}" for d, limit in limits.items())
    labels = dict.fromkeys(row.inputs for row in rows)
    kinds = ", ".join(k for k in labels if " at " not in k) + " inputs"
    kinds += "".join(f", {on_inputs(k)}" for k in labels if " at " in k)
    return f"Every stage agrees with {against}: within {within}, on {kinds}, run once."


def _passed(rows: Iterable[AccuracyRow]) -> bool:
    return all(row.passed for row in rows)


def _sentences(rows: Sequence[AccuracyRow], against: str) -> Iterator[str]:
    failures: dict[str, list[str]] = {}
    by_stage: dict[tuple[str, str, str], dict[str, AccuracyRow]] = {}
    for row in rows:
        by_stage.setdefault((row.stage, row.strategy, row.inputs), {})[row.dtype] = row
    for (stage, strategy, inputs), found in by_stage.items():
        if _passed(found.values()):
            continue
        name = f"{stage} ({strategy})" if strategy else stage
        name += f" on {on_inputs(inputs)}" if inputs != INPUTS[0] else ""
        failed = next((r.failure for r in found.values() if r.failure is not None), None)
        if failed is not None:
            failures.setdefault(failed.message.partition("\n")[0], []).append(name)
            continue
        single, double = found.get("float32"), found.get("float64")
        if double is None and against != PYTORCH:
            assert single is not None
            yield f"{name}: wrong: over the limit{_at(single)}."
        elif double is None:
            yield f"{name}: over the limit in float32; float64 would show whether it is rounding."
        elif double.passed:
            assert single is not None
            yield f"{name}: rounding: over the limit in float32{_at(single)}, right in float64."
        else:
            yield f"{name}: wrong: over the limit in float64{_at(double)}."
    for message, names in failures.items():  # most stages fail for one reason
        yield f"{', '.join(names)}: could not be run: {message}"


def _at(row: AccuracyRow) -> str:
    if row.first_bad is None:
        return ""
    node, where = row.first_bad, row.first_bad.within
    return f", first at {node.title}" + (f" ({node.source}{where})" if node.source else where)
