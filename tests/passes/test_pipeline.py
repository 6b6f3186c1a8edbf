"""Pipelines as values and as text, and the catalogue they name."""

import pytest

from relascope.passes.catalogue import CATALOGUE, default_pipeline, names
from relascope.passes.pipeline import Pipeline, Step


@pytest.mark.parametrize(
    "text", ["", "cse", "cse|bind|-fold", "layout(dst=NCHWc, src=NCHW)|-fuse", "fold|fold"]
)
def test_text_reads_back_equal(text):
    assert str(Pipeline.parse(text)) == text


def test_white_space_around_bars_does_not_matter():
    assert Pipeline.parse(" cse | -fold ( a = 1 ) ".replace(" (", "(")) == Pipeline(
        (Step("cse"), Step("fold", False, (("a", "1"),)))
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("cse||fold", "empty step"),
        ("cse|2fold", "'2fold'"),
        ("cse|fold(a)", "'a'"),
        ("cse|fold(a=1", "'fold(a=1'"),
        ("cse|nonsense", "'nonsense'"),
        ("|".join(["cse"] * 201), "at most 200 steps"),
    ],
)
def test_a_bad_step_is_named(text, named):
    with pytest.raises(ValueError, match=r".") as caught:
        Pipeline.parse(text, names("relay"))
    assert named in str(caught.value)


def test_switching_leaves_the_rest():
    pipeline = Pipeline.parse("cse|bind|fold")
    assert str(pipeline.switched(1, False)) == "cse|-bind|fold"
    assert str(pipeline) == "cse|bind|fold"
    assert str(pipeline.upto(1)) == "cse|bind"


def test_the_inference_pipeline_follows_the_tutorial():
    order = [s.name for s in default_pipeline("relay", False)]
    tutorial = ["cse", "bind", "fold", "combine_batch_matmul", "simplify_inference", "fuse"]
    places = [order.index(name) for name in tutorial]
    assert places == sorted(places)


def test_every_pass_explains_itself_in_a_line():
    for info in CATALOGUE.values():
        assert info.title
        assert info.origin
        assert info.summary.endswith(".")
        assert len(info.summary) < 200
