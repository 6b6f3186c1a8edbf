"""Bisection and narrowing in Relay."""

import pytest

from answers import asking
from bisecting import *  # noqa: F403
from bisecting import Case, search, small, tiny
from reducing import *  # noqa: F403
from reducing import run, written
from relascope.engine.jobs import reduce
from relascope.passes.pipeline import Pipeline

# Relax's are quicker.
pytest.mark.exhaustive(test_an_eps_in_the_wrong_place_on_the_way_to_the_gradient)  # noqa: F405
pytest.mark.exhaustive(test_a_pass_that_makes_it_slow_is_found)  # noqa: F405
pytest.mark.exhaustive(test_a_persons_own_test_decides_what_is_kept)  # noqa: F405
pytest.mark.exhaustive(test_a_slow_pass_comes_down_to_one_layer)  # noqa: F405
pytest.mark.exhaustive(test_what_a_pass_itself_takes_is_found_and_narrowed)  # noqa: F405


@pytest.fixture
def case():
    return Case(
        "relay",
        {
            "gelu_tanh": "cse",
            "in_float16": "bind",
            "weight_transposed": "fold",
            "residual_dropped": "fuse",
            "softmax_axis": "fold",
            "slow": "linear_to_dense",
        },
        "externalize_dropout|decompose_layer_norm|eps_outside|linear_to_dense|root_grad_out|gradient"
        "|graph_normal_form|drop_zeros|dce",
    )


@pytest.mark.exhaustive
def test_a_fault_that_only_the_gradient_shows_is_narrowed_with_the_steps_to_it(session, tmp_path):
    source = small(tmp_path, tiny, training=True, dtype="float64")
    text = "gradient_dropped|linear_to_dense|root_grad_out|gradient|graph_normal_form|dce"
    found = search(session, source, Pipeline.parse(text))
    made = reduce.narrow(asking(session), "relay", found)
    assert made.where.tail
    assert (made.operators, made.minimal) == (("erf",), True)
    assert made.report.title == "[Relay] gradient_dropped changes the gradient of erf"
    status, said = run(written(made.report, tmp_path / "report"))
    assert status == 1, said
    assert "output 0: differs by 0.000e+00" in said
    assert "right" in said and "WRONG" in said


def test_of_a_program_that_cannot_be_cut_the_whole_is_reported(session, tmp_path):
    source = small(tmp_path, tiny, training=True)
    # The gradient binds variables by let, which the pass after it takes away.
    text = "linear_to_dense|root_grad_out|gradient|raises|graph_normal_form|dce"
    found = search(session, source, Pipeline.parse(text))
    made = reduce.narrow(asking(session), "relay", found)
    assert len(made.piece.nodes) == made.total > 1
    assert {t.shown.outcome for t in made.log[1:]} == {"cannot be run"}
    assert "No smaller part was found" in reduce.verdict("relay", made)
    status, said = run(written(made.report, tmp_path / "report"))
    assert (status, "ValueError: no good" in said) == (1, True), said
