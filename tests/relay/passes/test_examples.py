"""Each Relay pass on its small program."""

import numpy as np
import pytest

from examples import *  # noqa: F403
from examples import BACKEND, apply, assert_close, is_rounded, reads_bits
from limits import rounding
from relascope.passes.catalogue import info, names


def _drops(run, dtype):
    expected = np.maximum(run["x"] * (run["dropout_mask_0"] / np.dtype(dtype).type(0.9)), 0)
    assert_close(run.after, [expected], dtype)


def _roots(run, dtype):
    y = run["x"] @ run["w"].T
    assert_close(run.after, [np.sum(y * run["grad_out_0"]), y], dtype)


def _has_gradients(count):
    """As many results as there are; the third stays of the way to the gradient."""

    def check(run, dtype):
        x, g = run["x"], run["grad_out_0"]
        assert_close(run.after, [np.sin(x), np.cos(x) * g, np.sin(x)][:count], dtype)

    return check


@pytest.fixture
def otherwise():
    return {
        "externalize_dropout": _drops,
        "masks_as_bits": reads_bits,
        "root_grad_out": _roots,
        "gradient": _has_gradients(3),
        "graph_normal_form": _has_gradients(2),
        "mixed_precision": is_rounded,
        "fast_math": lambda run, dtype: assert_close(
            run.after, run.before, dtype, rounding("float32", 1)
        ),
    }


@pytest.mark.parametrize("name", names("relay"))
def test_the_pass_leaves_the_program_that_it_is_given_as_it_was(name):
    example = BACKEND.examples[name]("float32")
    program, text = example.program, BACKEND.text(example.program)
    result = program.main.ret_type
    apply(info("relay", name), example)
    assert BACKEND.text(program) == text
    assert program.main.ret_type == result
