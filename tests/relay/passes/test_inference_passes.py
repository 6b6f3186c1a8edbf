"""Each pass of the inference pipeline: what it does to the program, and that numbers stay."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.contrib import graph_executor

import small_models  # noqa: F401
from answers import quiet
from examples import assert_close
from gradients import passes
from limits import ELEMENTWISE, LIMITS
from quick import QUICK
from relascope.engine.protocol.source import ModelSource
from relascope.engine.pytorch.model import load_model
from relascope.engine.relay.frontend.importer import import_model
from relascope.passes.relay.drop_neutral import drop_identities
from relascope.passes.relay.ir.rewrite import op_name, post_order, shape
from relascope.passes.relay.linear_to_dense import linear_to_dense
from relay_functions import operators, program_of, var

LIMIT = {d: forward for d, (forward, _) in LIMITS.items()}


def run(program, inputs):
    with tvm.transform.PassContext(opt_level=1):
        library = relay.build(program.mod, QUICK, params=dict(program.params))
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    for name, value in inputs.items():
        module.set_input(name, value)
    module.run()
    return [module.get_output(i).numpy() for i in range(module.get_num_outputs())]


def draw(*dims):
    return np.random.default_rng(0).standard_normal(dims).astype("float32")


def test_q_k_and_v_combine_from_8_matmuls_to_6():
    program = import_model(load_model(ModelSource("small_bert"), quiet), quiet)
    assert operators(program)["nn.batch_matmul"] == 8
    program = passes(program, "cse|bind|fold|combine_batch_matmul")
    assert operators(program)["nn.batch_matmul"] == 8  # the frontend's form is passed over
    program = passes(program, "batch_matmul_nt|combine_batch_matmul|fold")
    assert operators(program)["nn.batch_matmul"] == 6
    left = operators(passes(program, "linear_to_dense"))
    assert (left["nn.batch_matmul"], left["nn.dense"]) == (2, 4)


def drawn(dtype, *dims, factor=100):
    return relay.const((draw(*dims) * factor + 1).astype(dtype), dtype)


def image(dtype):
    return drawn("float32", 2, 8, 3, 4)


def pair(dtype):
    """The second is positive or negative, and never 0; it broadcasts."""
    return drawn(dtype, 2, 3, 4), drawn(dtype, 3, 1, factor=7)


FOLDED = {
    "transpose": lambda d: relay.transpose(drawn(d, 2, 3, 4), [1, 0, 2]),
    "transpose of all axes": lambda d: relay.transpose(drawn(d, 2, 3, 4)),
    "reshape": lambda d: relay.reshape(drawn(d, 2, 3, 4), [0, -1]),
    "repeat": lambda d: relay.repeat(drawn(d, 2, 3, 4), 2, axis=-2),
    "squeeze": lambda d: relay.squeeze(relay.expand_dims(drawn(d, 2, 3), 1, 2), axis=[1, 2]),
    "broadcast": lambda d: relay.broadcast_to(drawn(d, 2, 1, 4), (5, 2, 3, 4)),
    "concatenate": lambda d: relay.concatenate([drawn(d, 2, 3), drawn(d, 2, 2)], axis=1),
    "add": lambda d: relay.add(*pair(d)),
    "subtract": lambda d: relay.subtract(*pair(d)),
    "multiply": lambda d: relay.multiply(*pair(d)),
    "negative": lambda d: relay.negative(drawn(d, 2, 3)),
    "to float16": lambda d: relay.cast(drawn(d, 3, 5), "float16"),
    "to float64": lambda d: relay.cast(drawn(d, 3, 5), "float64"),
    "to float32": lambda d: relay.cast(drawn(d, 3, 5), "float32"),
    "to int32": lambda d: relay.cast(drawn(d, 3, 5), "int32"),
    "NHWC": lambda d: relay.layout_transform(image(d), "NCHW", "NHWC"),
    "HWIO": lambda d: relay.layout_transform(image(d), "OIHW", "HWIO"),
    "blocks": lambda d: relay.layout_transform(image(d), "OIHW", "OIHW2i2o"),
    "blocks of one axis": lambda d: relay.layout_transform(drawn(d, 1, 8, 3), "NCW", "NCW4c"),
    "out of blocks": lambda d: relay.layout_transform(drawn(d, 1, 2, 3, 4), "NCW4c", "NCW"),
    "exp, which TVM computes": lambda d: relay.exp(drawn("float32", 2, 3, factor=1)),
}
OF_FLOATS = {  # TVM has no such constants of whole numbers
    "divide": lambda d: relay.divide(*pair(d)),
    "divide by zero": lambda d: relay.divide(drawn(d, 2, 3), relay.const(0, d)),
    "sqrt": lambda d: relay.sqrt(drawn(d, 2, 3)),  # NaN below zero
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_folding_gives_the_bits_that_tvm_gives(dtype):
    for name, make in (FOLDED if dtype == "int64" else FOLDED | OF_FLOATS).items():
        program = program_of(relay.Tuple([var("x", 1), make(dtype)]))
        after = passes(program, "fold")
        assert not operators(after), name
        theirs = relay.transform.InferType()(relay.transform.FoldConstant()(program.mod))
        (_, ours), (_, tvms) = after.main.body.fields, theirs["main"].body.fields
        assert (ours.data.dtype, ours.data.shape) == (tvms.data.dtype, tvms.data.shape), name
        assert ours.data.numpy().tobytes() == tvms.data.numpy().tobytes(), name


def same_as_dense(body, inputs):
    """What `linear_to_dense` makes of an expression, whose numbers stay."""
    before = program_of(body)
    after = linear_to_dense(before)
    assert_close(run(after, inputs), run(before, inputs), "float32", ELEMENTWISE)
    return after


@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("kind", ["constant", "variable"])
def test_a_shared_matrix_becomes_dense(transpose_b, kind):
    x, weight = draw(3, 4, 5), draw(6, 5) if transpose_b else draw(5, 6)
    matrix = relay.const(weight) if kind == "constant" else var("w", *weight.shape)
    if kind == "constant":
        right = relay.const(np.broadcast_to(weight, (3, *weight.shape)).copy())
    else:
        right = relay.broadcast_to(matrix, (3, *weight.shape))
    body = relay.nn.batch_matmul(var("x", 3, 4, 5), right, transpose_b=transpose_b)
    after = same_as_dense(body, {"x": x} if kind == "constant" else {"x": x, "w": weight})
    assert operators(after)["nn.dense"] == 1
    assert operators(after)["nn.batch_matmul"] == 0


def test_a_batch_of_matrices_and_a_bias_on_another_axis_stay():
    right = relay.const(draw(3, 5, 6))
    before = program_of(relay.nn.batch_matmul(var("x", 3, 4, 5), right, transpose_b=False))
    assert linear_to_dense(before) is before
    right = relay.const(np.broadcast_to(draw(4, 5), (3, 4, 5)).copy())
    product = relay.nn.batch_matmul(var("x", 3, 4, 5), right, transpose_b=True)
    same_as_dense(relay.nn.bias_add(product, relay.const(draw(4)), axis=1), {"x": draw(3, 4, 5)})


def test_the_bias_moves_in_front_of_the_reshape():
    right = relay.const(np.broadcast_to(draw(6, 5), (3, 6, 5)).copy())
    product = relay.nn.batch_matmul(var("x", 3, 4, 5), right, transpose_b=True)
    body = relay.nn.bias_add(relay.reshape(product, [3, 2, 2, 6]), relay.const(draw(6)), axis=-1)
    after = same_as_dense(body, {"x": draw(3, 4, 5)})
    bias = next(e for e in post_order(after.main) if op_name(e) == "nn.bias_add")
    assert op_name(bias.args[0]) == "nn.dense"


def test_views_vanish_that_change_nothing_and_those_alone():
    x = var("x", 2, 3)
    body = relay.transpose(relay.squeeze(relay.broadcast_to(x, (2, 3)), axis=[]), axes=[0, 1])
    body = relay.exp(relay.reshape(relay.reshape(body, (3, 2)), (6,)))
    after = drop_identities(program_of(body))
    assert operators(after) == {"reshape": 1, "exp": 1}
    assert shape(after.main.body) == (6,)
    body = relay.broadcast_to(relay.transpose(var("x", 2, 2)), (5, 2, 2))
    before = program_of(body)
    assert drop_identities(before) is before
