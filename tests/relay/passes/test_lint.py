"""Each pass that a finding names removes it, from its own example or from a sample."""

import pytest
import torch

from linting import Casts, check_example, check_fusion_finds_nothing, check_remedy, traced
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import default_pipeline, last_built

ATTENTION = ModelSource("bert_self_attention", tokens=6)


@pytest.mark.parametrize(
    ("name", "hazard"),
    [
        ("fold", "constants"),
        ("combine_dense", "parallel"),
        ("combine_conv2d", "parallel"),
        ("fold_scale_axis", "scales"),
        ("fold_explicit_padding", "paddings"),
        ("drop_zeros", "no_ops"),
        ("drop_ones", "no_ops"),
        ("drop_identities", "no_ops"),
        ("dce", "dead"),
    ],
)
def test_a_pass_removes_what_names_it_from_its_example(session, name, hazard):
    check_example(session, name, hazard)


@pytest.mark.parametrize(
    ("pipeline", "hazard", "remedy"),
    [
        ("", "duplicates", "cse"),
        ("", "constants", "bind|fold"),
        ("", "transposes", "simplify_expr"),
        ("cse|bind|fold|batch_matmul_nt", "parallel", "combine_batch_matmul"),
    ],
)
def test_a_pass_removes_what_names_it_from_attention(session, pipeline, hazard, remedy):
    found = check_remedy(session, ATTENTION, pipeline, hazard, remedy)
    assert all(f.bytes > 0 for f in found)


def test_layout_changes_in_a_row_become_one(session, tmp_path):
    convolution = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()).eval()
    source = traced(tmp_path, convolution, (1, 3, 8, 8))
    twice = "bind|convert_layout(data=NHWC)|convert_layout(data=NCHW)"
    check_remedy(session, source, twice, "layouts", "simplify_expr")


def test_casts_there_and_back_go(session, tmp_path):
    source = traced(tmp_path, Casts(), (2, 3))
    check_remedy(session, source, "", "casts", "simplify_expr")


def test_shapes_that_are_several_constants_are_named(session):
    source = ModelSource("mlp", training=True)
    pipeline = str(default_pipeline("relay", True)).removesuffix("|cse")
    check_remedy(session, source, pipeline, "duplicates", "cse")


def test_a_weight_that_is_turned_for_a_product_in_training_becomes_dense(session):
    source = ModelSource("bert_self_attention", tokens=6, training=True)
    pipeline = str(default_pipeline("relay", True)).replace("linear_to_dense|", "")
    found = check_remedy(session, source, pipeline, "transposes", "linear_to_dense")
    assert {f.operators[1] for f in found} == {"nn.batch_matmul"}


def test_fusion_joins_what_is_named(session):
    check_fusion_finds_nothing(
        session,
        ModelSource("mlp"),
        default_pipeline("relay", False).upto(
            last_built("relay", default_pipeline("relay", False))
        ),
    )
