"""TVM's further Relay passes on models of PyTorch: numbers, origins, and what they refuse."""

import pytest
import torch
import tvm
from torch import nn
from tvm import relay

from answers import quiet
from limits import LIMITS
from quick import QUICK, combinations
from relascope.core.errors import EngineError
from relascope.core.graph import Kind
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import source_from_file
from relascope.engine.relay.session import RelaySession
from relascope.passes.catalogue import info, read_pipeline
from relascope.passes.pipeline import Step
from relascope.passes.relay.examples import EXAMPLES
from relascope.passes.relay.examples.building import Tensors
from relascope.passes.relay.ir.inspection import problems
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import op_name, post_order
from relay_functions import operators

SESSION = RelaySession()
BACKEND = SESSION.backend
LIMIT = {d: forward for d, (forward, _) in LIMITS.items()}


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
    assert operators(run("combine_dense", start, two)) == operators(start)
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
