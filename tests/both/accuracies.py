"""Running the accuracy report on a session in this process."""

from dataclasses import replace

import pytest

from answers import asking, quiet
from limits import LIMITS
from quick import QUICK
from relascope.engine.jobs import accuracy
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import default_pipeline
from relascope.passes.cuts.cut import STRATEGIES
from relascope.samples import SAMPLES

MLP = ModelSource("mlp")


def table(session, source, dtypes=accuracy.DTYPES, stages=None, strategies=("min_cut",)):
    """The rows of a model by (stage, dtype); with `stages`, only of those stages' runs."""
    pipelines = (default_pipeline(session.ir, training) for training in (False, True))
    plan = accuracy.plan(session.ir, source, *pipelines, strategies, None, dtypes)
    rows = [
        row
        for stage in plan
        if stages is None or stage.name in stages
        for row in accuracy.run(asking(session), stage, QUICK)
    ]
    return {(r.stage, r.dtype): r for r in rows}


def check_all_passed(rows, dtypes):
    for key, row in rows.items():
        assert row.failure is None, (key, row.failure)
        assert row.passed, (key, row)
        assert row.first_bad_node is None
        assert 0 < row.max_rel <= row.limit
    names = {"forward", "training forward", "gradient", "cut", "split"}
    assert set(rows) == {(n, d) for n in names for d in dtypes}


def check_every_stage(session, name, dtypes):
    rows = table(session, ModelSource(name), dtypes=dtypes)
    check_all_passed(rows, dtypes)
    assert rows["gradient", "float64"].compared > 7
    # Captures too, not outputs alone; the cut of the MLP saves none.
    assert rows["cut", "float64"].compared > (name != "mlp")
    assert accuracy.verdict(list(rows.values())).startswith("Every stage agrees with PyTorch: ")


@pytest.mark.exhaustive
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", [n for n in SAMPLES if not n.startswith("small_")])
def test_every_strategy_gives_pytorchs_gradients(session, name, strategy):
    rows = table(session, ModelSource(name), ("float64",), ("cut and split",), (strategy,))
    row = rows["split", "float64"]
    assert row.failure is None and row.passed and row.compared > 1


def check_gelu_is_found(session):
    """With an importer that writes gelu in its tanh form."""
    row = table(session, MLP, dtypes=("float64",), stages=("forward",))["forward", "float64"]
    assert not row.passed
    assert 1e-5 < row.max_rel < 1e-1
    assert (row.first_bad.source, row.first_bad.scope) == ("aten::gelu", "act")
    assert row.first_bad.id == row.first_bad_node
    assert row.first_bad.counterpart == "aten::gelu in act"


def check_gradient_is_found(session):
    """With a pass that makes gelu's gradient a hundredth too large."""
    stages = ("training forward", "gradient", "cut and split")
    rows = table(session, MLP, dtypes=("float64",), stages=stages)
    assert rows["training forward", "float64"].passed
    assert rows["cut", "float64"].passed
    before = ("gradient of x", "gradient of hidden.weight", "gradient of hidden.bias")
    for stage in ("gradient", "split"):
        row = rows[stage, "float64"]
        assert not row.passed
        assert row.worst in before
        assert (row.first_bad.source, row.first_bad.scope) == ("gradient of aten::gelu", "act")


def check_inside(session):
    """The errors inside a right program, and its joint graph."""
    source = replace(MLP, training=True, dtype="float64")
    pipeline = default_pipeline(session.ir, True)
    joint = session.graph_after(source, pipeline, len(pipeline) - 1, progress=quiet)
    request = BuildRequest(source, pipeline, QUICK)
    found = session.inside(request, progress=quiet)
    names = {e.counterpart for e in found}
    modules = "linear in hidden", "gelu in act", "layer_norm in norm", "dropout in dropout"
    assert {f"aten::{name}" for name in (*modules, "linear in head")} < names
    assert {f"gradient of {joint.by_id[i].name}" for i in joint.inputs[:7]} < names
    assert max(e.max_rel for e in found) < LIMITS["float64"][1]
    return request, joint, found
