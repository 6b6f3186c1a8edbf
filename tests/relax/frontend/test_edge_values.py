"""Values at the edges of what operators take, through Relax."""

import pytest
import torch
from torch.nn import functional as F

from edge_values import *  # noqa: F403
from edge_values import STRANGE, drawn, forward_agrees, gradients_agree, gradients_agree_of, program
from quick import QUICK
from relascope.core.errors import EngineError


@pytest.mark.parametrize("target", [QUICK, None], ids=["plain", "default"])
def test_the_gradient_of_slices_of_two_axes_with_steps(target):
    """TVM's own slice_scatter, where several become one kernel, reads behind the end of what it
    puts back."""

    def strided(x):
        return torch.cat([x[:, ::2, ::2], x[:, 1::2, ::2]], -1) * 2

    gradients_agree_of({"strided": (strided, drawn(1, 16, 16, 16))}, target)


def test_single_elements_and_windows():
    given = (drawn(1, 2, 3, 4),)
    live, values = program(lambda x: F.adaptive_max_pool2d(x, (None, None), True), given)
    ours, theirs = live.forward(values), F.adaptive_max_pool2d(values["x0"], (None, None), True)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    forward_agrees(torch.argmax, torch.tensor(0.5))
    image = torch.tensor([1.0, torch.nan, 2, 3, 4]).reshape(1, 5, 1, 1)
    gradients_agree(lambda x: F.local_response_norm(x, 3), image)


def test_a_refusal_says_nothing_of_the_code_behind_it():
    inputs = (STRANGE.reshape(2, 5),)
    with pytest.raises(EngineError) as refused:
        program(lambda x: torch.linalg.vector_norm(x, -0.0, 1), inputs, training=False)
    assert "division" not in refused.value.message
