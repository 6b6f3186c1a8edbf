"""Mean, median, NaN and infinity beside the largest error of a tensor."""

import math

import torch

from relascope.engine.measure.compare import comparison


def of(ours, theirs, scale=4.0):
    return comparison("t", torch.tensor(ours), torch.tensor(theirs), scale, scale)


def test_mean_and_median_stand_beside_the_largest():
    found = of([1.0, 2.0, 3.0, 4.0, 6.0], [1.0, 2.5, 3.0, 4.0, 4.0])
    assert (found.max_abs, found.max_rel) == (2.0, 0.5)
    spread = found.spread
    assert (spread.mean_abs, spread.mean_rel) == (0.5, 0.125)
    assert (spread.median_abs, spread.median_rel) == (0.0, 0.0)
    assert (spread.nans, spread.infinities) == (0, 0)


def test_what_is_no_number_here_alone_is_counted():
    nan, inf = math.nan, math.inf
    found = of([nan, nan, inf, inf, 1.0], [nan, 1.0, inf, 2.0, 1.0])
    assert found.max_abs == inf
    assert (found.spread.nans, found.spread.infinities) == (1, 1)
    assert found.spread.mean_abs == inf
    assert found.spread.median_abs == 0.0
