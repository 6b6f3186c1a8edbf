"""Values at the edges of what operators take, through Relay."""

import operator

import pytest
import torch

from edge_values import *  # noqa: F403
from edge_values import drawn, forward_agrees, forwards_agree, program
from relascope.core.errors import EngineError

# Relax's are quicker.
pytest.mark.exhaustive(test_a_convolution_of_infinite_weights)  # noqa: F405
pytest.mark.exhaustive(test_gradients_where_a_step_of_the_way_has_none)  # noqa: F405
pytest.mark.exhaustive(test_gradients_of_logarithms_times_anything_and_of_what_is_endless)  # noqa: F405
pytest.mark.exhaustive(test_slopes_at_edges)  # noqa: F405


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


def test_operators_on_bits_are_of_the_dtype_that_pytorch_promotes_to():
    bits = torch.tensor([True, False, True, True])
    small, large = torch.tensor([[200], [7], [65]]).byte(), torch.tensor([[3], [-(2**40)], [64]])
    pairs = {"bool": (bits, bits), "bool and int": (bits, large), "widths": (small, large)}
    cases = {}
    for op in (operator.and_, operator.or_, operator.xor):
        cases |= {f"{op.__name__} of {name}": (op, *pair) for name, pair in pairs.items()}
    cases |= {
        "mask of a number": (lambda x: x & 6, bits),
        "number of fewer bits": (lambda x: x ^ -1, small),
        "in place": (lambda x, y: (x + 0).bitwise_and_(y), large, small),
        "not": (lambda x: ~x, large),
        "not of bool": (lambda x: ~x, bits),
    }
    for op in (operator.lshift, operator.rshift):
        cases[f"{op.__name__} by too many"] = (op, small, large)
        cases[f"{op.__name__} of negative"] = (lambda x, op=op: op(x, x), large)
        cases[f"{op.__name__} by a number"] = (lambda x, op=op: op(x, 3) + op(x, -1), small)
    forwards_agree(cases)
