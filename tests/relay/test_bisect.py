"""Bisection in Relay: each fault that is planted is found, without a hint."""

import math

import pytest
from bisecting import FAULTS, offer, planted, search, small

from engine import bisection
from engine.relay.session import RelaySession
from passes.pipeline import Pipeline

SPOTS = {
    "gelu_tanh": "cse",
    "in_float16": "bind",
    "weight_transposed": "fold",
    "residual_dropped": "fuse",
}

TRAINING = (
    "externalize_dropout|decompose_layer_norm|eps_outside|linear_to_dense|root_grad_out|gradient"
    "|graph_normal_form|drop_zeros|dce"
)


@pytest.fixture(scope="module")
def session():
    return RelaySession()


@pytest.fixture(autouse=True)
def faults(monkeypatch):
    offer(monkeypatch, "relay/faults.py")


def most(pipeline):
    return math.ceil(math.log2(sum(s.enabled for s in pipeline))) + 2


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_pass_is_found(session, tmp_path, fault):
    pipeline, index = planted("relay", fault, SPOTS[fault])
    dtype = "float32" if fault == "gelu_tanh" else "float64"  # which is not looked at again
    result = search(session, small(tmp_path, dtype=dtype), pipeline)
    assert (result.kind, result.found.suspects) == ("wrong", (index,))
    assert result.compiles <= most(pipeline)
    assert dtype == "float64" or not result.double.passed
    words = bisection.verdict("relay", result)
    assert words.startswith(f"Step {index + 1}, {fault} ")
    assert "wrong, not rounded" in words


def test_an_eps_in_the_wrong_place_on_the_way_to_the_gradient(session, tmp_path):
    pipeline = Pipeline.parse(TRAINING)
    index = [s.name for s in pipeline].index("eps_outside")
    source = small(tmp_path, training=True, dtype="float64")
    result = search(session, source, pipeline)
    assert (result.kind, result.found.suspects) == ("wrong", (index,))
    assert result.compiles <= most(pipeline)
    on = [{s.name for s in t.pipeline if s.enabled} for t in result.log]
    assert all({"root_grad_out", "gradient"} <= names for names in on)


def test_a_pass_that_raises_is_found_and_the_session_goes_on(session, tmp_path):
    pipeline, index = planted("relay", "raises", "fold")
    result = search(session, small(tmp_path), pipeline)
    assert (result.kind, result.found.suspects) == ("crash", (index,))
    assert "no good after 4 parameters" in bisection.verdict("relay", result)
    right = search(session, small(tmp_path), pipeline.switched(index, False))
    assert (right.kind, right.found.suspects, right.compiles) == ("", (), 1)
