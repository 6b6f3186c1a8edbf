"""Parallel loops of TVM on PyTorch's threads, in both engines."""

import ctypes
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from limits import ELEMENTWISE
from relascope.engine.building import threads
from relascope.engine.building.threads import TEAM, set_threads

_Body = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


def check_loops_on_pytorchs_threads(run: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """A kernel with a parallel loop starts no threads beside PyTorch's; `run` calls one."""
    found: list[int] = []

    def work() -> None:  # in a thread of its own, for which each pool would start others
        x = torch.randn(512, 512)
        (x @ x).relu()
        found.append(len(os.listdir("/proc/self/task")))
        run(x)
        found.append(len(os.listdir("/proc/self/task")))

    set_threads(2)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    set_threads(0)
    before, after = found
    assert after == before


def check_every_task_runs_once() -> None:
    """TVM's convention of a parallel loop: a body gets the number of its task, of how many, and its
    data; and its error comes back."""
    set_threads(3)
    seen: list[tuple[int, int, int]] = []

    def body(task: int, about: int, data: int) -> int:
        seen.append((task, ctypes.c_int32.from_address(about + 8).value, data))
        return int(task == failing)

    kind = ctypes.CFUNCTYPE(ctypes.c_int, _Body, ctypes.c_void_p, ctypes.c_int)
    launch = kind(TEAM._table.launch)
    for asked, tasks, failing in ((0, 3, None), (5, 5, None), (1, 1, None), (0, 3, 2), (5, 5, 4)):
        seen.clear()
        assert launch(_Body(body), 7, asked) == (failing is not None)
        assert sorted(seen) == [(task, tasks, 7) for task in range(tasks)]
    set_threads(0)


def check_no_team_without_openmp(monkeypatch: pytest.MonkeyPatch) -> None:
    """A PyTorch without OpenMP leaves TVM its own threads."""
    monkeypatch.setattr(threads, "_OPENMP", ("no_such_function",))
    assert threads.Team().launcher(lambda _: pytest.fail("loaded"), "", "") is None


def check_two_threads_take_turns(run: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Two threads that call one function get each their own results; `run` is to be `exp(exp(x))`
    of 65,536 numbers between 0 and 1."""

    def work(x: torch.Tensor) -> bool:
        expected = x.exp().exp()
        return all(torch.allclose(run(x), expected, rtol=ELEMENTWISE) for _ in range(200))

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(work, torch.rand(2, 256, 256)))
