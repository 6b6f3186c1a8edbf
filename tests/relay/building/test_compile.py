"""Building in Relay for a target that is not here."""

from compiling import *  # noqa: F403
from compiling import MLP
from relascope.engine.building.options import BuildOptions
from relascope.engine.relay.building import runtime
from relascope.engine.relay.tvm import boot
from relascope.passes.catalogue import default_pipeline


def test_for_a_gpu_that_is_here_the_source_is_compiled_by_ours(session, monkeypatch):
    asked = []

    def compile_cuda(source, arch, form):
        asked.append((arch, form, "__global__" in source))
        return b"\x7fELF"

    monkeypatch.setattr(boot, "compile_cuda", compile_cuda)
    program = session.program_after(MLP, default_pipeline("relay", False))
    runtime.library(program, BuildOptions("cuda -arch=sm_90"))
    assert asked == [("sm_90", "cubin", True)]
