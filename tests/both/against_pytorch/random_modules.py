"""Modules drawn at random, through the dispatch without its own check: none may be wrong."""

import pytest

from grammar import fewest, verdict
from quick import ENGINE, QUICK

ONCE_WRONG = (
    "views: padded",  # a gradient of another shape, for negative widths
    "indices: embedding padded",  # in eval mode the padding row had a gradient
    "arithmetic: bfloat16",  # its rounding was left out in Relax
    # Masks of inputs that lie otherwise in memory, in attention, too.
    pytest.param("attention: encoder layer", marks=pytest.mark.exhaustive),
    "without gradients: data",  # an output required a gradient
    "dropout: transposed",
    "indices: index add",  # Relax could not build its gradient
    "norms: batch norm, mean of all",  # each run moves its statistics by another amount
)
REFUSED = ("norms: batch norm, mean of all",)
PER_TEST = 20


def never_wrong(seed, recipe=None):
    word, about = verdict(seed, ENGINE, QUICK, recipe)
    if word == "wrong":
        drawn = recipe or about.partition(": ")[2].rpartition(": ")[2].split(", ")
        about += f"; by {fewest(seed, ENGINE, QUICK, drawn)}" if len(drawn) > 1 else ""
    assert word != "wrong", about
    return word


@pytest.mark.parametrize("step", ONCE_WRONG)
def test_steps_that_were_wrong_are_right_or_refused(step):
    assert never_wrong(0, [step, "layers: linear"]) == ("refused" if step in REFUSED else "right")


def test_what_a_trace_does_not_hold_is_as_in_pytorch():
    stops = "no_grad", "data", "straight through", "given out", "detached part"
    buffers = "averaged", "slice written", "replaced"
    steps = *(f"without gradients: {s}" for s in stops), *(f"buffers: {b}" for b in buffers)
    assert never_wrong(0, steps) == "right"


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_a_few_modules_are_right_or_refused(seed):
    never_wrong(seed)


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", range(0, 500, PER_TEST))
def test_all_modules_are_right_or_refused(first):
    words = [never_wrong(seed) for seed in range(first, first + PER_TEST)]
    assert words.count("right") >= PER_TEST // 2
