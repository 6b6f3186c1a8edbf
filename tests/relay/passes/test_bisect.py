"""Bisection in Relay."""

import pytest

pytest.register_assert_rewrite("bisecting")

from bisecting import *  # noqa: F403
from bisecting import Case

# Relax's are quicker.
pytest.mark.exhaustive(test_an_eps_in_the_wrong_place_on_the_way_to_the_gradient)  # noqa: F405
pytest.mark.exhaustive(test_a_pass_that_makes_it_slow_is_found)  # noqa: F405
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
