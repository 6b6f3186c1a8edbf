"""Each pass of the inference pipeline: what it does to the program, and that numbers stay."""

from collections import Counter

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.contrib import graph_executor

from answers import quiet
from examples import assert_close
from limits import ELEMENTWISE, LIMITS
from quick import QUICK
from relascope.engine.protocol.source import ModelSource
from relascope.engine.pytorch.model import load_model
from relascope.engine.relay.frontend.importer import import_model
from relascope.passes.catalogue import info
from relascope.passes.relay.drop_neutral import drop_identities
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import op_name, post_order, shape
from relascope.passes.relay.linear_to_dense import linear_to_dense

LIMIT = {d: forward for d, (forward, _) in LIMITS.items()}


def operators(program):
    return Counter(filter(None, map(op_name, post_order(program.main))))


def apply(program, names):
    for name in names:
        program = info("relay", name).load()(program)
    return program


def run(program, inputs):
    with tvm.transform.PassContext(opt_level=1):
        library = relay.build(program.mod, QUICK, params=dict(program.params))
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    for name, value in inputs.items():
        module.set_input(name, value)
    module.run()
    return [module.get_output(i).numpy() for i in range(module.get_num_outputs())]


def program_of(body, **values):
    mod = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))
    return RelayProgram(relay.transform.InferType()(mod), {}, tuple(values), 1)


def var(name, *dims):
    return relay.var(name, shape=dims, dtype="float32")


def draw(*dims):
    return np.random.default_rng(0).standard_normal(dims).astype("float32")


@pytest.fixture(scope="module")
def attention():
    model = load_model(ModelSource("bert_self_attention", batch=2, tokens=5), quiet)
    return model, import_model(model, quiet)


def test_q_k_and_v_combine_from_8_matmuls_to_6():
    model = load_model(ModelSource("bert_layer"), quiet)
    program = import_model(model, quiet)
    assert operators(program)["nn.batch_matmul"] == 8
    program = apply(program, ["cse", "bind", "fold", "combine_batch_matmul"])
    assert operators(program)["nn.batch_matmul"] == 8  # the frontend's form is passed over
    program = apply(program, ["batch_matmul_nt", "combine_batch_matmul", "fold"])
    assert operators(program)["nn.batch_matmul"] == 6
    program = apply(program, ["linear_to_dense"])
    assert operators(program)["nn.batch_matmul"] == 2
    assert operators(program)["nn.dense"] == 4


def test_cse_shares_what_q_k_and_v_read(attention):
    _, program = attention
    after = apply(program, ["cse"])
    assert operators(after)["reshape"] < operators(program)["reshape"]


MOVED = {
    "transpose": lambda c: relay.transpose(c, [1, 0, 2]),
    "transpose of all axes": relay.transpose,
    "reshape": lambda c: relay.reshape(c, [0, -1]),
    "repeat": lambda c: relay.repeat(c, 2, axis=-2),
    "squeeze": lambda c: relay.squeeze(relay.expand_dims(c, 1, 2), axis=[1, 2]),
    "broadcast": lambda c: relay.broadcast_to(c, (5, 2, 3, 4)),
    "concatenate": lambda c: relay.concatenate([c, relay.reshape(c, [2, 3, 4])], axis=1),
}


def folded_as_by_tvm(program):
    """The program with constants folded; the first of them has the bits that TVM's own has."""
    after = apply(program, ["fold"])
    theirs = relay.transform.InferType()(relay.transform.FoldConstant()(program.mod))
    (ours,) = (e for e in post_order(after.main) if isinstance(e, relay.Constant))
    (tvms,) = (e for e in post_order(theirs["main"]) if isinstance(e, relay.Constant))
    assert (ours.data.dtype, ours.data.shape) == (tvms.data.dtype, tvms.data.shape)
    assert ours.data.numpy().tobytes() == tvms.data.numpy().tobytes()
    return after


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("name", MOVED)
def test_folding_gives_the_bits_that_tvm_gives(name, dtype):
    constant = relay.const((draw(2, 3, 4) * 100).astype(dtype), dtype)
    program = program_of(relay.add(var("x", 1).astype(dtype), MOVED[name](constant)), x=None)
    after = folded_as_by_tvm(program)
    assert operators(after) == Counter({"add": 1, "cast": operators(program)["cast"]})


COMPUTED = {
    "add": lambda a, b: relay.add(a, b),
    "subtract": lambda a, b: relay.subtract(a, b),
    "multiply": lambda a, b: relay.multiply(a, b),
    "divide": lambda a, b: relay.divide(a, b),
    "divide by zero": lambda a, b: relay.divide(a, relay.const(0, a.data.dtype)),
    "negative": lambda a, b: relay.negative(a),
    "sqrt": lambda a, b: relay.sqrt(a),  # NaN below zero
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("name", COMPUTED)
def test_arithmetic_is_folded_to_the_bits_that_tvm_gives(name, dtype):
    if dtype == "int64" and name in ("divide", "divide by zero", "sqrt"):
        dtype = "float32"  # TVM has no such constants of whole numbers
    one = relay.const((draw(2, 3, 4) * 100).astype(dtype), dtype)
    other = relay.const((draw(3, 1) * 7 + 1).astype(dtype), dtype)
    folded = COMPUTED[name](one, other)
    folded_as_by_tvm(program_of(relay.add(var("x", 1).astype(dtype), folded), x=None))


ELSEWISE = {
    "float32 to float16": (("float32", (3, 5)), lambda c: relay.cast(c, "float16")),
    "float32 to float64": (("float32", (3, 5)), lambda c: relay.cast(c, "float64")),
    "float64 to float32": (("float64", (3, 5)), lambda c: relay.cast(c, "float32")),
    "float32 to int32": (("float32", (3, 5)), lambda c: relay.cast(c, "int32")),
    "NHWC": (("float32", (2, 3, 4, 5)), lambda c: relay.layout_transform(c, "NCHW", "NHWC")),
    "HWIO": (("float32", (2, 3, 4, 5)), lambda c: relay.layout_transform(c, "OIHW", "HWIO")),
    "blocks": (("float32", (8, 4, 3, 3)), lambda c: relay.layout_transform(c, "OIHW", "OIHW2i4o")),
    "blocks of one axis": (
        ("float32", (1, 8, 3)),
        lambda c: relay.layout_transform(c, "NCW", "NCW4c"),
    ),
    "out of blocks": (
        ("float32", (1, 2, 3, 4)),
        lambda c: relay.layout_transform(c, "NCW4c", "NCW"),
    ),
}


@pytest.mark.parametrize("name", ELSEWISE)
def test_types_and_layouts_are_folded_to_the_bits_that_tvm_gives(name):
    (dtype, dims), change = ELSEWISE[name]
    values = (draw(*dims) * np.float32(1e3)).astype(dtype)
    changed = change(relay.const(values, dtype))
    folded_as_by_tvm(program_of(relay.Tuple([var("x", 1), changed]), x=None))


def test_folding_leaves_other_functions_to_tvm():
    body = relay.add(var("x", 2, 3), relay.exp(relay.const(draw(2, 3))))
    assert operators(apply(program_of(body, x=None), ["fold"])) == {"add": 1}


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
    before = program_of(body, x=x)
    after = linear_to_dense(before)
    assert operators(after)["nn.dense"] == 1
    assert operators(after)["nn.batch_matmul"] == 0
    inputs = {"x": x} if kind == "constant" else {"x": x, "w": weight}
    assert_close(run(after, inputs), run(before, inputs), "float32", ELEMENTWISE)


def test_a_batch_of_matrices_stays():
    right = relay.const(draw(3, 5, 6))
    before = program_of(relay.nn.batch_matmul(var("x", 3, 4, 5), right, transpose_b=False), x=None)
    assert linear_to_dense(before) is before


def test_the_bias_moves_in_front_of_the_reshape():
    right = relay.const(np.broadcast_to(draw(6, 5), (3, 6, 5)).copy())
    product = relay.nn.batch_matmul(var("x", 3, 4, 5), right, transpose_b=True)
    body = relay.nn.bias_add(relay.reshape(product, [3, 2, 2, 6]), relay.const(draw(6)), axis=-1)
    before = program_of(body, x=None)
    after = linear_to_dense(before)
    bias = next(e for e in post_order(after.main) if op_name(e) == "nn.bias_add")
    assert op_name(bias.args[0]) == "nn.dense"
    inputs = {"x": draw(3, 4, 5)}
    assert_close(run(after, inputs), run(before, inputs), "float32", ELEMENTWISE)


def test_a_bias_on_another_axis_stays_where_it_is():
    right = relay.const(np.broadcast_to(draw(4, 5), (3, 4, 5)).copy())
    product = relay.nn.batch_matmul(var("x", 3, 4, 5), right, transpose_b=True)
    body = relay.nn.bias_add(product, relay.const(draw(4)), axis=1)
    before = program_of(body, x=None)
    inputs = {"x": draw(3, 4, 5)}
    after = linear_to_dense(before)
    assert_close(run(after, inputs), run(before, inputs), "float32", ELEMENTWISE)


def test_views_that_change_nothing_vanish():
    x = var("x", 2, 3)
    body = relay.transpose(relay.squeeze(relay.broadcast_to(x, (2, 3)), axis=[]), axes=[0, 1])
    body = relay.exp(relay.reshape(relay.reshape(body, (3, 2)), (6,)))
    after = drop_identities(program_of(body, x=None))
    assert operators(after) == {"reshape": 1, "exp": 1}
    assert shape(after.main.body) == (6,)


def test_views_that_change_something_stay():
    body = relay.broadcast_to(relay.transpose(var("x", 2, 2)), (5, 2, 2))
    before = program_of(body, x=None)
    assert drop_identities(before) is before
