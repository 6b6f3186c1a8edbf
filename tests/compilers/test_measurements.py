"""Measuring: differences of tensors, times and memory of runs, and the machine at its best."""

import itertools
import math
import sys
from types import SimpleNamespace

import pytest
import torch

from quick import small_peaks
from relascope.engine.building.executables import OwnMemory, TrainingExecutable
from relascope.engine.measure import peaks, timing
from relascope.engine.measure.compare import comparison
from relascope.engine.measure.difference import scale_of
from relascope.engine.measure.memory import torch_peak
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
    apart[:: (apart.numel() // (1 << 14) | 1)] = 5.0  # all that is sampled
    spread = comparison("t", apart, torch.zeros_like(apart), 1.0, 1.0).spread
    assert spread.median_abs == 0.0


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
    both = forward.followed_by(OwnMemory(20, 1, {"f": 2, "shared": 3, "b": 7}))
    assert both.pools == {"f": 6, "shared": 5, "b": 7}
    assert (forward.kept, both.kept) == (9, 18)


@small_peaks()
def test_what_is_measured_and_its_bytes_and_flops():
    found = peaks.measure("cpu", ["float32", "int64", "float64", "float32"])
    assert [d for d, _ in found.flops] == ["float32", "float64"]
    assert [s for s, _ in found.bandwidth] == [2**12, 2**13, 2**14]
    rates = [rate for _, rate in found.bandwidth]
    assert rates == sorted(rates, reverse=True)  # what a larger set reaches, a smaller does too
    assert min(*rates, *(rate for _, rate in found.flops), found.seconds) > 0
    assert found.threads == torch.get_num_threads()
    amount, run = peaks._product(torch.device("cpu"), torch.float64, lambda: None)
    assert amount == 2 * run().shape[0] ** 3
    moves = peaks._moves(torch.device("cpu"))
    assert {kind for _, kind in moves} == {"read", "copy", "triad"}
    for (size, _), (count, work) in moves.items():
        assert size - 12 <= count <= size
        work()


def test_the_best_of_the_rounds_counts_and_they_go_on_while_it_rises(monkeypatch):
    durations = iter([1.0, 1.0, 0.5, 2.0, 2.0, 2.0])
    clock = itertools.count()
    now, runs = [0.0], []

    def run():
        runs.append(next(clock))
        now[0] += 1.0 if len(runs) <= 2 else next(durations, 2.0)

    monkeypatch.setattr(peaks.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(peaks, "_BUDGET_SECONDS", 100.0)
    assert peaks._best({"x": (8.0, run)}, lambda: None) == {"x": 16.0}
    assert len(runs) == 2 + peaks._ROUNDS  # two to warm up; the last round was no better


@small_peaks()
def test_a_gpu_is_waited_for(monkeypatch):
    """The same work on a device of another name: torch's GPU functions are counted, not run."""
    waits, pinned = [], []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: waits.append(str(device)))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")

    properties = SimpleNamespace(L2_cache_size=2**12)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    for name in ("ones", "empty_like"):
        real = getattr(torch, name)

        def on_cpu(*args, real=real, **kwargs):
            assert kwargs.pop("device", torch.device("cuda:1")).type in ("cuda", "cpu")
            pinned.append(kwargs.pop("pin_memory", False))
            return real(*args, **kwargs)

        monkeypatch.setattr(torch, name, on_cpu)
    found = peaks.measure("cuda:1", ["float32"])
    assert (found.device, found.threads) == ("a GPU", 0)
    assert set(waits) == {"cuda:1"} and len(waits) >= (1 + 9 + 2) * (2 + peaks._ROUNDS)
    assert pinned.count(True) == 1 and found.copy > 0  # the host's side of a copy


def test_no_cache_holds_the_largest_working_set(monkeypatch, tmp_path):
    monkeypatch.setattr(peaks, "_CACHES", tmp_path)
    assert peaks._largest(torch.device("cpu")) == 2**28  # nothing is known
    for name in ("index0", "index3"):
        (tmp_path / name).mkdir()
    (tmp_path / "index0/size").write_text("32K\n")
    for size, expected in (("1024K", 2**28), ("128M", 2**29), ("8G", 2**31)):
        (tmp_path / "index3/size").write_text(f"{size}\n")
        assert peaks._largest(torch.device("cpu")) == expected
