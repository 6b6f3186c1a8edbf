"""The Relax engine: load, step, draw, check and time."""

from types import SimpleNamespace

import pytest

from answers import asking
from limits import LIMITS, OUTPUT
from quick import combinations
from relascope.core.graph import Kind
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import ModelSource
from relascope.engine.relax.building.targets import parse
from relascope.passes.catalogue import default_pipeline, names
from relascope.passes.pipeline import Pipeline
from relascope.viz.compare.changes import figures

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
    assert [n for n, _ in info.arguments][:3] == [
        "hidden_states",
        "attention_mask",
        "attention.self.query.weight",
    ]
    calls = [n for n in info.graph if n.kind is Kind.CALL]
    assert all(n.scope and n.source.startswith("aten::") for n in calls)
    (softmax,) = [n for n in calls if n.op == "nn.softmax"]
    assert softmax.attrs == {"axis": -1}
    reshape = next(n for n in calls if n.op == "reshape")
    assert reshape.attrs == {"shape": [1, 14, 12, 64]}
    assert len(reshape.inputs) == 1
    info = client.call("load", LAYER)
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
    steps = pipeline("|".join(["cse", *LOOKING, "dce"]))
    records = client.call("step", LAYER, steps)
    assert "fused_matmul_add" in records[4].operators
    # What is not for looking starts from before them.
    assert records[5].operators["matmul"] == 8


@pytest.mark.parametrize(
    ("name", "dtype"),
    combinations(
        ("mlp", "bert_self_attention", "bert_layer", "super_resolution"), ("float64", "float32")
    ),
)
def test_samples_agree_with_pytorch(client, targets, name, dtype):
    source = ModelSource(name, dtype=dtype)
    found = client.call("check", BuildRequest(source, Pipeline(), targets[0]))
    assert worst(found) <= LIMITS[dtype][0]


def test_llvm_writes_no_small_loop_out_unless_it_is_told_to():
    (own,) = parse("llvm").attrs["cl-opt"]
    assert own.startswith("-unroll-threshold")
    asked = "-unroll-count:uint=2"
    assert list(parse(f"llvm -cl-opt={asked}").attrs["cl-opt"]) == [asked]


def test_kernels_cost_what_their_operators_did(client):
    source, steps = ModelSource("mlp"), pipeline("|".join(["bind", *LOOKING]))
    told = [
        figures(client.call("graph_after", source, steps, index))["flops"]
        for index in range(len(steps))
    ]
    assert told[0] > 0
    assert all(abs(flops - told[0]) < 0.02 * told[0] for flops in told[1:])
