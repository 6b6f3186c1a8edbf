"""What a row of a timing says of its runs, and what memory a run takes."""

import sys
from types import SimpleNamespace

import pytest
import torch

from relascope.engine.building.executables import OwnMemory, TrainingExecutable
from relascope.engine.measure import timing
from relascope.engine.measure.memory import torch_peak

CPU = torch.device("cpu")


def test_the_ratio_of_minima_is_that_of_the_best_runs():
    ours = ((0.5, 0.25), (4.0, 4.0))
    eager = ((1.0, 2.0), (0.5, 0.5))
    row = timing.row("ours", "forward", ours, eager, 1e-6, 64)
    assert row.ratio_of_minima == 0.5
    assert row.ratio_to_eager == pytest.approx((0.375 / 1.5 + 8) / 2)
    assert timing.row("eager", "forward", eager, None, None, 64).ratio_of_minima is None


def test_memory_counts_what_is_alive_at_one_time_and_says_nothing(capfd):
    mib = 1 << 20
    kept = torch.zeros(mib, dtype=torch.uint8)  # before the run, and so not counted

    def chain():
        first = torch.empty(2 * mib, dtype=torch.uint8)
        second = torch.empty(3 * mib, dtype=torch.uint8)
        del first
        third = torch.empty(mib, dtype=torch.uint8)
        return second, third

    assert torch_peak(chain, CPU) == 5 * mib
    assert torch_peak(lambda: kept.view(-1), CPU) == 0
    assert torch_peak(lambda: torch.empty(4 * mib, dtype=torch.uint8), CPU) == 4 * mib
    torch_peak(lambda: print("a word", file=sys.stderr, flush=True), CPU)
    assert capfd.readouterr().err == "a word\n"
    with pytest.raises(ZeroDivisionError):
        torch_peak(lambda: 1 / 0, CPU)
    print("still there", file=sys.stderr, flush=True)
    assert capfd.readouterr().err == "still there\n"


class Function:
    def __init__(self, held):
        self._held, self.used = held, ()
        self.given = []

    def own_memory(self, values):
        self.given.append(set(values))
        return self._held

    def run(self, values, keep=()):
        return torch.ones(1), torch.ones(2)


def step(forward, backward):
    made = iter((Function(forward), Function(backward)))
    about = {"outputs": 1, "gradients": ("x",), "grad_outs": ("g",), "masks": (), "params": ()}
    parts = {"capture_names": ("c",), "forward": None, "backward": None}
    halves = SimpleNamespace(**parts, cut=SimpleNamespace(drawn_again=()))
    return TrainingExecutable(SimpleNamespace(**about), halves, lambda program, name: next(made))


@pytest.mark.parametrize(
    ("forward", "backward", "expected"),
    [
        (OwnMemory(10, 4), OwnMemory(20, 1), (10, 24)),  # the backward holds results
        (OwnMemory(30, 4), OwnMemory(20, 1), (30, 30)),
        (None, OwnMemory(20, 1), (None, None)),
        (OwnMemory(10, 4), None, (10, None)),
    ],
)
def test_what_both_halves_hold(forward, backward, expected):
    found = step(forward, backward)
    values = {"x": torch.ones(1)}
    held = [found.own_memory(values, b) for b in (False, True)]
    assert tuple(h and h.peak for h in held) == expected
    if backward is not None and forward is not None:
        assert {"x", "c"} in found._backward.given  # it is handed the captures


def test_what_stays_between_runs_serves_both_halves():
    forward = OwnMemory(9, 4, {"f": 4, "shared": 5}, {"f": 4})
    backward = OwnMemory(20, 1, {"f": 2, "shared": 3, "b": 7})
    both = forward.followed_by(backward)
    assert both.pools == {"f": 6, "shared": 5, "b": 7}
    assert (forward.kept, both.kept) == (9, 18)
