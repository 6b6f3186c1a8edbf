"""The engine's part of narrowing a fault: what a piece of the program before a pass shows.

A piece is a program of its own, on arguments from a run of the whole program before the pass. It is
compared with its result after the suspected passes, on the same values; PyTorch plays no part.
"""

import itertools
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np

from relascope.core.errors import EngineError
from relascope.core.graph import Graph, Kind, Node
from relascope.engine.building.explain import explain
from relascope.engine.faults import kept, replay
from relascope.engine.protocol.fault import OF_PASS, PieceResult, Suspects, Suspicion
from relascope.engine.turns import alone
from relascope.passes.catalogue import PassInfo
from relascope.passes.pipeline import Step
from relascope.passes.search.reduce import Piece, near, read_values, whole

Values = Mapping[str, np.ndarray]
Passes = Sequence[tuple[Step, PassInfo]]


@dataclass(frozen=True)
class Cutout:
    """What a backend needs to cut a piece out. `arguments` are the piece's names of arguments, in
    order, by ids of the nodes whose values they take; `parameters` has, by these names, the
    program's names of its parameters among them."""

    nodes: tuple[Node, ...]
    arguments: Mapping[str, str]
    parameters: Mapping[str, str]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class ProgramText:
    """A program as text with its constants by their names in it, or as TVM's JSON. `arguments` are
    the names in it of the arguments of "main", in the program's order; constants follow these."""

    text: str
    constants: Values
    json: str = ""
    arguments: tuple[str, ...] = ()


class PieceBackend(Protocol):
    """What cutting pieces out of programs, and reporting them, needs from an IR."""

    ir: str
    replay: replay.Engine  # reads and runs small programs; see `engine.faults.replay`

    def to_graph(self, program: Any, name: str = "main") -> tuple[Graph, dict[str, Any]]:
        """Draw one function of a program; also the IR's expression of each node by id."""

    def text(self, program: Any) -> str:
        """The IR's own text of a program, without the values of its constants."""

    def extract(self, program: Any, exprs: Mapping[str, Any], cutout: Cutout) -> Any:
        """A new program that computes a few nodes of another. `exprs` has the IR's expression of
        each node of its graph, by the node's id. Raises EngineError of kind "pass" where it reads
        something that is not a node."""

    def written(self, program: Any) -> ProgramText:
        """A small program as text that TVM reads back to the same."""


@dataclass(frozen=True)
class After:
    """The program after suspected passes of a recorded compile, which cannot run again. `program`,
    `graph` and `exprs` are as in `Start`; nodes that the passes left keep their ids. `values` are
    its nodes' in a run, by id, and some may be missing; `same` and `differ` are ids of nodes that
    are also in the program before the passes, by whether their values agree."""

    program: Any
    graph: Graph
    exprs: Mapping[str, Any]
    values: Values
    same: frozenset[str] = frozenset()
    differ: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Start:
    """The program before the suspected passes of `where`, with its graph and the IR's expression of
    each node by its id; `recorded` has values of nodes in a run of it, by id, and some may be
    missing. `least` is the least scale that differences are relative to; `after` is the program
    after the suspected passes, if they were recorded."""

    backend: PieceBackend
    where: Suspicion
    program: Any
    graph: Graph
    exprs: Mapping[str, Any]
    steps: Passes
    tail: Passes
    recorded: Values = field(default_factory=dict)
    least: float = 0.0
    after: After | None = None

    @property
    def target(self) -> str:
        """The target to build a piece for; "" if it need not be built."""
        return self.where.target if self.where.building else ""

    @cached_property
    def floor(self) -> float:
        """The least scale of differences; see `engine.faults.replay.floor_of`."""
        outputs = (self.recorded[o] for o in self.graph.outputs if o in self.recorded)
        return max(replay.floor_of(outputs), self.least)


@dataclass(frozen=True)
class Extracted:
    """A piece that was cut out: its program, its arguments' names by node id, their values by name,
    and the names of those that have random values, because none was recorded."""

    program: Any
    names: Mapping[str, str]
    values: Values
    random: tuple[str, ...]


def extracted(start: Start, piece: Piece) -> Extracted:
    """Cut a piece out of the program before the suspected passes; the whole program needs no cut.
    Raises EngineError of kind "pass" where it cannot be cut out."""
    try:
        return _cut_out(start, piece)
    except EngineError:
        if piece != whole(start.graph):
            raise
    graph, program = start.graph, start.program
    names = {i: graph.by_id[i].name for i in graph.inputs}
    params = {n: v for n, v in program.params.items() if n in names.values()}
    inputs = tuple(n for n in names.values() if n not in params)
    return with_values(start, replace(program, params=params, inputs=inputs), names)


def _cut_out(start: Start, piece: Piece) -> Extracted:
    graph = start.graph
    names: dict[str, str] = {}
    parameters: dict[str, str] = {}
    for ident in read_values(graph, piece):
        node = graph.by_id[ident]
        if not node.is_tensor:
            message = "A value of several tensors cannot be an argument of a piece."
            raise EngineError("pass", message, node.title)
        names[ident] = name = plain_name(node.name, names.values())
        if node.kind is Kind.PARAMETER:
            parameters[name] = node.name
    cutout = Cutout(tuple(graph.by_id[i] for i in piece.nodes), names, parameters, piece.outputs)
    return with_values(start, start.backend.extract(start.program, start.exprs, cutout), names)


def with_values(start: Start, program: Any, names: Mapping[str, str]) -> Extracted:
    """A piece with the values that its arguments have before the suspected passes."""
    values, made_up = {}, []
    for index, (ident, name) in enumerate(names.items()):
        if ident in start.recorded:
            values[name] = start.recorded[ident]
        else:
            values[name] = _random(start.graph.by_id[ident], index)
            made_up.append(name)
    return Extracted(program, names, values, tuple(made_up))


class Refusal(Exception):
    """A pass of the catalogue refuses a program, which is not a fault of the pass."""

    def __init__(self, error: EngineError) -> None:
        super().__init__(error.message)
        self.error = error


def transform(program: Any, passes: Passes) -> Any:
    for step, entry in passes:
        program = entry.applied(program, step)
    return program


def changed(start: Start, program: Any) -> Any:
    """A program after the suspected passes, which can replace it. Raises replay.Malformed where it
    cannot, and Refusal where a pass of the catalogue refuses the program."""
    made = program
    for step, entry in start.steps:
        try:
            made = entry.applied(made, step)
        except EngineError as error:
            if entry.own_file:
                raise
            raise Refusal(error) from error
    after, names = getattr(made, "mod", made), program.params.keys()
    replay.check_result(start.backend.replay, program.mod, after, names, same_result(start.steps))
    return made


def same_result(steps: Passes) -> bool:
    """Whether passes must keep the type of the result, as all but those to the gradient do."""
    return not any(entry.required for _, entry in steps)


def look(
    start: Start,
    piece: Piece,
    bare: bool = False,
    after: Callable[[Extracted], Extracted] | None = None,
) -> PieceResult:
    """What a piece shows; any error on the way is part of the answer. If `bare`, the suspected
    passes are left out: the answer is whether the piece can run at all. `after` gives a piece as
    recorded passes left it, which do not run."""
    where = start.where
    if where.kind in OF_PASS:
        return _passes_alone(start, piece, bare)
    ran = partial(replay.ran, start.backend.replay, target=start.target, optimised=not where.plain)
    tail = () if after else start.tail
    try:
        found = extracted(start, piece)
        left = ran(transform(found.program, tail).mod, found.values)
        found = after(found) if after else found
    except Exception as error:
        return PieceResult("cannot be run", error=message_of(error))
    if bare:
        return PieceResult("good")
    try:
        made = found.program if after else changed(start, found.program)
        right = ran(transform(made, tail).mod, found.values)
    except Refusal as refusal:
        return PieceResult("refused", error=refusal.error)
    except replay.Malformed as error:
        return PieceResult("crash", error=EngineError("pass", str(error)), crash="malformed")
    except (Exception, SystemExit) as error:
        return PieceResult("crash", error=message_of(error), crash="raises")
    if left is None or right is None:
        return PieceResult("good")
    if where.kind == "slow":
        with alone():
            ratio = replay.ratio(left, right)
        return PieceResult("slow" if ratio > where.limit else "good", ratio=ratio)
    return compared(start, left.results(), right.results(), piece)


def _passes_alone(start: Start, piece: Piece, bare: bool) -> PieceResult:
    """The time and memory of the suspected passes themselves on a piece."""
    where = start.where
    try:
        program = extracted(start, piece).program
        if bare:
            return PieceResult("good")
        memory, began = kept.since(), time.perf_counter()
        after = transform(program, start.steps)
        seconds, stayed = time.perf_counter() - began, memory()
        stayed = kept.beyond(stayed, *(start.backend.to_graph(p)[0] for p in (program, after)))
    except Exception as error:
        return PieceResult("cannot be run", error=message_of(error))
    taken = seconds if where.kind == "long" else stayed
    outcome = where.kind if taken > where.limit else "good"
    return PieceResult(outcome, seconds=seconds, kept_bytes=stayed)


def compared(
    start: Start, before: Sequence[np.ndarray], after: Sequence[np.ndarray], piece: Piece
) -> PieceResult:
    if len(before) != len(after):
        text = f"It has {len(before)} results before the pass, and {len(after)} after it."
        return PieceResult("cannot be run", error=EngineError("pass", text))
    gaps, limit = replay.differences(before, after, start.floor), start.where.limit
    # With a tail, gradients follow the outputs; an error is then not in one output alone.
    named = zip(piece.outputs, gaps, strict=False) if len(gaps) == len(piece.outputs) else ()
    wrong = [(g.max_rel, i) for i, g in named if not g.max_rel <= limit]
    wrong.sort(key=lambda pair: pair[0], reverse=True)
    worst = max(gaps, key=lambda g: g.max_rel)
    outcome = "good" if worst.max_rel <= limit else "wrong"
    return PieceResult(outcome, tuple(i for _, i in wrong), worst.max_abs, worst.max_rel)


def suspects(start: Start, after: Graph, later: Values) -> Suspects:
    same, differ = split_by_difference(start, later)
    graph, before = start.graph, start.recorded
    for ours, theirs in zip(graph.outputs, after.outputs, strict=False):
        if ours in before and theirs in later and ours not in same:
            gap = replay.difference(before[ours], later[theirs], start.floor)
            if not gap.max_rel <= start.where.limit:
                differ.add(ours)
    return Suspects(graph, near(graph, same, differ))


def split_by_difference(start: Start, later: Values) -> tuple[set[str], set[str]]:
    """Ids of the nodes that are also there after the passes: those whose values agree, and those
    whose values differ."""
    common = start.recorded.keys() & later.keys()
    gaps = {i: replay.difference(start.recorded[i], later[i], start.floor) for i in common}
    same = {i for i, gap in gaps.items() if gap.max_rel <= start.where.limit}
    return same, common - same


def message_of(error: BaseException) -> EngineError:
    return error if isinstance(error, EngineError) else explain(error, "step")


def plain_name(name: str, taken: Collection[str]) -> str:
    """A name like another that both IRs' texts can have."""
    base = re.sub(r"\W", "_", name)
    if base and not base[0].isalpha():
        base = f"v{base}"
    first, more = ([base], f"{base}_") if base else ([], "v")
    tried = itertools.chain(first, (f"{more}{i}" for i in itertools.count()))
    return next(n for n in tried if n not in taken)


def _random(node: Node, seed: int) -> np.ndarray:
    kind = node.outputs[0]
    shape = tuple(d if isinstance(d, int) else 1 for d in kind.shape)
    if "float" not in kind.dtype:
        return np.zeros(shape, kind.dtype)
    return np.random.default_rng(seed).standard_normal(shape).astype(kind.dtype)
