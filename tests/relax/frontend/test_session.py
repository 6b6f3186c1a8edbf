"""The Relax engine: load, step, draw, check and time; TVM's own pipelines as steps."""

from types import SimpleNamespace

import pytest
from tvm import tirx
from tvm.relax import op

import small_models  # noqa: F401
from answers import asking
from limits import OUTPUT
from place import ROOT
from quick import QUICK, rare
from relascope.core.errors import EngineError
from relascope.core.graph import Kind
from relascope.engine.jobs import bisect
from relascope.engine.jobs.bisect import Question
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.session import silent
from relascope.engine.protocol.source import ModelSource
from relascope.engine.relax.building.targets import parse
from relascope.passes.catalogue import default_pipeline, names, read_pipeline, with_tvms
from relascope.passes.pipeline import Pipeline
from relascope.viz.compare.changes import figures
from relax_modules import program

LAYER = ModelSource("bert_layer")
LOOKING = ["legalize", "annotate_pattern", "fuse_ops", "fuse_tir"]


def pipeline(text):
    return Pipeline.parse(text, names("relax"))


@pytest.fixture(scope="module")
def client(session):
    return SimpleNamespace(call=asking(session))


@pytest.fixture(scope="module")
def targets(client):
    return [t.name for t in client.call("describe").targets if t.runs_here]


def worst(comparisons):
    return max(c.max_rel for c in comparisons)


def test_a_layer_is_loaded_and_a_bound_parameter_keeps_its_id_and_its_name(client):
    info = client.call("load", LAYER)
    info.graph.validate()
    assert info.graph.ir == "relax"
    assert info.graph.operators["matmul"] == 8
    kinds = [info.graph.by_id[i].kind for i in info.graph.inputs]
    assert kinds == [Kind.INPUT] * 2 + [Kind.PARAMETER] * 16
    first = ["hidden_states", "attention_mask", "attention.self.query.weight"]
    assert [n for n, _ in info.arguments][:3] == first
    calls = [n for n in info.graph if n.kind is Kind.CALL]
    assert all(n.scope and n.source.startswith("aten::") for n in calls)
    (softmax,) = [n for n in calls if n.op == "nn.softmax"]
    assert softmax.attrs == {"axis": -1}
    reshape = next(n for n in calls if n.op == "reshape")
    assert reshape.attrs == {"shape": [1, 14, 12, 64]}
    assert len(reshape.inputs) == 1
    record = client.call("step", LAYER, pipeline("bind"))[-1]
    assert (record.added, record.removed) == (0, 0)
    bound = client.call("graph_after", LAYER, pipeline("bind"), 0)
    parameters = {n.id: n.name for n in info.graph if n.kind is Kind.PARAMETER}
    constants = {n.id: n.attrs.get("parameter") for n in bound if n.id in parameters}
    assert constants == parameters


def test_the_default_pipeline_runs_and_keeps_the_numbers(client, targets):
    steps = default_pipeline("relax", training=False)
    records = client.call("step", LAYER, steps)
    assert [r.error for r in records] == [None] * len(steps)
    assert worst(client.call("check", BuildRequest(LAYER, steps, targets[0]))) <= OUTPUT
    fused = client.call("graph_after", LAYER, steps, len(steps) - 2)
    fused.validate()
    functions = [n for n in fused if n.kind is Kind.FUNCTION]
    assert len(functions) > 5
    assert all(n.body is not None and len(n.body) > 1 for n in functions)
    # One function may be called from query, key and value: it must not say that it is query's.
    shared = [n for n in functions if [m.op for m in functions].count(n.op) > 1]
    assert shared
    assert "attention.self.query" not in {n.scope for n in shared}
    kernels = client.call("graph_after", LAYER, steps, len(steps) - 1)
    assert any(op.startswith("fused_") for op in kernels.operators)


def test_the_text_of_a_step_has_no_values_and_one_argument_a_line(client):
    source, steps = ModelSource("mlp"), pipeline("bind|legalize|annotate_pattern|fuse_ops")
    first = client.call("text", source, steps, -1)
    assert '    hidden_weight: R.Tensor((256, 64), dtype="float32"),\n' in first
    bound = client.call("text", source, steps, 0)
    assert 'metadata["ir.GenericConst"][5]' in bound
    assert "hidden_weight" not in bound
    fused = client.call("text", source, steps, 3)
    assert fused.startswith("@R.function\ndef main(\n")
    assert "def fused_" in fused
    assert "prim_func" not in fused  # loop nests would be most of it


def test_passes_only_for_looking_go_on_from_one_another(client):
    records = client.call("step", LAYER, pipeline("|".join(["cse", *LOOKING, "dce"])))
    assert "fused_matmul_add" in records[4].operators
    # What is not for looking starts from before them.
    assert records[5].operators["matmul"] == 8


def test_llvm_writes_no_small_loop_out_unless_it_is_told_to():
    (own,) = parse("llvm").attrs["cl-opt"]
    assert own.startswith("-unroll-threshold")
    asked = "-unroll-count:uint=2"
    assert list(parse(f"llvm -cl-opt={asked}").attrs["cl-opt"]) == [asked]


def test_kernels_cost_what_their_operators_did(client):
    source, steps = ModelSource("mlp"), pipeline("|".join(["bind", *LOOKING]))
    graphs = [client.call("graph_after", source, steps, index) for index in range(len(steps))]
    first, *others = (figures(graph)["flops"] for graph in graphs)
    assert first > 0 and others == pytest.approx([first] * len(others), rel=0.02)


def broken(name):
    return ModelSource(str(ROOT / f"corpus/relax/broken/{name}.relax"))


def spelled_out(session, text):
    known = session.pipelines(progress=silent).pipelines
    return read_pipeline("relax", with_tvms("relax", text, known))


def searched(session, source, text, **about):
    pipeline = spelled_out(session, text)
    found = bisect.bisect(asking(session), "relax", Question(source, pipeline, QUICK, **about))
    return found, [pipeline.steps[i].name for i in found.culprits.suspects if i >= 0]


@pytest.mark.parametrize("name", ["zero", "target", rare("default")])
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
    rows, path = tirx.Var("n", "int64"), tmp_path / "mod.relax"
    kinds = ((rows, 8), "float32"), ((8, 4), "float32")
    path.write_text(program(lambda x, w: op.nn.relu(op.matmul(x, w)), *kinds).script())
    found, named = searched(session, ModelSource(str(path)), "tvm:target")
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
