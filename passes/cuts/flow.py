"""The cheapest cut of a `CutProblem`: as a minimum cut of a flow network, or within a limit.

A value is two vertices, its making and its presence, joined by an edge that costs its saved bytes;
the source feeds the making with its price of recomputation. A minimum cut, by SciPy's
`maximum_flow`, solves such a project selection exactly (Picard, "Maximal closure of a graph",
1976).

Within a limit, it is a mixed-integer program, solved by HiGHS. Only saving is integer; recomputing
is then a closure, whose linear program has integral solutions (Jain et al., "Checkmate", MLSys
2020, for one recomputation of each value). There is no time limit, so one question has the same
answer everywhere."""

import ctypes
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relascope.passes.cuts.problem import CutProblem

_INFINITE = 2**30
_SOURCE, _SINK = 0, 1

Floats = NDArray[np.float64]
Prices = tuple[Floats, Floats]
"""For each value the price of saving it, and of recomputing it."""

Entries = tuple[Floats, tuple[NDArray[np.int64], NDArray[np.int64]]]
"""Of a sparse matrix the values that are not 0, with their rows and columns."""

GAP = 5e-3  # the share above the least cost within which the solver may stop
NODES = 20  # of the search tree; then the solver stops with its best answer

LARGE = 6_000
"""Values and edges beyond which the solver would take minutes; prices decide instead."""

_TIE = 1e-6  # the limited share in the cost, which decides only between answers of equal cost


@dataclass(frozen=True)
class Answer:
    """For each value of a problem, in its order: whether it is saved, whether recomputed."""

    saved: NDArray[np.bool_]
    again: NDArray[np.bool_]

    def named(self, given: CutProblem) -> frozenset[str]:
        """Ids of the captures: saved values, and masks that are drawn again."""
        first = len(given.ids) - given.masks
        kept = np.concatenate([self.saved[:first], self.again[first:]])
        return frozenset(given.ids[k] for k in np.flatnonzero(kept))


def cheapest(given: CutProblem, price: float) -> Answer:
    """The answer with the least bytes plus `price` (bytes a second) times the seconds of its
    recomputation and of the traffic of its saved values; of equal answers, the one that recomputes
    fewest values. Prices are scaled to SciPy's 32-bit capacities: the cost is within one part in
    2**30 of the least, times the number of values saved and recomputed. Raises ValueError if a wish
    leaves a value that can be neither saved nor recomputed."""
    count = len(given.ids)
    forced = np.zeros(count, dtype=np.bool_)
    forced[list(given.forced)] = True
    known, save = saving(given), given.save + price * given.carry
    redo = given.redo.copy()
    redo[np.isfinite(redo)] *= price
    redo += given.state
    bound = save[known.saved].sum() + redo[known.again].sum()
    if not np.isfinite(bound):
        raise ValueError("the choices by hand leave a value neither saved nor computed again")
    if count == 0 or bound == 0.0:
        return Answer(forced | known.saved, known.again)
    scale = (_INFINITE - 1 - 4 * count) / bound
    # The two vertices of each value; choices that are impossible are merged away.
    making = 2 + 2 * np.arange(count)
    making[np.isinf(given.redo)] = _SOURCE
    being = np.where(np.isinf(given.save), making, 3 + 2 * np.arange(count))
    need = np.arange(count)[given.needed]
    tails = [being[given.sources], being[need], making, np.full(count, _SOURCE)]
    heads = [making[given.targets], np.full(len(need), _SINK), being, making]
    weights = [np.full(len(ways), _INFINITE) for ways in (given.sources, need)]
    weights += [_capacities(save, scale), _capacities(redo, scale)]
    edges = np.concatenate(tails), np.concatenate(heads), np.concatenate(weights)
    there = _sink_side(*edges, 2 + 2 * count)
    return Answer(forced | (there[being] & ~there[making]), there[making])


def saving(given: CutProblem) -> Answer:
    """The answer that saves all needed values, or the operands of those that cannot be saved."""
    again, there = np.zeros(len(given.ids), dtype=np.bool_), given.needed.copy()
    fresh = there & np.isinf(given.save)
    while fresh.any():
        again |= fresh
        read = np.zeros_like(again)
        read[given.sources[fresh[given.targets]]] = True
        there |= read
        fresh = read & ~again & np.isinf(given.save)
    return Answer(there & ~again, again)


def _capacities(prices: NDArray[np.float64], scale: float) -> NDArray[np.int64]:
    scaled = np.minimum(np.where(np.isinf(prices), _INFINITE, prices * scale), _INFINITE)
    whole = np.rint(scaled).astype(np.int64)
    return np.where((prices > 0) & (whole == 0), 1, whole)


def _sink_side(
    tails: NDArray[np.int64], heads: NDArray[np.int64], weights: NDArray[np.int64], size: int
) -> NDArray[np.bool_]:
    """The vertices of a network of `size` that still reach the sink under the maximum flow."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    # Without loops, ways into the source, and empty edges.
    used = (weights > 0) & (tails != heads) & (heads != _SOURCE)
    network = coo_matrix((weights[used], (tails[used], heads[used])), shape=(size, size)).tocsr()
    network.data = np.minimum(network.data, _INFINITE).astype(np.int32)
    left = network - maximum_flow(network, _SOURCE, _SINK).flow
    left.eliminate_zeros()
    reached = breadth_first_order(left.T.tocsr(), _SINK, return_predecessors=False)
    there = np.zeros(size, dtype=np.bool_)
    there[reached] = True
    return there


def exact(given: CutProblem, cost: Prices, limited: Prices, most: float) -> Answer | None:
    """The cheapest answer that the solver finds with at most `most` of `limited`; None if it finds
    none, and for a graph beyond `LARGE`."""
    count = len(given.ids)
    if count + len(given.sources) > LARGE:
        return None
    able = np.isfinite(np.concatenate([given.save, given.redo]))
    price, weight = (np.where(able, np.concatenate(p), 0.0) for p in (cost, limited))
    whole = price.sum()
    if not whole:
        return None
    entries, low = _rows(given, weight / (most or 1.0))
    high = np.full(len(low), np.inf)
    low[-1], high[-1] = -np.inf, float(most > 0)
    answer = solved(
        price / whole + _TIE * weight / (weight.sum() or 1.0),
        entries,
        low,
        high,
        np.concatenate([np.ones(count), given.state > 0]),
        # A value beyond the limit by itself is excluded here, which makes the solver faster.
        (able & (weight <= most)).astype(float),
        mip_rel_gap=GAP,
        node_limit=NODES,
    )
    if answer.x is None:
        return None
    chosen = answer.x > 0.5
    if weight[chosen].sum() > most:  # within the solver's tolerance, but not within ours
        return None
    saved, again = chosen.reshape(2, count)
    saved[list(given.forced)] = True
    return Answer(saved, again)


def solved(
    price: Floats, entries: Entries, low: Floats, high: Any, whole: Floats, most: Floats, **how: Any
) -> Any:
    """HiGHS's answer for columns from 0 to `most`, and rows of `entries` from `low` to `high`, with
    the options `how`. Its own output goes to stderr, for it would corrupt a command's JSON."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # slow to import
    from scipy.sparse import coo_matrix

    rows = LinearConstraint(coo_matrix(entries, shape=(len(low), len(price))), low, high)
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        return milp(price, constraints=rows, integrality=whole, bounds=Bounds(0, most), options=how)
    finally:
        ctypes.CDLL(None).fflush(None)
        os.dup2(kept, 1)
        os.close(kept)


def _rows(given: CutProblem, weight: Floats) -> tuple[Entries, Floats]:
    """The constraints: needed values and operands of recomputed ones are present, and the limit."""
    count, need = len(given.ids), np.flatnonzero(given.needed)
    edges = len(given.sources)
    one, more = np.arange(len(need)), len(need) + np.arange(edges)
    last = len(need) + edges
    rows = np.concatenate([one, one, more, more, more, np.full(2 * count, last)])
    sources, targets = given.sources, given.targets
    read = [sources, sources + count, targets + count]
    columns = np.concatenate([need, need + count, *read, np.arange(2 * count)])
    values = np.concatenate([np.ones(2 * len(need)), np.ones(2 * edges), -np.ones(edges), weight])
    low = np.concatenate([np.ones(len(need)), np.zeros(edges), [0.0]])
    return (values, (rows, columns)), low
