"""Recordings of Relax's compiles."""

import pytest
import tvm
from tvm import relax
from tvm.s_tir import dlight

from recordings import *  # noqa: F403
from relascope import recording
from relascope.recorder.reading import read
from relax_modules import program

# The command is the same for both engines: Relay's tests run it.
pytest.mark.exhaustive(test_a_script_is_recorded_without_a_change)  # noqa: F405


def test_what_is_built_for_another_gpu_has_the_kernels_source(tmp_path):
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_80"}, host={"kind": "llvm"})
    with recording(tmp_path / "run.rsc"), target:
        mod = relax.transform.LegalizeOps()(program(relax.op.nn.relu, ((4, 8), "float32")))
        relax.build(dlight.ApplyDefaultSchedule(dlight.gpu.Fallback())(mod), target)
    found = read(tmp_path / "run.rsc")
    kernels = {k.language: k for k in found.kernels}
    assert {"cuda", "llvm"} <= set(kernels)
    assert "__global__ void" in found.text(kernels["cuda"].text)
    assert found.passes[kernels["cuda"].run].name == "target.build.cuda"
