"""Each pass that a finding of a linter names removes it, from its own example or from a sample."""

import pytest
import torch

from answers import quiet
from quick import ENGINE
from relascope.engine.protocol.source import ModelSource, source_from_file
from relascope.passes.catalogue import default_pipeline, last_built, read_pipeline
from relascope.passes.lint import lint
from relascope.passes.lint.remedies import with_remedy
from relascope.passes.pipeline import Pipeline
from traces import Fn, save

ATTENTION = ModelSource("bert_self_attention", tokens=6)
TRAINED = ModelSource("mlp", training=True)
TRAINING = default_pipeline(ENGINE, True)
EXAMPLES = {"fold": "constants", "drop_zeros": "no_ops", "drop_ones": "no_ops", "dce": "dead"}
EXAMPLES |= {
    "relay": {
        "combine_dense": "parallel",
        "combine_conv2d": "parallel",
        "fold_scale_axis": "scales",
        "fold_explicit_padding": "paddings",
        "drop_identities": "no_ops",
    },
    "relax": {"combine_matmul": "parallel", "transpose_dedup": "transposes"},
}[ENGINE]


def without(name):
    """The default training pipeline without the last step of a name."""
    before, _, after = f"|{TRAINING}".rpartition(f"|{name}")
    return before[1:] + after


REMEDIES = {
    "relay": [
        (ATTENTION, "", "duplicates", "cse"),
        (ATTENTION, "", "constants", "bind|fold"),
        (ATTENTION, "", "transposes", "simplify_expr"),
        (ATTENTION, "cse|bind|fold|batch_matmul_nt", "parallel", "combine_batch_matmul"),
        (TRAINED, without("cse"), "duplicates", "cse"),
    ],
    "relax": [
        (ATTENTION, "", "constants", "bind|fold"),
        (ATTENTION, "", "transposes", "transpose_dedup"),
        (ATTENTION, "cse|bind|fold", "parallel", "combine_matmul"),
        (TRAINED, without("transpose_of_matmul"), "transposes", "fuse_transpose_matmul"),
        (TRAINED, without("transpose_of_matmul"), "transposes", "transpose_of_matmul"),
        (TRAINED, without("cse"), "duplicates", "cse"),
    ],
}[ENGINE]


@pytest.mark.parametrize(("name", "hazard"), EXAMPLES.items())
def test_a_pass_removes_what_names_it_from_its_example(session, name, hazard):
    example = session.example(name, progress=quiet)
    before = [f for f in lint(example.graph_before) if f.hazard == hazard]
    assert [f.remedy for f in before] == [str(example.step)]
    assert not [f for f in lint(example.graph_after) if f.hazard == hazard and f.remedy]


def removed(session, source, pipeline, hazard, remedy):
    """The findings of a program, none of which is left when the pass that they name has run."""
    pipeline = read_pipeline(session.ir, pipeline)
    found = of(session, source, pipeline, hazard, remedy)
    assert found
    better = with_remedy(session.ir, pipeline, remedy)
    assert all(r.error is None for r in session.step(source, better, progress=quiet))
    assert not of(session, source, better, hazard, remedy)
    return found


def of(session, source, pipeline, hazard, remedy):
    graph = session.graph_after(source, pipeline, len(pipeline) - 1, progress=quiet)
    return [f for f in lint(graph) if (f.hazard, f.remedy) == (hazard, remedy)]


@pytest.mark.parametrize(("source", "pipeline", "hazard", "remedy"), REMEDIES)
def test_a_pass_removes_what_names_it_from_a_sample(session, source, pipeline, hazard, remedy):
    found = removed(session, source, pipeline, hazard, remedy)
    assert source is TRAINED or all(f.bytes > 0 for f in found)


def test_fusion_joins_what_is_named(session):
    """Operator by operator the kernels of a program can be joined; as they are fused, none can."""
    source = {"relay": ModelSource("mlp"), "relax": ModelSource("llama_block", tokens=6)}[ENGINE]
    pipeline = default_pipeline(ENGINE, False)
    pipeline = pipeline.upto(last_built(ENGINE, pipeline))
    graph = session.graph_after(source, pipeline, len(pipeline) - 1, progress=quiet)
    each = [(n.id,) for n in graph if n.kind.value == "call"]
    fused = session.kernels(source, pipeline, True, progress=quiet)
    assert [f for f in lint(graph, each) if f.hazard == "unfused" and f.remedy]
    assert not [f for f in lint(graph, fused) if f.hazard == "unfused"]


def traced(folder, module, shape):
    file = save(module, (torch.ones(*shape),), folder / "traced.pt")
    return source_from_file(str(file), f"{'x'.join(map(str, shape))}:float32")


def test_casts_there_and_back_go_where_a_pass_removes_them(session, tmp_path):
    casts = Fn(lambda x: torch.tanh(x.to(torch.float64).to(torch.float32)))
    source = traced(tmp_path, casts, (2, 3))
    if ENGINE == "relay":
        removed(session, source, "", "casts", "simplify_expr")
        return
    found = of(session, source, Pipeline(), "casts", "")
    said = " ".join(f.message for f in found)
    assert len(found) == 2
    assert "restore the original type" in said and "computes in float64" in said
