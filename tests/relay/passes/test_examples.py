"""Each Relay pass on its small program: what the documentation shows, and that numbers stay."""

import numpy as np
import pytest

from examples import *  # noqa: F403
from examples import Run, apply, assert_close
from limits import rounding
from quick import QUICK
from relascope.engine.building.options import BuildOptions
from relascope.engine.relay.building import runtime
from relascope.engine.relay.session import RelaySession
from relascope.passes.catalogue import info, names

BACKEND = RelaySession().backend
NAMES = names("relay")


def _drops(run, dtype):
    expected = np.maximum(run["x"] * (run["dropout_mask_0"] / np.dtype(dtype).type(0.9)), 0)
    assert_close(run.after, [expected], dtype)


def _reads_bits(run, dtype):
    bits = np.unpackbits(run["dropout_mask_0_bits"], axis=0, bitorder="little")
    expected = run["x"] * (bits.reshape(4, 4) / np.dtype(dtype).type(0.9))
    assert_close(run.after, [np.maximum(expected, 0)], dtype)


def _roots(run, dtype):
    y = run["x"] @ run["w"].T
    assert_close(run.after, [np.sum(y * run["grad_out_0"]), y], dtype)


def _has_all_gradients(run, dtype):
    x, g = run["x"], run["grad_out_0"]
    assert_close(run.after, [np.sin(x), np.cos(x) * g, np.sin(x)], dtype)


def _has_the_gradient_of_the_input(run, dtype):
    x, g = run["x"], run["grad_out_0"]
    assert_close(run.after, [np.sin(x), np.cos(x) * g], dtype)


def _is_rounded(run, dtype):
    assert_close(run.after, run.before, dtype, rounding("float16", 1))
    assert any((a != b).any() for a, b in zip(run.after, run.before, strict=True))


def _is_rounded_otherwise(run, dtype):
    assert_close(run.after, run.before, dtype, rounding("float32", 1))


# Passes that change what is computed, on purpose: what their example computes afterwards.
OTHERWISE = {
    "externalize_dropout": _drops,
    "masks_as_bits": _reads_bits,
    "root_grad_out": _roots,
    "gradient": _has_all_gradients,
    "graph_normal_form": _has_the_gradient_of_the_input,
    "mixed_precision": _is_rounded,
    "fast_math": _is_rounded_otherwise,
}


@pytest.fixture
def otherwise():
    return OTHERWISE


def _built(start):
    """Few of TVM's own passes run in building, so that they cannot make good what ours did."""
    return runtime.step(start, None, BuildOptions(QUICK, opt_level=1))


@pytest.mark.parametrize("name", NAMES)
def test_the_pass_leaves_the_program_that_it_is_given_as_it_was(name):
    example = BACKEND.example(name, "float32")
    program, text = example.program, BACKEND.text(example.program)
    result = program.main.ret_type
    apply(info("relay", name), example)
    assert BACKEND.text(program) == text
    assert program.main.ret_type == result


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NAMES)
def test_the_example_computes_the_same_after_the_pass(name, dtype):
    run = Run(BACKEND, name, dtype, _built)
    if name in OTHERWISE:
        OTHERWISE[name](run, dtype)
    else:
        assert_close(run.after, run.before, dtype)
