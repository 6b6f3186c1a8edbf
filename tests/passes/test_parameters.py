"""Pipelines as text, the catalogue they name, and what passes can be told, refused in words."""

import inspect

import pytest

from relascope.passes.catalogue import CATALOGUE, default_pipeline, names, read_pipeline
from relascope.passes.catalogue.parameters import KINDS, Parameter, read_all
from relascope.passes.catalogue.user import read
from relascope.passes.pipeline import Pipeline, Step

DECLARED = (
    Parameter("layout", "text", "NHWC", "An order of axes.", ("NHWC", "NCHW")),
    Parameter("limit", "whole number", 10, "So many at most.", least=1, unit="nodes"),
    Parameter("share", "number", 0.5, "Of the whole."),
    Parameter("deep", "switch", False, "Goes into functions."),
)


def given(text):
    return Pipeline.parse(f"p({text})").steps[0].params


def test_a_file_that_is_nested_too_deeply_is_told(tmp_path):
    (tmp_path / "deep.py").write_text("x = " + "-" * 2_000_000 + "1")
    with pytest.raises(ValueError, match=r"deep\.py is not Python: "):
        read(str(tmp_path / "deep.py"))


def test_values_arrive_as_what_they_are():
    found = read_all("P", DECLARED, given("layout=NCHW, limit=3, share=1e-2, deep=true"))
    assert found == {"layout": "NCHW", "limit": 3, "share": 0.01, "deep": True}
    assert read_all("P", DECLARED, ()) == {}  # the pass's own defaults hold


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("depth=3", "P has no parameter 'depth'; it takes layout, limit, share, deep"),
        ("limit=3, limit=4", "P has limit twice"),
        ("layout=XYZ", "P: layout=XYZ is not allowed; give one of NHWC, NCHW"),
        ("limit=3.5", "P: limit=3.5 is not a whole number; give a whole number from 1 of nodes"),
        ("limit=0", "P: limit=0 is too small; give a whole number from 1 of nodes"),
        ("share=nan", "P: share=nan is not a number; give a number"),
        ("deep=maybe", "P: deep=maybe is not a switch; give true or false"),
    ],
)
def test_what_is_wrong_with_a_value_is_said(text, said):
    with pytest.raises(ValueError, match=r".") as caught:
        read_all("P", DECLARED, given(text))
    assert str(caught.value) == said


def test_a_pipeline_is_held_against_the_catalogue():
    text = "cse|convert_layout(data=NCHW, kernel=OIHW)"
    assert str(read_pipeline("relax", text)) == text
    with pytest.raises(ValueError, match="ConvertLayout has no parameter 'dst'"):
        read_pipeline("relax", "convert_layout(dst=NCHW)")
    with pytest.raises(ValueError, match="takes none"):
        read_pipeline("relay", "cse(deep=true)")


@pytest.mark.parametrize("entry", [p for p in CATALOGUE.values() if p.parameters])
def test_declarations_can_be_read_and_explained(entry):
    for parameter in entry.parameters:
        assert parameter.kind in KINDS
        assert parameter.about.endswith(".")
        assert len(parameter.about) < 120
        if parameter.default is not None:
            assert parameter.read(parameter.default_text) == parameter.default


OWN = '''
from typing import Literal


def mine(program, limit=3, layout: Literal["a", "b"] = "a", *, share: float | None = None,
         deep=False, table=()):
    """Does something.

    limit: so many at most.
    """


def not_a_pass(program, *, needed):
    """Cannot be called with the program alone."""
'''


def test_the_parameters_of_a_pass_of_ones_own_are_read_from_its_signature(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(OWN, encoding="utf-8")
    found = [p for p in read(str(file)) if p.ir == "relay"]
    assert [p.name for p in found] == ["mine"]
    names = {}
    exec(OWN, names)
    signature = inspect.signature(names["mine"])
    declared = {p.name: p for p in found[0].parameters}
    assert list(declared) == list(signature.parameters)[1:]
    kinds = {"limit": "whole number", "layout": "text", "share": "number", "deep": "switch"}
    assert {n: p.kind for n, p in declared.items()} == kinds | {"table": "text"}
    for name in ("limit", "layout", "share", "deep"):
        assert declared[name].default == signature.parameters[name].default
    assert declared["layout"].choices == ("a", "b")
    assert declared["limit"].about == "so many at most."


@pytest.mark.parametrize(
    "text", ["", "cse", "cse|bind|-fold", "layout(dst=NCHWc, src=NCHW)|-fuse", "fold|fold"]
)
def test_text_reads_back_equal(text):
    assert str(Pipeline.parse(text)) == text


def test_white_space_around_bars_does_not_matter_and_switching_leaves_the_rest():
    steps = Step("cse"), Step("fold", False, (("a", "1"),))
    assert Pipeline.parse(" cse | -fold( a = 1 ) ") == Pipeline(steps)
    pipeline = Pipeline.parse("cse|bind|fold")
    assert str(pipeline.switched(1, False)) == "cse|-bind|fold"
    assert str(pipeline) == "cse|bind|fold"
    assert str(pipeline.upto(1)) == "cse|bind"


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


def test_the_inference_pipeline_follows_the_tutorial_and_each_pass_explains_itself():
    order = [s.name for s in default_pipeline("relay", False)]
    tutorial = ["cse", "bind", "fold", "combine_batch_matmul", "simplify_inference", "fuse"]
    places = [order.index(name) for name in tutorial]
    assert places == sorted(places)
    for info in CATALOGUE.values():
        assert info.title
        assert info.origin
        assert info.summary.endswith(".")
        assert len(info.summary) < 200
