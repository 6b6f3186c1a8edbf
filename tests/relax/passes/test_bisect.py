"""Bisection in Relax."""

import pytest

pytest.register_assert_rewrite("bisecting")

from bisecting import *  # noqa: F403
from bisecting import Case

# Relay's is quicker.
pytest.mark.exhaustive(test_a_pass_that_makes_it_slow_is_found)  # noqa: F405


@pytest.fixture
def case():
    return Case(
        "relax",
        {
            "gelu_tanh": "cse",
            "in_float16": "bind",
            "weight_transposed": "fold",
            "residual_dropped": "dce",
            "softmax_axis": "fold",
            "slow": "decompose_inference",
        },
        "decompose_gelu|decompose_layer_norm|eps_outside|canonicalize|root_grad_out|gradient|drop_zeros"
        "|dce",
    )
