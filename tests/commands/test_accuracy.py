"""The accuracy report's judgement, without a TVM: limits, the first bad node, the verdict."""

from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from answers import engine
from page_session import forward_graph, joint_graph
from relascope.commands import text as texts
from relascope.core.errors import EngineError
from relascope.engine.jobs import accuracy
from relascope.engine.protocol.accuracy import WHOLE, Comparison, NodeError
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import default_pipeline
from relascope.viz.rows import tables

LIMIT = accuracy.LIMITS["float64"]
RIGHT, WRONG = 1e-15, 1e-3
DTYPES = accuracy.DTYPES
FORWARD, TRAINING = default_pipeline("relay", False), default_pipeline("relay", True)


def error(ident, size, counterpart="aten::linear in layers.0"):
    return NodeError(ident, size, size, counterpart)


def found(graph, *errors, forward=False):
    bad = accuracy.first_bad(graph, errors, LIMIT, forward)
    return None if bad is None else bad.id


def test_the_first_node_over_the_limit_is_the_bad_one():
    graph = forward_graph()
    assert found(graph, error("d1", WRONG), error("r", WRONG), error("d0", RIGHT)) == "r"
    assert found(graph, error("d1", RIGHT), error("r", RIGHT)) is None
    assert found(graph, error("d0", float("nan"))) == "d0"


def test_a_gradient_is_followed_to_the_first_node_of_which_nothing_right_is_computed():
    graph = joint_graph()
    wrong, right = error("gw0", WRONG, "gradient of a"), error("gw1", RIGHT, "gradient of b")
    # m reads the forward alone: no gradient comes by, so it is not to blame by itself.
    assert found(graph, wrong, right) == "gr"
    assert found(graph, wrong, right, error("gr", RIGHT, "gradient of c")) == "gd"
    bad = accuracy.first_bad(graph, [wrong, right], LIMIT, False)
    assert (bad.max_rel, bad.counterpart) == (None, "")
    inner = error("gd", RIGHT, "gradient of d")
    bad = accuracy.first_bad(graph, [wrong, right, inner], LIMIT, False)
    assert (bad.id, bad.max_rel, bad.counterpart) == ("gw0", WRONG, "gradient of a")
    # What is as in the whole function is not right for that.
    wrong, same = error("gw0", WRONG, "gradient of a"), error("gd", RIGHT, WHOLE)
    assert found(graph, wrong, same) == "gr"
    assert found(graph, wrong, error("gd", WRONG, WHOLE)) == "gd"


def test_a_wrong_result_of_an_imported_program_is_followed_to_where_its_numbers_are_lost():
    graph = forward_graph()
    last, first = graph.outputs[0], next(n.id for n in graph if n.op)
    wrong = error(last, WRONG, "output 0, as imported")
    assert found(graph, wrong) == first
    known = error("d0", RIGHT, "nn.dense, as imported")
    bad = accuracy.first_bad(graph, [wrong, known], LIMIT, True)
    assert bad.id == "r"
    assert bad.reason.endswith("what is computed from it is not as it was imported")
    relu = error("r", WRONG, "nn.relu, as imported")
    bad = accuracy.first_bad(graph, [wrong, known, relu], LIMIT, True)
    assert (bad.id, bad.reason) == ("r", "the first node that is not as it was imported")


def test_the_forward_is_judged_strictly_only_where_it_is_to_blame():
    limit = accuracy.LIMITS["float32"]
    nodes = [error("d0", 5e-5), error("gw0", WRONG, "gradient of a")]
    assert accuracy.first_bad(joint_graph(), nodes, limit, True).id == "d0"
    assert accuracy.first_bad(joint_graph(), nodes, limit, False).id == "gr"


def rows(single, double):
    """Of an engine whose gradients are off by so much in float32, and in float64."""

    def check(request, *captures):
        dtype = request.source.dtype
        off = single if dtype == "float32" else double
        right = Comparison("output 0", 1e-16, 1e-16, 1.0, dtype)
        return right, Comparison("gradient of a", off, off, 1.0, dtype)

    joint, inside = joint_graph(), (error("gw0", WRONG, "gradient of a"),)
    info = SimpleNamespace(graph=joint, against="PyTorch")
    ask = engine(graph_after=joint, load=info, kernels=None, inside=inside, check=check)
    stages = accuracy.plan("relay", ModelSource("mlp"), None, TRAINING, ["keep_all"])
    return [r for s in stages for r in accuracy.run(ask, s, "llvm")]


@pytest.mark.parametrize(
    ("size", "words", "told"),
    [
        ((9e-5, 9e-11), "Every stage agrees", ("right", "float32")),
        ((2e-4, 9e-11), "gradient: rounding", ("rounding", "float32")),
        ((2e-4, 2e-10), "gradient: wrong", ("wrong", "float64")),
        ((9e-5, 2e-10), "gradient: wrong", ("wrong", "float64")),
        ((2e-4,), "gradient: over the limit", ("over", "float32")),  # in float32 alone
    ],
)
def test_float64_tells_rounding_from_a_fault_for_each_kind_of_inputs(size, words, told):
    found = [r for r in rows(*(*size, 0.0)[:2]) if r.dtype in DTYPES[: len(size)]]
    assert words in accuracy.verdict(found)
    stages = tables.accuracy_document("mlp", "relay", "llvm", found, "PyTorch")["stages"]
    assert ("over" in {tables.finding(s)["outcome"] for s in stages}) == (size[0] > 1e-4)
    both = [replace(r, inputs=k) for r in found for k in ("tiny", "edges")]
    (verdict, tiny), (_, edges) = accuracy.by_inputs(both)
    assert (tiny.inputs, edges.inputs) == ("tiny", "edges")
    assert tiny == replace(edges, inputs="tiny")
    assert (verdict, tiny.dtype) == told
    assert (tiny.error, tiny.scale) == (size[DTYPES.index(tiny.dtype)], 1.0)


def test_a_table_without_a_fault_says_what_was_compared():
    right = rows(1e-6, 0.0)
    assert accuracy.verdict([replace(r, inputs="tiny") for r in right], "ONNX Runtime") == (
        "Every stage agrees with ONNX Runtime: within 1e-04 of the scale in float32 and 1e-10 of "
        "the scale in float64, on tiny inputs, run once."
    )
    document = tables.accuracy_document("a.onnx", "relax", "llvm", right, "ONNX Runtime")
    assert "PyTorch" not in document["verdict"]


def test_a_session_of_which_nothing_was_compared_is_not_the_same():
    about = {"versions": {"then": "1", "now": "1"}, "differences": [], "same": True}
    about |= {"model": "mlp", "engine": "relay", "pipeline": "cse"}
    assert texts.replay({**about, "compared": []}).endswith("the session has no results yet")
    assert texts.replay({**about, "compared": ["cut"]}).endswith("What was compared is the same.")


def test_what_fails_for_one_reason_is_told_once():
    failure = EngineError("pass", "There is no gradient.")
    failed = [replace(r, passed=False, failure=failure) for r in rows(0, 0)]
    told = accuracy.verdict([replace(failed[0], failure=None, passed=True), *failed[1:]])
    assert told.count("There is no gradient.") == 1
    assert told.endswith("split (keep_all): could not be run: There is no gradient.")


def test_a_cut_is_not_blamed_for_gradients_and_a_split_is_and_nan_is_over_every_limit():
    by_stage = {(r.stage, r.dtype): r for r in rows(1.0, 1.0)}
    cut, split = by_stage["cut", "float64"], by_stage["split", "float64"]
    assert (cut.passed, cut.compared) == (True, 1)
    assert (split.passed, split.first_bad_node) == (False, "gr")
    (row, *_) = rows(float("nan"), 0.0)
    assert not row.passed


def test_the_plan_has_every_stage_once_a_precision_and_looks_at_nothing_only_for_looking():
    stages = accuracy.plan("relay", ModelSource("mlp"), FORWARD, TRAINING, ["keep_all", "min_cut"])
    single = ["forward", "training forward", "gradient"]
    assert [s.name for s in stages[:5]] == [*single, "cut and split", "cut and split"]
    assert [s.source.dtype for s in stages] == ["float32"] * 5 + ["float64"] * 5
    assert "-fuse" in str(stages[0].pipeline) and not stages[0].source.training
    assert stages[1].pipeline.steps == TRAINING.steps[: len(stages[1].pipeline)]
    assert "root_grad_out" not in [s.name for s in stages[1].pipeline]


@pytest.mark.parametrize(
    ("dtype", "against", "terms", "wanted"),
    [
        ("float32", "PyTorch", 2**16, None),
        ("float32", "ONNX Runtime", 16, None),
        ("float32", "ONNX Runtime", 2**16, 8 * 2**8 * 2**-24),
        ("float64", "ONNX Runtime", 2**16, None),
        ("bfloat16", "PyTorch", 4, 8 * 2 * 2**-8),
        ("bfloat16", "PyTorch", 2**16, 1 / 8),
        ("quantized", "PyTorch", 4, 8 * 2 * 2**-8),
    ],
)
def test_the_limit_of_a_program_follows_from_its_format_and_its_sums(
    monkeypatch, dtype, against, terms, wanted
):
    monkeypatch.setattr(accuracy.cost, "longest", lambda graph: float(terms))
    node = SimpleNamespace(outputs=[SimpleNamespace(dtype=dtype)], source=f"{dtype}::linear")
    graph = SimpleNamespace(nodes=[node])
    model = SimpleNamespace(graph=graph, against=against)
    assert accuracy.OURS.fitted(model).relative == wanted
    given = accuracy.Tolerance(0.25)
    assert given.fitted(model) == given
    # Float64 would tell rounding only where the program would compute in it.
    size = 0.9 * (wanted or 1e-3)
    off = Comparison("output 0", size, size, 1.0, "float32")
    asked = []
    check = lambda about: asked.append(about.dtype) or (off,)  # noqa: E731
    about = ModelSource("mlp"), lambda source: source, accuracy.OURS
    judged = accuracy.judged(engine(check=check, load=model), *about)
    assert judged.verdict == ("right" if wanted else "wrong")
    assert ("float64" in asked) == (against == "PyTorch" and wanted is None)


def test_a_program_that_quantizes_is_checked_in_the_one_precision_that_it_has():
    stages = accuracy.plan("relay", ModelSource("mlp"), FORWARD, TRAINING, ["keep_all"])
    graph = SimpleNamespace(nodes=[SimpleNamespace(source="quantized::linear_dynamic")])
    info = SimpleNamespace(graph=graph, against="PyTorch")
    kept, said = accuracy.of_program(lambda *about: info, stages, "llvm", False, True)
    assert ([s.name for s in kept], said) == (["forward"], ())
    assert kept[0].source.dtype == "float32"


def test_what_was_traced_in_train_mode_has_its_training_stages():
    def ask(method, source):
        if not source.training:
            raise EngineError("input", "This trace was taken in train mode.")
        return SimpleNamespace(graph=SimpleNamespace(nodes=[]), against="PyTorch")

    stages = accuracy.plan("relay", ModelSource("mlp"), FORWARD, TRAINING)
    assert accuracy.of_program(ask, stages, "llvm", True, False)[0] == stages


def test_a_cancelled_stage_is_no_row():
    ask = Mock(side_effect=EngineError("cancelled", "Cancelled."))
    (stage,) = accuracy.plan("relay", ModelSource("mlp"), FORWARD, None, dtypes=["float32"])
    with pytest.raises(EngineError):
        accuracy.run(ask, stage, "llvm")
