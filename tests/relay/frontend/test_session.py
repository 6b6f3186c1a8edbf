"""The Relay session as the app sees it: every call says in full what it is about."""

import pickle
from dataclasses import replace

import pytest
import torch
from torch import nn
from tvm import relay

import small_models  # noqa: F401
from answers import quiet
from limits import GRADIENT, OUTPUT
from quick import QUICK
from relascope.core.errors import EngineError
from relascope.core.graph import Kind, Role
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import ModelSource, source_from_file
from relascope.engine.pytorch.inputs import tensor_type
from relascope.passes.catalogue import default_pipeline
from relascope.passes.cost import is_product
from relascope.passes.cuts.cut import cut
from relascope.passes.pipeline import Pipeline
from relascope.passes.relay import builtin
from traces import save

MLP = ModelSource("mlp")
TRAINED = replace(MLP, training=True)
INFERENCE = default_pipeline("relay", False)
TRAINING = default_pipeline("relay", True)


def test_each_step_of_a_long_pipeline_is_run_once(session, monkeypatch):
    programs = session.programs
    run, whole, source = [], programs._step, replace(MLP, batch=3)  # which no other test steps

    def step(before, step, unit):
        run.append(len(unit[1]))
        return whole(before, step, unit)

    monkeypatch.setattr(programs, "_step", step)
    pipeline = Pipeline.parse("|".join(["cse"] * 110))
    records = session.step(source, pipeline, progress=quiet)
    graphs = [session.graph_after(source, pipeline, i, progress=quiet) for i in range(110)]
    assert len(graphs) == len(records)
    assert run == [*range(1, 111)]


def test_arguments_are_inputs_then_parameters_in_pytorchs_order(session):
    info = session.load(MLP, progress=quiet)
    names = [n for n, _ in info.arguments]
    assert names[: info.input_count] == ["x"]
    layers = [
        f"{layer}.{kind}" for layer in ("hidden", "norm", "head") for kind in ("weight", "bias")
    ]
    assert names[info.input_count :] == layers
    assert [info.graph.by_id[i].name for i in info.graph.inputs] == names
    assert pickle.loads(pickle.dumps(info)).graph == info.graph


def test_a_switched_off_step_changes_nothing(session):
    pipeline = INFERENCE.switched(0, False)
    record = session.step(MLP, pipeline, progress=quiet)[0]
    assert (record.enabled, record.added, record.removed, record.changed) == (False, 0, 0, 0)
    assert session.graph_after(MLP, pipeline, 0, progress=quiet) == (
        session.graph_after(MLP, pipeline, -1, progress=quiet)
    )


def test_what_is_for_looking_is_not_what_the_next_step_gets(session):
    pipeline = Pipeline.parse("bind|simplify_inference|fuse|fold")
    records = session.step(MLP, pipeline, progress=quiet)
    fused = session.graph_after(MLP, pipeline, 2, progress=quiet)
    after = session.graph_after(MLP, pipeline, 3, progress=quiet)
    assert any(n.kind is Kind.FUNCTION for n in fused)
    assert records[2].added > 0
    assert not any(n.kind is Kind.FUNCTION for n in after)


def test_the_text_of_a_step_has_no_values_and_one_argument_a_line(session):
    pipeline = Pipeline.parse("bind|simplify_inference|fuse|fold")
    first = session.text(MLP, pipeline, -1, progress=quiet)
    assert "  %hidden.weight: Tensor[(256, 64), float32],\n" in first
    assert "span=" not in first
    bound = session.text(MLP, pipeline, 0, progress=quiet)
    assert "meta[relay.Constant][5]" in bound
    assert "hidden.weight" not in bound
    assert "Primitive=1" in session.text(MLP, pipeline, 2, progress=quiet)
    assert "Primitive=1" not in session.text(MLP, pipeline, 3, progress=quiet)


def test_a_text_that_is_too_long_says_how_much_is_missing(session, monkeypatch):
    whole = session.text(MLP, INFERENCE, -1, progress=quiet)
    monkeypatch.setattr("relascope.engine.server.programs.MOST_TEXT", 300)
    text = session.text(MLP, INFERENCE, -1, progress=quiet)
    kept, (last,) = text.splitlines()[:-1], text.splitlines()[-1:]
    assert whole.startswith("\n".join(kept))
    assert last == f"… {len(whole.splitlines()) - len(kept)} more lines"


def test_the_same_node_has_one_id_in_all_steps(session):
    first = session.graph_after(MLP, INFERENCE, -1, progress=quiet)
    weight = next(n.id for n in first if n.name == "hidden.weight")
    for index in range(len(INFERENCE) - 1):
        graph = session.graph_after(MLP, INFERENCE, index, progress=quiet)
        graph.validate()
        assert weight in graph.by_id, INFERENCE.steps[index].name


def test_a_pass_at_a_wrong_place_says_what_it_needs(session):
    pipeline = Pipeline.parse("gradient|graph_normal_form|cse")
    records = session.step(TRAINED, pipeline, progress=quiet)
    assert "root_grad_out" in records[0].error.message
    assert "gradient" in records[1].error.message
    assert records[2].error is None
    with pytest.raises(EngineError, match="root_grad_out"):
        session.check(BuildRequest(TRAINED, pipeline, "llvm"), progress=quiet)


def test_bound_parameters_have_no_gradient_and_that_is_said(session):
    records = session.step(TRAINED, Pipeline.parse("bind|root_grad_out"), progress=quiet)
    assert "bind" in records[1].error.message


def test_a_gradient_that_is_not_known_names_the_line_of_the_model(session, tmp_path):
    class Spread(nn.Module):
        def forward(self, x):
            return nn.functional.conv_transpose3d(x, torch.ones(1, 1, 2, 2, 2))

    module = nn.Sequential(nn.ReLU(), Spread())
    image = torch.randn(1, 1, 3, 3, 3)
    path = save(module, (image,), tmp_path / "spread.pt")
    given = (("input", tensor_type(image)),)
    source = replace(source_from_file(path, training=True), inputs=given)
    failed = session.step(source, TRAINING, progress=quiet)
    where = next(r.error for r in failed if r.error).where
    assert where.startswith("nn.conv3d_transpose from aten::_convolution in 1, test_")


def test_a_pass_that_raises_marks_its_step_and_the_rest_goes_on(session, monkeypatch):
    # TVM cannot fuse a layer norm that was not spelled out.
    raw = relay.transform.FuseOps(2)
    monkeypatch.setattr(builtin, "fuse", lambda program: raw(program.mod))
    records = session.step(MLP, Pipeline.parse("bind|fuse|simplify_inference"), progress=quiet)
    assert records[1].error.kind == "pass"
    assert "FuseOps" in records[1].error.where
    assert "layer_norm" in records[1].error.message
    assert records[2].error is None
    assert records[2].added > 0


def test_an_unknown_pass_is_named(session):
    with pytest.raises(EngineError, match="nonsense"):
        session.step(MLP, Pipeline.parse("nonsense"), progress=quiet)


def test_the_split_halves_keep_the_joint_graphs_ids(session):
    joint = session.graph_after(TRAINED, TRAINING, len(TRAINING) - 1, progress=quiet)
    kept = cut(joint, "keep_all")
    assert {joint.by_id[i].role for i in kept.ids} == {Role.CAPTURED}
    split = session.split(TRAINED, TRAINING, kept.ids, progress=quiet)
    assert split.forward.outputs[1:] == kept.ids
    calls = {n.id for n in split.forward if n.kind is Kind.CALL}
    assert calls <= set(joint.by_id)
    backward = {n.id for n in split.backward if n.kind is Kind.CALL}
    assert backward <= set(joint.by_id)
    assert not backward & calls  # everything that crosses is kept, so nothing is computed twice


def test_a_layer_keeps_less_than_pytorch(session):
    source = ModelSource("bert_layer", training=True)
    found = cut(session.graph_after(source, TRAINING, len(TRAINING) - 1, progress=quiet), "min_cut")
    assert found.bytes < 0.71 * 759_584  # what PyTorch keeps, masks included in both
    assert found.bytes - found.mask_bytes < 0.67 * 664_160


def test_a_layers_gradients_agree_whatever_is_computed_again(session):
    source = ModelSource("small_bert", training=True)
    joint = session.graph_after(source, TRAINING, len(TRAINING) - 1, progress=quiet)
    found = cut(joint, "budget", 0.25)
    assert [i for i in found.recomputed if is_product(joint.by_id[i])]
    assert found.bytes < 0.8 * cut(joint, "keep_all").bytes
    request = BuildRequest(source, TRAINING, QUICK).split_at(found.ids)
    compared = session.check(request, progress=quiet)
    names = [joint.by_id[i].name for i in joint.inputs]  # two inputs, sixteen parameters, …
    assert [c.name for c in compared] == [
        "output 0",
        *(f"gradient of {name}" for name in names[:18]),
    ]
    for comparison in compared:
        assert comparison.scale > 0 or comparison.name.endswith("key.bias"), comparison.name
        assert comparison.max_abs <= GRADIENT * max(1.0, comparison.scale), comparison.name


def test_a_timing_stands_beside_its_error(session):
    result = session.time(BuildRequest(MLP, INFERENCE, "llvm", 1, 2), progress=quiet)
    eager, ours = result.rows
    assert (eager.what, eager.ratio_to_eager) == ("pytorch eager", None)
    assert ours.phase == "forward"
    assert ours.q1_ms <= ours.median_ms <= ours.q3_ms
    assert ours.ratio_to_eager > 0
    assert 0 < ours.max_abs_error < OUTPUT
    assert result.threads == 1


def test_a_joint_program_is_not_timed_whole(session):
    with pytest.raises(EngineError, match="two functions"):
        session.time(BuildRequest(TRAINED, TRAINING, "llvm", 1, 2), progress=quiet)
