"""Dropout masks that a kernel draws."""

import pytest
from twisting import (  # noqa: F401
    test_a_kernel_that_draws_other_numbers_is_not_used,
    test_masks_are_those_of_dropout,
    test_the_kernel_draws_the_numbers_of_pytorchs_generator,
)

from engine.relay.runtime import mask_kernel


@pytest.fixture
def kernel():
    return mask_kernel()
