"""Each Relax pass on its small program: what the documentation shows, and that numbers stay."""

import numpy as np
import pytest

from examples import *  # noqa: F403
from examples import Run, assert_close
from limits import rounding
from relascope.core.errors import EngineError
from relascope.engine.relax.session import RelaxSession
from relascope.passes.catalogue import names

BACKEND = RelaxSession().backend
NAMES = names("relax")


def _reads_bits(run, dtype):
    bits = np.unpackbits(run["dropout_mask_0_bits"], axis=0, bitorder="little")
    expected = run["x"] * (bits.reshape(4, 4))
    assert_close(run.after, [expected.astype(dtype)], dtype)


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


def _is_rounded(run, dtype):
    assert_close(run.after, run.before, dtype, rounding("float16", 1))
    assert (run.after[0] != run.before[0]).any()


# Passes that change what is computed, on purpose: what their example computes afterwards, as a
# function of a `tests.examples.Run` and the dtype that asserts it.
OTHERWISE = {
    "masks_as_bits": _reads_bits,
    "root_grad_out": _roots,
    "gradient": _has_the_gradient,
    "fast_math": _is_approximate,
    "mixed_precision": _is_rounded,
}


@pytest.fixture
def otherwise():
    return OTHERWISE


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NAMES)
def test_the_example_computes_the_same_after_the_pass(name, dtype):
    if (name, dtype) == ("mixed_precision", "float64"):
        with pytest.raises(EngineError, match="takes float32"):
            Run(BACKEND, name, dtype)
        return
    run = Run(BACKEND, name, dtype)
    if name in OTHERWISE:
        OTHERWISE[name](run, dtype)
    else:
        assert_close(run.after, run.before, dtype)
