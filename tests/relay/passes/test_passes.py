"""Passes of inference and further ones of TVM's: programs, numbers, origins, refusals."""

import numpy as np
import pytest
import torch
import tvm
from torch import nn
from tvm import relay

import small_models  # noqa: F401
from answers import quiet
from examples import assert_close
from gradients import passes, runtime
from limits import ELEMENTWISE, LIMITS
from quick import QUICK, combinations
from relascope.core.errors import EngineError
from relascope.core.graph import Kind
from relascope.engine.building.options import BuildOptions
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import ModelSource, source_from_file
from relascope.engine.pytorch.model import load_model
from relascope.engine.relay.frontend.importer import import_model
from relascope.engine.relay.session import RelaySession
from relascope.passes.catalogue import info, read_pipeline
from relascope.passes.pipeline import Step
from relascope.passes.relay.drop_neutral import drop_identities
from relascope.passes.relay.examples import EXAMPLES
from relascope.passes.relay.examples.building import Tensors
from relascope.passes.relay.ir.inspection import problems
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import op_name, post_order, shape
from relascope.passes.relay.linear_to_dense import linear_to_dense
from relay_functions import operators, program_of, var

LIMIT = {d: forward for d, (forward, _) in LIMITS.items()}


def outputs_of(program, inputs):
    built = runtime.build(program, BuildOptions(QUICK, opt_level=1))
    return [t.numpy() for t in built.run({n: torch.from_numpy(v) for n, v in inputs.items()})]


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


CAST = "float16", "float64", "float32", "int32"
FOLDED = {
    "transpose": lambda d: relay.transpose(drawn(d, 2, 3, 4), [1, 0, 2]),
    "transpose of all axes": lambda d: relay.transpose(drawn(d, 2, 3, 4)),
    "reshape": lambda d: relay.reshape(drawn(d, 2, 3, 4), [0, -1]),
    "repeat": lambda d: relay.repeat(drawn(d, 2, 3, 4), 2, axis=-2),
    "squeeze": lambda d: relay.squeeze(relay.expand_dims(drawn(d, 2, 3), 1, 2), axis=[1, 2]),
    "broadcast": lambda d: relay.broadcast_to(drawn(d, 2, 1, 4), (5, 2, 3, 4)),
    "concatenate": lambda d: relay.concatenate([drawn(d, 2, 3), drawn(d, 2, 2)], axis=1),
    **{n: lambda d, n=n: getattr(relay, n)(*pair(d)) for n in ("add", "subtract", "multiply")},
    "negative": lambda d: relay.negative(drawn(d, 2, 3)),
    **{f"to {t}": lambda d, t=t: relay.cast(drawn(d, 3, 5), t) for t in CAST},
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


def every(weight):
    """The same matrix for each of three products."""
    return relay.const(np.broadcast_to(weight, (3, *weight.shape)).copy())


def same_as_dense(body, inputs):
    """What `linear_to_dense` makes of an expression, whose numbers stay."""
    before = program_of(body)
    after = linear_to_dense(before)
    assert_close(outputs_of(after, inputs), outputs_of(before, inputs), "float32", ELEMENTWISE)
    return after


@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("kind", ["constant", "variable"])
def test_a_shared_matrix_becomes_dense(transpose_b, kind):
    x, weight = draw(3, 4, 5), draw(6, 5) if transpose_b else draw(5, 6)
    matrix = var("w", *weight.shape)
    right = every(weight) if kind == "constant" else relay.broadcast_to(matrix, (3, *weight.shape))
    body = relay.nn.batch_matmul(var("x", 3, 4, 5), right, transpose_b=transpose_b)
    after = same_as_dense(body, {"x": x} if kind == "constant" else {"x": x, "w": weight})
    assert operators(after)["nn.dense"] == 1
    assert operators(after)["nn.batch_matmul"] == 0


def test_a_batch_of_matrices_and_a_bias_on_another_axis_stay():
    right = relay.const(draw(3, 5, 6))
    before = program_of(relay.nn.batch_matmul(var("x", 3, 4, 5), right, transpose_b=False))
    assert linear_to_dense(before) is before
    product = relay.nn.batch_matmul(var("x", 3, 4, 5), every(draw(4, 5)), transpose_b=True)
    same_as_dense(relay.nn.bias_add(product, relay.const(draw(4)), axis=1), {"x": draw(3, 4, 5)})


def test_the_bias_moves_in_front_of_the_reshape():
    product = relay.nn.batch_matmul(var("x", 3, 4, 5), every(draw(6, 5)), transpose_b=True)
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


SESSION = RelaySession()
BACKEND = SESSION.backend


class Block(nn.Module):
    """Convolution, batch norm and ReLU; three branches that read one image; a linear layer."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.branches = nn.ModuleList(nn.Conv2d(8, c, 1) for c in (2, 3, 4))
        self.linear = nn.Linear(9, 5)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        x = torch.cat([b(x) for b in self.branches], 1)
        return self.linear(x.mean((2, 3)))


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    torch.manual_seed(3)
    block = Block()
    with torch.no_grad():
        for value in (*block.parameters(), *block.buffers()):
            if value.is_floating_point():
                value.copy_(torch.rand_like(value) + 0.5)

    def make(dtype):
        path = tmp_path_factory.mktemp("block") / f"{dtype}.pt"
        image = torch.rand(2, 3, 6, 6, dtype=getattr(torch, dtype))
        module = block.to(getattr(torch, dtype)).eval()
        torch.jit.save(torch.jit.trace(module, image), path)
        return source_from_file(str(path), f"x=2x3x6x6:{dtype}", dtype=dtype)

    return {dtype: make(dtype) for dtype in LIMIT}


PLAIN = "bind|simplify_inference|fold"
PIPELINES = {
    "scales": f"{PLAIN}|fold_scale_axis",
    "branches": f"{PLAIN}|combine_conv2d|canonicalize_ops|simplify_expr|fold",
    "layout": f"{PLAIN}|convert_layout|fold",
    "blocked": f"{PLAIN}|forward_fold_scale_axis|backward_fold_scale_axis|fold"
    "|alter_op_layout|fold",
}


def after(source, text):
    pipeline = read_pipeline("relay", text)
    records = SESSION.step(source, pipeline, progress=quiet)
    assert not [r.error for r in records if r.error]
    return SESSION.graph_after(source, pipeline, len(pipeline) - 1, progress=quiet)


@pytest.mark.parametrize(("name", "dtype"), combinations(list(PIPELINES), list(LIMIT)))
def test_the_numbers_are_pytorchs(source, name, dtype):
    pipeline = read_pipeline("relay", PIPELINES[name])
    found = SESSION.check(BuildRequest(source[dtype], pipeline, QUICK), progress=quiet)
    assert max(c.max_rel for c in found) < LIMIT[dtype]


def test_convolutions_take_in_a_batch_norm_and_branches(source):
    plain = after(source["float32"], PLAIN).operators
    folded = after(source["float32"], PIPELINES["scales"]).operators
    assert plain["multiply"] == folded.get("multiply", 0) + 1
    assert plain["nn.conv2d"] == folded["nn.conv2d"] == 4
    assert after(source["float32"], PIPELINES["branches"]).operators["nn.conv2d"] == 2
    four = "combine_conv2d(branches=4)"
    assert after(source["float32"], f"{PLAIN}|{four}").operators["nn.conv2d"] == 4


@pytest.mark.parametrize("name", PIPELINES)
def test_every_call_keeps_a_place_in_the_model(source, name):
    graph = after(source["float32"], PIPELINES[name])
    modules = {"conv", "norm", "linear", "branches.0", "branches.1", "branches.2"}
    known = {n.scope for n in graph if n.kind is Kind.CALL and n.op != "nn.relu"}
    assert {n.scope for n in graph if n.op.startswith("nn.conv2d")} <= modules
    assert known & modules
    assert not [n.title for n in graph if n.kind is Kind.CALL and not (n.scope or n.source)]


@pytest.mark.parametrize("name", ["scales", "branches"])
def test_what_a_pass_made_of_an_operator_is_not_taken_for_its_result(source, name):
    pipeline = read_pipeline("relay", PIPELINES[name])
    found = SESSION.inside(BuildRequest(source["float32"], pipeline, QUICK), progress=quiet)
    assert found
    assert max(e.max_rel for e in found) < LIMIT["float32"]


def run(name, start, *params):
    entry = info("relay", name)
    return entry.load()(start, **entry.arguments(Step(name, True, params)))


def test_dense_layers_join_without_a_batch_and_cse_sees_equal_sums():
    new = Tensors("float32")
    x, w1, w2 = new.var("x", 3, 4), new.var("w1", 5, 4), new.var("w2", 6, 4)
    start = new.program(relay.Tuple([relay.nn.dense(x, w) for w in (w1, w2)]))
    two = ("branches", "2")
    assert run("combine_dense", start, two) is start
    assert operators(run("combine_dense", start, two, ("batch", "false")))["nn.dense"] == 1
    new = Tensors("float32")
    g = new.var("g", 2, 3)
    start = new.program(relay.add(relay.collapse_sum_to(g, [3]), relay.collapse_sum_to(g, [3])))
    assert operators(run("cse", start))["collapse_sum_to"] == 2
    shared = run("shape_const_dedup", start)
    assert operators(run("cse", shared))["collapse_sum_to"] == 1


def test_layouts_and_dot_products_follow_the_cpu():
    start = EXAMPLES["qnn_legalize"]("float32").program
    assert operators(run("qnn_legalize", start))["nn.dense"] == 1
    made = run("qnn_legalize", start, ("cpu", "skylake-avx512"))
    (dense,) = (e for e in post_order(made.main) if op_name(e) == "qnn.dense")
    assert dense.args[0].checked_type.dtype == "uint8"
    start = EXAMPLES["alter_op_layout"]("float32").program
    made = run("alter_op_layout", start, ("cpu", "skylake-avx512"))
    (conv,) = (e for e in post_order(made.main) if "conv2d" in op_name(e))
    assert conv.attrs.data_layout == "NCHW8c"  # all eight channels that there are


@pytest.mark.parametrize("name", ["qnn_legalize", "alter_op_layout"])
def test_a_cpu_that_is_none_is_refused(name):
    with pytest.raises(EngineError, match="nonsuch"):
        run(name, EXAMPLES[name]("float32").program, ("cpu", "nonsuch"))


def test_calls_of_functions_are_drawn_with_what_is_inside_once():
    start = EXAMPLES["inline"]("float32").program
    graph, _ = BACKEND.to_graph(start)
    inside = {n.op: n.body.operators for n in graph if n.kind is Kind.FUNCTION}
    assert inside == {"@square": {"multiply": 1}, "@positive": {"nn.relu": 1}}
    graph, _ = BACKEND.to_graph(run("inline", start))
    assert [n.op for n in graph if n.kind is Kind.FUNCTION] == ["@positive"]
    text = BACKEND.text(start)
    assert text.index("def @main(") < text.index("def @square(")
    kind = relay.TensorType((2,), "float32")
    x, name = relay.var("x", kind), relay.GlobalVar("again")
    mod = tvm.IRModule({name: relay.Function([x], name(relay.exp(x)), kind)})
    z = relay.var("z", kind)
    mod["main"] = relay.Function([z], name(z), kind)
    graph, _ = BACKEND.to_graph(Tensors("float32").of_module(mod))
    (call,) = (n for n in graph if n.kind is Kind.FUNCTION)
    assert call.op == "@again"
    assert "call" in {n.op for n in call.body}


def test_what_is_wrong_with_a_program_is_said():
    x, y = (relay.var(n, shape=(2,)) for n in "xy")

    def found(function, *inputs, typed=True):
        mod = tvm.IRModule({"main": function})
        mod = relay.transform.InferType()(mod) if typed else mod
        return [*problems(RelayProgram(mod, {}, inputs, 1))]

    whole = relay.Function([x], relay.Let(y, x, y + y))
    assert found(whole, "x") == []
    assert found(whole, "z") == ['"main" has no argument z, which the program names']
    assert found(whole, "x", typed=False) == ["main has no types"]
    twice = relay.Let(y, x, relay.Let(y, x, y))
    assert "a variable of main is bound twice" in found(relay.Function([x], twice), typed=False)
    said = found(relay.Function([x], x + y), typed=False)
    assert said[0] == "y is read in main but bound nowhere"
    wrong = relay.Function([x], relay.reshape(x, (3,)))
    assert "its types cannot be inferred: " in found(wrong, typed=False)[-1]
