"""Measuring what the machine does at best; a GPU only as far as one can without it."""

import itertools
from types import SimpleNamespace

import torch

from quick import small_peaks
from relascope.engine.measure import peaks


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
    side = run().shape[0]
    assert amount == 2 * side**3
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
    best = peaks._best({"x": (8.0, run)}, lambda: None)
    assert best == {"x": 16.0}
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
