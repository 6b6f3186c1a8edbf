"""Values at the edges of what operators take, through Relay."""

import pytest
import torch

from edge_values import *  # noqa: F403
from edge_values import drawn, forward_agrees, program
from relascope.core.errors import EngineError

# Relax's are quicker.
pytest.mark.exhaustive(test_a_convolution_of_infinite_weights)  # noqa: F405
pytest.mark.exhaustive(test_gradients_where_a_step_of_the_way_has_none)  # noqa: F405


def test_the_gradient_of_a_layer_norm_over_one_element_is_refused():
    def native(size):
        return lambda x: torch.native_layer_norm(x, (size,), None, None, 0.5)[0]

    for size, made in [(n, f) for n in (1, 3) for f in (torch.nn.LayerNorm, native)]:
        live, _ = program(made(size), (drawn(2, size),))
        if size == 3:
            live.joint()
            continue
        with pytest.raises(EngineError, match="layer_norm"):
            live.joint()


def test_what_is_composed_is_composed_in_place_too():
    forward_agrees(lambda x: (x * 1).lerp_(x * 3, 0.3), drawn(4))
