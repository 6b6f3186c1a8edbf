"""Each Relax pass on its small program."""

import numpy as np
import pytest

from examples import *  # noqa: F403
from examples import assert_close, is_rounded, reads_bits


def _roots(run, dtype):
    y = np.tanh(run["x"])
    assert_close(run.after, [np.sum(y * run["grad_out_0"]), y], dtype)


def _has_the_gradient(run, dtype):
    y = np.tanh(run["x"])
    assert_close(run.after, [y, (1 - y * y) * run["grad_out_0"]], dtype)


def _is_approximate(run, dtype):
    # TVM's polynomials are for float32; in float64 the pass takes the exact function.
    assert_close(run.after, [np.tanh(run["x"])], dtype)
    assert (dtype == "float32") == bool((run.after[0] != run.before[0]).any())


@pytest.fixture
def otherwise():
    return {
        "masks_as_bits": reads_bits,
        "root_grad_out": _roots,
        "gradient": _has_the_gradient,
        "fast_math": _is_approximate,
        "mixed_precision": is_rounded,
    }
