"""Recordings of Relay's compiles."""

import pytest
import tvm
from tvm import relay

pytest.register_assert_rewrite("recordings")

from recordings import *  # noqa: F403
from relascope import recording
from relascope.recorder.reading import read


@pytest.mark.exhaustive
def test_what_is_built_for_another_gpu_has_the_kernels_source(tmp_path):
    x = relay.var("x", shape=(4, 8))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(x)))
    with recording(tmp_path / "run.rsc"), tvm.transform.PassContext(opt_level=3):
        relay.build(mod, tvm.target.Target("cuda -arch=sm_80", host="llvm"))
    found = read(tmp_path / "run.rsc")
    kernels = {k.language: k for k in found.kernels}
    assert "__global__ void" in found.text(kernels["cuda"].text)
    assert found.passes[kernels["cuda"].run].name == "target.build.cuda"
