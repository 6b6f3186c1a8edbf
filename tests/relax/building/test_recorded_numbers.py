"""The numbers of recordings of Relax's compiles."""

import pytest
import tvm
from tvm import relax

from numbers_of_recordings import *  # noqa: F403
from relascope import recording
from relascope.engine.jobs import reduce
from relascope.engine.jobs.accuracy import OURS
from relascope.recorder.reading import read
from relascope.viz.rows.recorded_numbers import RecordedNumbers, parts


def scaled(late, wrong):
    """x @ w, scaled after the product or before it, then relu, or abs in its place."""
    builder = relax.BlockBuilder()
    x, w = (relax.Var(n, relax.TensorType(s, "float32")) for n, s in (("x", (4, 8)), ("w", (8, 8))))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            three = relax.const(3.0, "float32")
            left = x if late else builder.emit(relax.op.multiply(x, three), "scaled")
            product = builder.emit(relax.op.matmul(left, w), "product")
            if late:
                product = builder.emit(relax.op.multiply(product, three), "scaled")
            hidden = builder.emit((relax.op.abs if wrong else relax.op.nn.relu)(product), "hidden")
            out = builder.emit_output(relax.op.nn.softmax(hidden))
        builder.emit_func_output(out)
    return builder.get()


@tvm.transform.module_pass(opt_level=0, name="ScaleFirst")
def scale_first(mod, context):
    return scaled(False, True)


@pytest.mark.exhaustive
def test_what_a_pass_moved_rightly_is_not_blamed(tmp_path, ask):
    with recording(tmp_path / "run.rsc", "modules"):
        scale_first(scaled(True, False))
    found = read(tmp_path / "run.rsc")
    (part,), held = parts(found), RecordedNumbers(found, tmp_path)
    (search,) = held.search(ask, "relax", (part,), "llvm", OURS)
    made = reduce.narrow(ask, "relax", search.result)
    assert "nn.relu" in made.operators
    reasons = [t.shown.error.message for t in made.log if t.shown.error is not None]
    assert "With its right value in its place the program is as wrong." in reasons
