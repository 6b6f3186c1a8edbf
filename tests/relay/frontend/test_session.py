"""The Relay session as the app sees it, and what `relay.build` runs at each level, as steps."""

from dataclasses import replace

import pytest
from tvm import relay

import small_models  # noqa: F401
from answers import quiet
from kernel_profiles import profile
from limits import OUTPUT
from quick import QUICK, rare
from relascope.core.errors import EngineError
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.session import silent
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import default_pipeline, read_pipeline
from relascope.passes.cuts.cut import cut
from relascope.passes.pipeline import Pipeline
from relascope.passes.relay import builtin

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


def test_the_text_of_a_step_has_one_argument_a_line_and_no_values_and_an_end(session, monkeypatch):
    pipeline = Pipeline.parse("bind|simplify_inference|fuse|fold")
    first = session.text(MLP, pipeline, -1, progress=quiet)
    assert "  %hidden.weight: Tensor[(256, 64), float32],\n" in first
    assert "span=" not in first
    bound = session.text(MLP, pipeline, 0, progress=quiet)
    assert "meta[relay.Constant][5]" in bound
    assert "hidden.weight" not in bound
    assert "Primitive=1" in session.text(MLP, pipeline, 2, progress=quiet)
    assert "Primitive=1" not in session.text(MLP, pipeline, 3, progress=quiet)
    whole = session.text(MLP, INFERENCE, -1, progress=quiet)
    monkeypatch.setattr("relascope.engine.server.programs.MOST_TEXT", 300)
    text = session.text(MLP, INFERENCE, -1, progress=quiet)
    kept, (last,) = text.splitlines()[:-1], text.splitlines()[-1:]
    assert whole.startswith("\n".join(kept))
    assert last == f"… {len(whole.splitlines()) - len(kept)} more lines"


def test_a_pass_at_a_wrong_place_says_what_it_needs(session):
    pipeline = Pipeline.parse("gradient|graph_normal_form|cse")
    records = session.step(TRAINED, pipeline, progress=quiet)
    assert "root_grad_out" in records[0].error.message
    assert "gradient" in records[1].error.message
    assert records[2].error is None
    with pytest.raises(EngineError, match="root_grad_out"):
        session.check(BuildRequest(TRAINED, pipeline, "llvm"), progress=quiet)
    records = session.step(TRAINED, Pipeline.parse("bind|root_grad_out"), progress=quiet)
    assert "bind" in records[1].error.message  # bound parameters have no gradient


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


def test_the_same_node_is_computed_twice_only_where_it_is_computed_again(session):
    found, _, _ = profile(session, ModelSource("small_bert", tokens=6), INFERENCE)
    mapped = [i for k in found.kernels for i in k.nodes]
    assert len(mapped) == len(set(mapped))


def test_a_layer_keeps_less_than_pytorch(session):
    source = ModelSource("bert_layer", training=True)
    found = cut(session.graph_after(source, TRAINING, len(TRAINING) - 1, progress=quiet), "min_cut")
    assert found.bytes < 0.71 * 759_584  # what PyTorch keeps, masks included in both
    assert found.bytes - found.mask_bytes < 0.67 * 664_160


@pytest.mark.parametrize("level", ["O0", "O3", *map(rare, ("O2", "O4"))])
def test_every_step_of_a_level_is_drawn_and_has_numbers(session, level):
    source = ModelSource("mlp")
    text = session.pipelines(progress=silent).pipelines[level]
    pipeline = read_pipeline("relay", text)
    records = session.step(source, pipeline, progress=silent)
    assert [r.error for r in records] == [None] * len(pipeline)
    for index in (0, len(pipeline) // 2, len(pipeline) - 1):
        request = BuildRequest(source, pipeline.upto(index), QUICK)
        assert all(c.max_rel < OUTPUT for c in session.check(request, progress=silent))


def test_the_steps_are_those_that_tvm_runs_and_fuse_less_at_a_lower_level(session):
    found = session.pipelines(progress=silent).pipelines
    steps = {n: [s.name for s in Pipeline.parse(t)] for n, t in found.items()}
    assert [*found] == ["O0", "O1", "O2", "O3", "O4"]
    assert "AlterOpLayout" in steps["O3"] and "AlterOpLayout" not in steps["O2"]
    assert "FastMath" in steps["O4"] and "InferType" not in steps["O4"]
    assert "FuseOps(level=0)" in found["O0"] and "FuseOps|" in found["O3"]
    levels = "O0", "O3"
    records = [session.step(MLP, read_pipeline("relay", found[n]), progress=silent) for n in levels]
    least, most = (r[steps[n].index("FuseOps")].nodes for n, r in zip(levels, records, strict=True))
    assert most < least
