"""Each pass that a finding names removes it, from its own example or from a sample."""

import pytest

from linting import Casts, check_example, check_fusion_finds_nothing, check_remedy, of, traced
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import default_pipeline, last_built
from relascope.passes.lint.remedies import with_remedy
from relascope.passes.pipeline import Pipeline

ATTENTION = ModelSource("bert_self_attention", tokens=6)


@pytest.mark.parametrize(
    ("name", "hazard"),
    [
        ("fold", "constants"),
        ("combine_matmul", "parallel"),
        ("transpose_dedup", "transposes"),
        ("drop_zeros", "no_ops"),
        ("drop_ones", "no_ops"),
        ("dce", "dead"),
    ],
)
def test_a_pass_removes_what_names_it_from_its_example(session, name, hazard):
    check_example(session, name, hazard)


@pytest.mark.parametrize(
    ("pipeline", "hazard", "remedy"),
    [
        ("", "constants", "bind|fold"),
        ("", "transposes", "transpose_dedup"),
        ("cse|bind|fold", "parallel", "combine_matmul"),
    ],
)
def test_a_pass_removes_what_names_it_from_attention(session, pipeline, hazard, remedy):
    found = check_remedy(session, ATTENTION, pipeline, hazard, remedy)
    assert all(f.bytes > 0 for f in found)


@pytest.mark.parametrize("remedy", ["fuse_transpose_matmul", "transpose_of_matmul"])
def test_a_pass_removes_transposes_from_a_gradient(session, remedy):
    source = ModelSource("mlp", training=True)
    pipeline = str(default_pipeline("relax", True)).replace("transpose_of_matmul|", "")
    check_remedy(session, source, pipeline, "transposes", remedy)


def test_duplicates_go(session):
    source = ModelSource("mlp", training=True)
    pipeline = str(default_pipeline("relax", True)).removesuffix("|cse")
    check_remedy(session, source, pipeline, "duplicates", "cse")


def test_no_pass_removes_casts_there_and_back(session, tmp_path):
    found = of(session, traced(tmp_path, Casts(), (2, 3)), Pipeline(), "casts", "")
    said = " ".join(f.message for f in found)
    assert len(found) == 2
    assert "back where they began" in said
    assert "computes in float64" in said


def test_fusion_joins_what_is_named(session):
    pipeline = default_pipeline("relax", False)
    pipeline = pipeline.upto(last_built("relax", pipeline))
    check_fusion_finds_nothing(session, ModelSource("llama_block", tokens=6), pipeline)


def test_a_function_of_a_pass_is_followed_or_given_up(session):
    source = ModelSource("mlp", training=True)
    pipeline = default_pipeline("relax", True)
    fused = with_remedy("relax", pipeline, "fuse_transpose_matmul")
    assert session.kernels(source, pipeline, True, progress=lambda f, t: None)
    session.kernels(source, fused, True, progress=lambda f, t: None)  # raises nothing
