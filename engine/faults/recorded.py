"""Narrow inside a pass of a recorded compile, which cannot run again.

A piece before the pass is compared with the nodes that compute the same values after it, on values
of a run before it. Nodes match by id (`core.identity`), which is a guess where the pass changed a
value's meaning. So an inner value counts only if it is to blame: with the right value in its place,
the program after the pass must be right, or nearly.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from relascope.core.errors import EngineError
from relascope.core.graph import Graph, Kind, reached
from relascope.engine.faults import narrow, replay
from relascope.engine.faults.narrow import After, Cutout, Extracted, Start, plain_name, with_values
from relascope.engine.protocol.fault import PieceResult
from relascope.passes.search.reduce import Piece, read_values, whole

_LEFT = 0.1
"""The fraction of the program's error that may be left with a right value in place."""
_ARGUMENTS = (Kind.INPUT, Kind.PARAMETER)


def look(start: Start, piece: Piece, bare: bool = False) -> PieceResult:
    """What a piece shows, as `narrow.look` answers for passes that can run."""
    shown = narrow.look(start, piece, bare, partial(piece_after, start, piece))
    if shown.outcome != "wrong" or piece == whole(start.graph):
        return shown
    try:
        for ident in shown.outputs:
            if ident not in start.graph.outputs:
                _blame(start, ident)
    except Exception as error:
        return PieceResult("cannot be run", error=narrow.message_of(error))
    return shown


def piece_after(start: Start, piece: Piece, before: Extracted) -> Extracted:
    """The part of the program after the pass that computes a piece's results. Raises EngineError of
    kind "pass" where it is not known, or cannot be cut out."""
    after, everything = _after(start), piece == whole(start.graph)
    inside = set(piece.nodes)
    stops = set[str]()
    if not everything:
        read = read_values(start.graph, piece)
        for ident in read:
            _there(start, ident)
        stops = {*read, *(after.same - inside)}
    wanted = [_there(start, ident) for ident in piece.outputs]
    outside = set() if everything else after.differ - inside
    names = {i: n for i, n in before.names.items() if i in after.graph.by_id}
    try:
        return _cut(start, wanted, stops - set(wanted), names, outside)
    except EngineError:
        if not everything:
            raise
    graph = after.graph
    return with_values(start, after.program, {i: graph.by_id[i].name for i in graph.inputs})


def _cut(
    start: Start,
    wanted: Sequence[str],
    stops: Collection[str],
    names: dict[str, str],
    outside: Collection[str] = (),
    values: Mapping[str, np.ndarray] | None = None,
) -> Extracted:
    """A piece of the program after the pass. It takes the `stops` that it reads as arguments, with
    `values` or those of a run before the pass, and must not read nodes in `outside`."""
    after = _after(start)
    nodes, given = _reached(after.graph, wanted, stops, outside)
    named: dict[str, str] = {}
    for node in after.graph:
        if node.id in given:
            taken = [*names.values(), *named.values()]
            named[node.id] = names.get(node.id) or plain_name(node.name, taken)
    cutout = Cutout(tuple(n for n in after.graph if n.id in nodes), named, {}, tuple(wanted))
    program = start.backend.extract(after.program, after.exprs, cutout)
    if not start.recorded:
        return with_values(start, program, named)  # nothing is run
    known = {**start.recorded, **(values or {})}
    if missing := [i for i in named if i not in known]:
        message = "After the pass it reads a node that has no value before it."
        raise EngineError("pass", message, after.graph.by_id[missing[0]].title)
    return Extracted(program, named, {n: known[i] for i, n in named.items()}, ())


def _reached(
    graph: Graph, wanted: Iterable[str], stops: Collection[str], outside: Collection[str]
) -> tuple[set[str], set[str]]:
    """Ids of the nodes that a piece computes, and of its arguments."""
    nodes, given = set[str](), set[str]()

    def read(ident: str) -> Collection[str]:
        node = graph.by_id[ident]
        if node.kind in _ARGUMENTS or (ident in stops and node.is_tensor):
            given.add(ident)
        elif ident in outside:
            message = f"After the pass it reads {node.title}, which is itself wrong."
            raise EngineError("pass", message)
        elif node.kind is not Kind.CONSTANT:
            nodes.add(ident)
            return graph.edges[ident]
        return ()

    reached(wanted, read)
    return nodes, given


def _blame(start: Start, ident: str) -> None:
    """Refuse a node that is not to blame for the program's error."""
    after, there = _after(start), _there(start, ident)
    right = {there: start.recorded[ident]}
    rest = _cut(start, after.graph.outputs, right.keys(), {}, values=right)
    run = replay.ran(start.backend.replay, rest.program.mod, rest.values, start.where.target)
    assert run is not None, "what is wrong was built"
    expected = [start.recorded[o] for o in start.graph.outputs]
    seen = [after.values[o] for o in after.graph.outputs]
    gaps = (replay.differences(expected, made, start.floor) for made in (seen, run.results()))
    was, left = (max((g.max_rel for g in found), default=0.0) for found in gaps)
    if left > max(start.where.limit, _LEFT * was):
        message = "With its right value in place, the program is still as wrong."
        raise EngineError("pass", message, start.graph.by_id[ident].title)


def _there(start: Start, ident: str) -> str:
    """The node after the pass that has the value of one before it."""
    after, node = _after(start).graph, start.graph.by_id[ident]
    places = zip(start.graph.outputs, after.outputs, strict=False)
    found = next((theirs for ours, theirs in places if ours == ident), ident)
    if found not in after.by_id or after.by_id[found].outputs != node.outputs:
        raise EngineError("pass", "Its counterpart after the pass is not known.", node.title)
    return found


def _after(start: Start) -> After:
    assert start.after is not None, "asked of recorded passes alone"
    return start.after
