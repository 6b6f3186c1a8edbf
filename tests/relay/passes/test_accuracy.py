"""The accuracy report in Relay: right where it is right, and where a fault was put it is found."""

import pytest
from tvm import relay

import relascope.passes.relay.simplify_inference  # noqa: F401 - reads what is exchanged in norms
import relascope.passes.relay.training.decompose_norms as norms
from accuracies import *  # noqa: F403
from accuracies import MLP, check_every_stage, check_gelu_is_found, check_inside, quiet, table
from answers import asking
from limits import LIMITS
from quick import QUICK
from relascope.engine.jobs import accuracy
from relascope.engine.relay.frontend.converters import Converter
from relascope.engine.relay.session import RelaySession
from relascope.passes.cuts.cut import cut
from relascope.passes.pipeline import Pipeline
from relascope.passes.relay.ir.rewrite import op_name, rewrite


@pytest.mark.parametrize(
    ("name", "dtypes"),
    [
        ("mlp", ("float64",)),  # Relax has both
        pytest.param("mlp", accuracy.DTYPES, marks=pytest.mark.exhaustive),
        pytest.param("bert_self_attention", ("float64",), marks=pytest.mark.exhaustive),
    ],
)
def test_every_stage_agrees_with_pytorch(session, name, dtypes):
    check_every_stage(session, name, dtypes)


def test_a_gelu_in_its_tanh_form_is_found(monkeypatch):
    def tanh_form(self, inputs, input_types):
        (x, *_) = inputs
        cube = x * x * x * relay.const(0.044715, "float64")
        spread = relay.tanh((x + cube) * relay.const((2 / 3.141592653589793) ** 0.5, "float64"))
        return x * (spread * relay.const(0.5, "float64") + relay.const(0.5, "float64"))

    monkeypatch.setattr(Converter, "gelu", tanh_form)
    check_gelu_is_found(RelaySession())


def test_a_misplaced_eps_is_found_in_training_and_not_in_inference(monkeypatch):
    right = norms.decompose_layer_norm

    def other_eps(call, args):
        if op_name(call) != "nn.layer_norm":
            return None
        return relay.nn.layer_norm(*args, axis=int(call.attrs.axis), epsilon=1e-3)

    monkeypatch.setattr(
        norms, "decompose_layer_norm", lambda program: right(rewrite(program, other_eps))
    )
    stages = ("forward", "training forward", "gradient")
    rows = table(RelaySession(), MLP, dtypes=("float64",), stages=stages)
    assert rows["forward", "float64"].passed
    for row in (rows["training forward", "float64"], rows["gradient", "float64"]):
        assert not row.passed
        assert (row.first_bad.source, row.first_bad.scope) == ("aten::layer_norm", "norm")
    said = accuracy.verdict(list(rows.values()))
    assert "gradient: wrong" in said and "aten::layer_norm in norm" in said


def test_inside_every_counterpart_of_a_right_program_is_near(session):
    request, joint, found = check_inside(session)
    names = {e.counterpart for e in found}
    assert "gradient of aten::gelu in act" in names  # a node of the backward, by its numbers
    both = session.inside(request.split_at(cut(joint, "min_cut").ids), progress=quiet)
    assert {e.id for e in found} < {e.id for e in both} <= set(joint.by_id)
    assert max(e.max_rel for e in both) < LIMITS["float64"][1]


def test_a_stage_that_cannot_run_is_a_row_that_says_why(session):
    stage = accuracy.Stage("forward", MLP, Pipeline.parse("gradient"))
    (row,) = accuracy.run(asking(session), stage, QUICK)
    assert (row.passed, row.max_abs, row.first_bad_node) == (False, None, None)
    assert "root_grad_out" in row.failure.message
