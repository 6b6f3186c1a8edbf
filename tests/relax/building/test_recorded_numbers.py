"""The numbers of recordings of Relax's compiles."""

from functools import partial

import pytest
import tvm
from tvm import relax

from numbers_of_recordings import *  # noqa: F403
from relascope import recording
from relascope.engine.jobs import reduce
from relascope.engine.jobs.bisect import Question
from relascope.recorder.reading import read
from relascope.viz.rows.recorded_numbers import RecordedNumbers, parts
from relax_modules import program


def scaled(late, wrong):
    """x @ w, scaled after the product or before it, then relu, or abs in its place."""

    def made(x, w):
        def scaled(value, now):
            return relax.op.multiply(value, relax.const(3.0, "float32")) if now else value

        product = scaled(relax.op.matmul(scaled(x, not late), w), late)
        return relax.op.nn.softmax((relax.op.abs if wrong else relax.op.nn.relu)(product))

    return program(made, x=((4, 8), "float32"), w=((8, 8), "float32"))


@tvm.transform.module_pass(opt_level=0, name="ScaleFirst")
def scale_first(mod, context):
    return scaled(False, True)


@pytest.mark.exhaustive
def test_what_a_pass_moved_rightly_is_not_blamed(tmp_path, ask):
    with recording(tmp_path / "run.rsc", "modules"):
        scale_first(scaled(True, False))
    found = read(tmp_path / "run.rsc")
    (part,), held = parts(found), RecordedNumbers(found, tmp_path)
    ((_, result),), _ = held.search(ask, "relax", (part,), partial(Question, target="llvm"))
    made = reduce.narrow(ask, "relax", result)
    assert "nn.relu" in made.operators
    reasons = [t.shown.error.message for t in made.log if t.shown.error is not None]
    assert "With its right value in place, the program is still as wrong." in reasons
