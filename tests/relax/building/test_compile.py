"""Building in Relax for a target that is not here."""

from answers import refused
from compiling import *  # noqa: F403
from compiling import MLP, compiled, quiet
from relascope.engine.building.options import BuildOptions
from relascope.engine.relax.building import runtime
from relascope.passes.catalogue import default_pipeline


def test_a_gpus_products_by_pytorchs_library(session):
    target = "cuda -arch=sm_90"
    program = session.program_after(MLP, default_pipeline("relax", False).upto(-1))
    calls = {
        t: str(runtime.executable(program, BuildOptions(t)).as_text()).count("relascope.matmul_n")
        for t in (target, f"{target} -libs=blas")
    }
    assert calls[target] == 0 and calls[f"{target} -libs=blas"] > 0
    found = compiled(session, f"{target} -libs=blas")
    assert not [k.name for k in found.kernels if k.name.startswith("fused_matmul")]
    assert any("relascope.matmul" in note for note in found.notes)


def test_options_that_are_not_for_a_kind_of_target_are_refused(session):
    parts = {"cuda -arch=sm_90 -schedules=relascope": "DLight", "llvm -schedules=dlight": "DLight"}
    for target, part in (parts | {"llvm -graphs=cuda": "NVIDIA"}).items():
        with refused(match=part, hint="Leave out"):
            session.target(target, progress=quiet)


def test_dlight_can_be_named(session):
    plain, named = (compiled(session, t) for t in ("cuda", "cuda -schedules=dlight"))
    assert [k.code[0] for k in plain.kernels] == [k.code[0] for k in named.kernels]
