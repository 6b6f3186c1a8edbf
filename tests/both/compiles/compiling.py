"""The tests of building for a target that is not here: sizes and code, and what is missing.

A file that imports them says of which engine by its `session`."""

import re
import shutil

import pytest

from answers import quiet, refused
from limits import OUTPUT
from relascope.core.errors import EngineError
from relascope.engine.building.options import Builder
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import default_pipeline
from relascope.passes.cuts.cut import cut
from relascope.passes.cuts.joint import Joint

MLP = ModelSource("mlp")


def compiled(session, target, folder=""):
    request = BuildRequest(MLP, default_pipeline(session.ir, False), target)
    return session.compile(request, folder, progress=quiet)


def text(found, language):
    return "\n".join(c for k in found.kernels for name, c in k.code if name == language)


def test_for_this_machine(session, tmp_path):
    found = compiled(session, "llvm", str(tmp_path / "out"))
    assert found.target.runs_here and not found.notes and all(k.bytes for k in found.kernels)
    assert 0 < found.code_bytes < found.library_bytes
    assert "define" in text(found, "LLVM IR") and ".cfi" in text(found, "assembly")
    assert "forward.tar" in found.files and (tmp_path / "out" / "forward.tar").stat().st_size > 0
    kernel = found.kernels[0]
    assert kernel.code[0][1] in (tmp_path / "out" / "forward" / f"{kernel.name}.ll").read_text()


def test_a_timing_stands_beside_its_error(session):
    target = next(t.name for t in session.describe(progress=quiet).targets if t.runs_here)
    request = BuildRequest(MLP, default_pipeline(session.ir, False), target, 1, 2)
    result = session.time(request, progress=quiet)
    eager, ours = result.rows
    assert (eager.what, eager.ratio_to_eager) == ("pytorch eager", None)
    assert (ours.what, ours.phase) == (f"{session.ir}, {target}", "forward")
    assert ours.q1_ms <= ours.median_ms <= ours.q3_ms
    assert 0 < ours.max_abs_error < OUTPUT and ours.ratio_to_eager > 0 and result.threads == 1


def test_each_round_builds_anew(session, monkeypatch):
    builds, own = [], Builder._try
    monkeypatch.setattr(Builder, "_try", lambda *a: builds.append(a) or own(*a))
    asked = BuildRequest(MLP, default_pipeline(session.ir, False), "llvm")
    times = session.compile_times(asked, 2, 60.0, progress=quiet)
    first = len(builds) - 2  # none, where it was built before
    assert len(times.build) == 2 and first in (0, 1)


def test_for_another_processor(session):
    found = compiled(session, "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1")
    assert not found.target.runs_here and all(k.bytes for k in found.kernels)
    assert found.notes[0].startswith("It cannot be timed here.") and "aarch64" in found.notes[0]
    assert "ldp\tx" in text(found, "assembly") and "%r" not in text(found, "assembly")
    avx = compiled(session, "llvm -mcpu=skylake-avx512")
    assert "ymm" in text(avx, "assembly") or "zmm" in text(avx, "assembly")


def test_for_cuda_without_a_gpu_with_and_without_a_compiler(session, monkeypatch, tmp_path):
    if shutil.which("nvcc") is not None:
        found = compiled(session, "cuda -arch=sm_90")
        assert found.code_bytes > 0 and ".entry" in text(found, "PTX")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = compiled(session, "cuda -arch=sm_90")
    assert not found.target.runs_here and found.code_bytes is None
    assert "not compiled" in found.notes[1] and "nvcc" in found.notes[1]
    assert text(found, "CUDA").count("__global__") >= len(found.kernels)
    assert "__launch_bounds__" in found.kernels[0].code[0][1]


def test_both_halves_of_a_training_step(session):
    source, pipeline = ModelSource("mlp", training=True), default_pipeline(session.ir, True)
    ids = cut(Joint(session.graph_after(source, pipeline, len(pipeline) - 1, progress=quiet))).ids
    target, words = "llvm -mtriple=aarch64-linux-gnu -schedules=relascope", []
    asked = BuildRequest(source, pipeline, target)
    found = session.compile(asked.split_at(ids), progress=lambda _, text: words.append(text))
    assert {k.phase for k in found.kernels} == {"forward", "backward"}
    first = dict(re.findall(r"building the (\w+), kernel 1 of \d+: (\w+)", "\n".join(words)))
    names = {(k.phase, k.name.removeprefix("tvmgen_default_")) for k in found.kernels}
    assert first.items() <= names and len(first) == 2
    with pytest.raises(EngineError, match="two functions"):
        session.compile(asked, progress=quiet)


def test_what_is_not_here_is_not_run(session):
    for target in ("llvm -mtriple=aarch64-linux-gnu", "cuda -arch=sm_90"):
        request = BuildRequest(MLP, default_pipeline(session.ir, False), target, 1, 1)
        with refused(match="cannot run here", hint="relascope compile"):
            session.time(request, progress=quiet)
        with refused(match="cannot run here"):
            session.tune(request, (), 1, progress=quiet)
        with pytest.raises(EngineError, match="cannot run here"):
            session.inside(request, progress=quiet)
