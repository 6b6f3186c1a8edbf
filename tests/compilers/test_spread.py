"""Mean, median, NaN and infinity beside the largest error of a tensor."""

import math

import pytest
import torch

from relascope.engine.measure.compare import comparison
from relascope.engine.measure.difference import scale_of
from relascope.engine.protocol.accuracy import Spread


def of(ours, theirs, scale=4.0):
    return comparison("t", torch.tensor(ours), torch.tensor(theirs), scale, scale)


def test_mean_and_median_stand_beside_the_largest_and_what_is_no_number_here_is_counted():
    found = of([1.0, 2.0, 3.0, 4.0, 6.0], [1.0, 2.5, 3.0, 4.0, 4.0])
    assert (found.max_abs, found.max_rel) == (2.0, 0.5)
    assert found.spread == Spread(0.5, 0.125, 0.0, 0.0, 0, 0)
    nan, inf = math.nan, math.inf
    found = of([nan, nan, inf, inf, 1.0], [nan, 1.0, inf, 2.0, 1.0])
    assert found.max_abs == inf
    assert found.spread == Spread(inf, inf, 0.0, 0.0, 1, 1)


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_large_tensor_has_the_same_figures_as_at_once(dtype, odd):
    draw = torch.Generator().manual_seed(0)
    theirs = torch.randn(3_000_001, generator=draw, dtype=dtype)
    ours = theirs + torch.rand(3_000_001, generator=draw, dtype=dtype) ** 8
    if odd:
        ours[2_500_000:] = math.nan
    found = comparison("t", ours, theirs, scale_of(theirs), 2.0)
    apart = (ours.double() - theirs.double()).abs().nan_to_num(nan=math.inf)
    assert found.max_abs == float(apart.max()) == 2 * found.max_rel
    assert found.spread.median_abs == float(apart.median())
    assert found.spread.mean_abs == pytest.approx(float(apart.mean()))
    assert found.spread.nans == (500_001 if odd else 0)
    assert found.scale == float(theirs.abs().max())


def test_a_scale_is_the_largest_finite_magnitude_and_a_median_no_samples():
    scales = ([1.0, -3.0], 3.0), ([math.nan, 2.0, -math.inf], 2.0), ([True, False], 1.0), ([], 0.0)
    for values, scale in scales:
        assert scale_of(torch.tensor(values)) == scale
    apart = torch.zeros(1 << 21)
    step = apart.numel() // (1 << 14) | 1
    apart[::step] = 5.0  # all that is sampled
    spread = comparison("t", apart, torch.zeros_like(apart), 1.0, 1.0).spread
    assert spread.median_abs == 0.0
