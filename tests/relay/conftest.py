"""Tests in this folder run inside the Relay TVM: one process cannot hold two TVMs."""

import os
import sys
from pathlib import Path

import pytest

SUPPORT = str(Path(__file__).parent / "support")
sys.path.insert(0, SUPPORT)
os.environ["PYTHONPATH"] = os.pathsep.join([SUPPORT, os.environ.get("PYTHONPATH", "")])

from relascope.engine.relay.tvm.boot import boot


def pytest_configure(config):
    """Load the TVM, except in a process that only hands tests on to others."""
    if not config.getoption("numprocesses", None):
        boot()


@pytest.fixture(scope="session", autouse=True)
def peaks():
    """Nobody here asks what the machine does at best, which takes seconds."""
    from quick import small_peaks

    with small_peaks():
        yield


@pytest.fixture(scope="session", autouse=True)
def linked():
    """What is built for `QUICK` is not compiled in memory."""
    from tvm.runtime import load_module

    from quick import linking
    from relascope.engine.relay.building.runtime import Compiled

    with linking(Compiled, lambda made: getattr(made, "module", made.get_lib()), load_module):
        yield


@pytest.fixture(scope="session", autouse=True)
def unfolded():
    """`QUICK` builds compute constants at run time: TVM's FoldConstant compiles a kernel for
    each. Their kernels check no arguments."""
    import tvm

    from quick import quickly
    from relascope.engine.relay.building import runtime

    with quickly(runtime, tvm.transform, "tir.disable_assert", ["FoldConstant"]):
        yield


@pytest.fixture(scope="session")
def session():
    """The engine of this process, which remembers what its tests loaded, stepped and built."""
    from relascope.engine.relay.session import RelaySession

    return RelaySession()
