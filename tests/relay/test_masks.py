"""Dropout masks that a kernel draws."""

from twisting import PLACES, check_masks, check_numbers, check_other_numbers

from engine.masks import DRAWING
from engine.relay.runtime import mask_kernel


@PLACES
def test_the_kernel_draws_the_numbers_of_pytorchs_generator(before):
    check_numbers(mask_kernel(), before)


def test_masks_are_those_of_dropout():
    check_masks(DRAWING)


def test_a_kernel_that_draws_other_numbers_is_not_used():
    check_other_numbers()
