"""TVM's own pipelines as steps: all of them, to the last pass before code."""

import pytest
from tvm.script import ir as I
from tvm.script import relax as R

import small_models  # noqa: F401
from answers import asking
from limits import OUTPUT
from place import ROOT
from quick import QUICK
from relascope.core.errors import EngineError
from relascope.engine.jobs import bisect
from relascope.engine.jobs.bisect import Question
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.session import silent
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import read_pipeline, with_tvms
from relascope.passes.pipeline import Pipeline


@I.ir_module
class Open:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 4), "float32")):
        with R.dataflow():
            y = R.nn.relu(R.matmul(x, w))
            R.output(y)
        return y


def saved(folder, mod):
    path = folder / "mod.relax"
    path.write_text(mod.script(show_meta=True), encoding="utf-8")
    return ModelSource(str(path))


def broken(name):
    return ModelSource(str(ROOT / f"corpus/relax/broken/{name}.relax"))


def spelled_out(session, text):
    known = session.pipelines(progress=silent).pipelines
    return read_pipeline("relax", with_tvms("relax", text, known))


def searched(session, source, text, **about):
    pipeline = spelled_out(session, text)
    found = bisect.bisect(asking(session), "relax", Question(source, pipeline, QUICK, **about))
    return found, [pipeline.steps[i].name for i in found.culprits.suspects if i >= 0]


@pytest.mark.parametrize(
    "name", ["zero", "target", pytest.param("default", marks=pytest.mark.exhaustive)]
)
def test_every_step_of_a_pipeline_is_drawn_and_has_numbers(session, name):
    source, pipeline = ModelSource("small_bert"), spelled_out(session, f"tvm:{name}")
    records = session.step(source, pipeline, progress=silent)
    assert [r.error for r in records] == [None] * len(pipeline)
    for index in range(len(pipeline)):
        request = BuildRequest(source, pipeline.upto(index), QUICK)
        assert all(c.max_rel < OUTPUT for c in session.check(request, progress=silent))


def test_the_steps_are_those_that_tvm_runs_and_kernels_say_what_they_write(session):
    found = session.pipelines(progress=silent)
    steps = {n: [s.name for s in Pipeline.parse(t)] for n, t in found.pipelines.items()}
    assert steps["zero"][0] == "LegalizeOps" and steps["zero"][-1] == "FuseTIR"
    assert steps["default"][-1] == steps["target"][-1] == "AttachGlobalSymbol"
    assert "StaticPlanBlockMemory" in steps["target"] and "StaticPlanBlockMemory" in found.left_out
    assert "CombineParallelMatmul" in found.in_front
    on_gpu = session.pipelines("cuda -arch=sm_80", progress=silent).pipelines["target"]
    assert "ApplyDefaultSchedule(target=" in on_gpu
    source, pipeline = ModelSource("mlp"), spelled_out(session, "tvm:target")
    graph = session.graph_after(source, pipeline, len(pipeline) - 1, progress=silent)
    (result,) = graph.outputs
    kernel = graph.by_id[result]
    assert kernel.op.startswith("fused_") and kernel.outputs[0].dtype == "float32"
    read = {graph.by_id[i].op for i in graph.edges[result]}
    assert "vm.alloc_tensor" in read and len(read) > 1


def test_a_plan_of_memory_that_breaks_a_branch_is_found(session):
    source = broken("plan_across_branches")
    found, named = searched(session, source, "tvm:target")
    assert (found.kind, named) == ("crash", ["StaticPlanBlockMemory"])
    right, _ = searched(session, source, "tvm:target|-StaticPlanBlockMemory")
    assert right.kind == ""


def test_a_program_with_an_open_size_runs_through_all_of_it(session, tmp_path):
    found, named = searched(session, saved(tmp_path, Open), "tvm:target")
    assert (found.kind, named) == ("", [])


def test_passes_that_crash_or_branches_that_ours_refuse_are_named(session):
    source = broken("matmul_of_vectors")
    found, named = searched(session, source, "CombineParallelMatmul|tvm:zero")
    assert (found.kind, named) == ("crash", ["CombineParallelMatmul"])
    pipeline = read_pipeline("relax", "cse|decompose_inference")
    _, last = session.step(broken("plan_across_branches"), pipeline, progress=silent)
    assert last.error.kind == "usage" and "branches" in last.error.message


def test_a_type_that_a_pass_changes_is_named_before_anything_runs(session):
    pipeline = spelled_out(session, "ExpandMatmulOfSum|tvm:zero")
    (first, *_) = session.step(broken("expand_matmul_dtype"), pipeline, progress=silent)
    assert first.error.kind == "type" and "is not well-formed" in first.error.message
    assert 'R.Tensor((3, 5), dtype="float16")' in first.error.message


def test_what_tvm_has_not_is_refused(session):
    (record,) = session.step(ModelSource("mlp"), Pipeline.parse("FoldAll"), progress=silent)
    assert record.error.kind == "usage" and "has no Relax pass FoldAll" in record.error.message
    with pytest.raises(ValueError, match="no pipeline 'one'; known: tvm:zero"):
        with_tvms("relax", "tvm:one", {"zero": ""})
    assert with_tvms("relax", "cse|tvm:zero|-B", {"zero": "A|B"}) == "cse|A|-B"
    with pytest.raises(EngineError, match="nothing_like_it"):
        session.pipelines("nothing_like_it", progress=silent)
