"""Findings in Relax, and the passes that remove them."""

from answers import quiet
from linting import *  # noqa: F403
from linting import TRAINED, TRAINING, with_remedy


def test_a_function_of_a_pass_is_followed_or_given_up(session):
    fused = with_remedy("relax", TRAINING, "fuse_transpose_matmul")
    assert session.kernels(TRAINED, TRAINING, True, progress=quiet)
    session.kernels(TRAINED, fused, True, progress=quiet)  # raises nothing
