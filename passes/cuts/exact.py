"""The cheapest cut within a limit: a mixed-integer program, solved by HiGHS.

Only saving is integer; recomputing is then a closure, whose linear program has integral solutions
(Jain et al., "Checkmate", MLSys 2020, for one recomputation of each value). There is no time limit,
so one question has the same answer everywhere.
"""

import ctypes
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relascope.passes.cuts.flow import Answer
from relascope.passes.cuts.problem import CutProblem

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
    count = len(given.ids)
    need = np.flatnonzero(given.needed)
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
