"""Each Relay pass on its small program: what the documentation shows, and that numbers stay."""

import numpy as np
import pytest

from engine.relay.session import RelaySession
from passes.catalogue import names
from tests.examples import Run, assert_close, documented, printed, quiet

SESSION = RelaySession()
BACKEND = SESSION._backend
NAMES = names("relay")


def _drops(run, dtype):
    expected = np.maximum(run["x"] * run["dropout_mask_0"], 0)
    assert_close(run.after, [expected], dtype)


def _roots(run, dtype):
    y = run["x"] @ run["w"].T
    assert_close(run.after, [np.sum(y * run["grad_out_0"]), y], dtype)


def _has_all_gradients(run, dtype):
    x, g = run["x"], run["grad_out_0"]
    assert_close(run.after, [np.sin(x), np.cos(x) * g, np.sin(x)], dtype)


def _has_the_gradient_of_the_input(run, dtype):
    x, g = run["x"], run["grad_out_0"]
    assert_close(run.after, [np.sin(x), np.cos(x) * g], dtype)


# Passes that change what is computed, on purpose: what their example computes afterwards.
OTHERWISE = {
    "externalize_dropout": _drops,
    "root_grad_out": _roots,
    "gradient": _has_all_gradients,
    "graph_normal_form": _has_the_gradient_of_the_input,
}


@pytest.mark.parametrize("name", NAMES)
def test_the_documentation_shows_what_the_pass_does(name):
    assert documented("relay", name) == printed(SESSION, name)


@pytest.mark.parametrize("name", NAMES)
def test_the_pass_does_something_to_its_example(name):
    example = SESSION.example(name, progress=quiet)
    assert example.before != example.after
    assert bool(example.differs) == (name in OTHERWISE)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NAMES)
def test_the_example_computes_the_same_after_the_pass(name, dtype):
    run = Run(BACKEND, name, dtype)
    if name in OTHERWISE:
        OTHERWISE[name](run, dtype)
    else:
        assert_close(run.after, run.before, dtype)
