"""Tests in this folder run inside the Relax TVM: one process cannot hold two TVMs."""

import os
import sys
from pathlib import Path

import pytest

SUPPORT = str(Path(__file__).parent / "support")
sys.path.insert(0, SUPPORT)
os.environ["PYTHONPATH"] = os.pathsep.join([SUPPORT, os.environ.get("PYTHONPATH", "")])


if any("bitblas" in str(getattr(m, "__file__", "")) for n, m in sys.modules.items() if n == "tvm"):
    raise RuntimeError("The Relay TVM is loaded here: run pytest tests/relax in a process alone.")


@pytest.fixture(scope="session", autouse=True)
def peaks():
    """Nobody here asks what the machine does at best, which takes seconds."""
    from quick import small_peaks

    with small_peaks():
        yield


@pytest.fixture(scope="session", autouse=True)
def linked():
    """What is built for `QUICK` is not compiled in memory."""
    from tvm.runtime import Executable, load_module
    from tvm.runtime.vm import VirtualMachine

    from quick import linking

    def module_of(built):
        return built.jit() if isinstance(built, Executable) else built

    with linking(VirtualMachine, module_of, load_module):
        yield


left_out: list[str] = []
"""Passes that `QUICK` builds do without."""


@pytest.fixture(scope="module")
def unfolded():
    """`QUICK` builds compute their constants when they run: TVM builds a program of its own for
    each that it folds, which is a sixth of a build of many operators."""
    left_out.append("FoldConstant")
    yield
    left_out.clear()


@pytest.fixture(scope="session", autouse=True)
def without_checks():
    """The kernels of `QUICK` builds check no arguments."""
    import tvm

    from quick import quickly
    from relascope.engine.relax.building import runtime

    with quickly(runtime, tvm.transform, "tirx.disable_assert", left_out):
        yield


@pytest.fixture(scope="session")
def session():
    """The engine of this process, which remembers what its tests loaded, stepped and built."""
    from relascope.engine.relax.session import RelaxSession

    return RelaxSession()
