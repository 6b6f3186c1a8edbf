"""Parallel loops on PyTorch's threads, in Relay."""

from tvm import relay

import parallel_loops
from relay_functions import compiled, var


def test_loops_start_no_threads_beside_pytorchs():
    function = compiled(relay.exp(var("x", 512, 512)), "llvm")
    assert "TVMBackendParallelLaunch" in function.library.get_lib().get_source("ll")
    parallel_loops.check_loops_on_pytorchs_threads(lambda x: function.run({"x": x})[0])


def test_every_task_runs_once():
    parallel_loops.check_every_task_runs_once()


def test_a_pytorch_without_openmp_leaves_tvm_its_threads(monkeypatch):
    parallel_loops.check_no_team_without_openmp(monkeypatch)
