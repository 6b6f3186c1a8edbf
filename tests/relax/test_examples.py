"""Each Relax pass on its small program: what the documentation shows, and that numbers stay."""

import pytest

from engine.relax.session import RelaxSession
from passes.catalogue import names
from passes.relax.examples import EXAMPLES
from tests.examples import Run, assert_close, documented, printed, quiet

SESSION = RelaxSession()
BACKEND = SESSION._backend

# Passes that change what is computed, on purpose: what their example computes afterwards, as a
# function of a `tests.examples.Run` and the dtype that asserts it.
OTHERWISE = {}


def test_every_pass_has_an_example():
    assert set(EXAMPLES) == set(names("relax"))


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_documentation_shows_what_the_pass_does(name):
    assert documented("relax", name) == printed(SESSION, name)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_pass_does_something_to_its_example(name):
    example = SESSION.example(name, progress=quiet)
    assert example.before != example.after
    assert bool(example.differs) == (name in OTHERWISE)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_computes_the_same_after_the_pass(name, dtype):
    run = Run(BACKEND, name, dtype)
    if name in OTHERWISE:
        OTHERWISE[name](run, dtype)
    else:
        assert_close(run.after, run.before, dtype)
