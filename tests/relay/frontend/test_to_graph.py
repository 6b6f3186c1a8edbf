"""Relay programs as graphs: complete, stable ids, deep ones too, and nothing that crashes."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import tvm
from tvm import relay

import small_models  # noqa: F401
from answers import quiet
from effort import calls_of
from relascope.core.graph import Graph, Kind, NodeOrigin, TensorType
from relascope.engine.protocol.source import ModelSource
from relascope.engine.pytorch.model import load_model
from relascope.engine.relay.draw.to_graph import to_graph
from relascope.engine.relay.frontend.importer import import_model
from relascope.passes.relay.builtin import fuse
from relascope.passes.relay.fold_constant import bind
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import post_order
from relascope.passes.relay.simplify_inference import simplify_inference
from relay_functions import program_of

F32, FLOATS = TensorType((2, 3), "float32"), "Tensor[(2, 3), float32]"


def var(name, *shape, dtype="float32"):
    return relay.var(name, shape=shape or (2, 3), dtype=dtype)


def draw(body, *arguments):
    graph, expressions = to_graph(program_of(body, *arguments))
    graph.validate()
    assert set(expressions) == set(graph.by_id)
    assert Graph.from_json(json.loads(json.dumps(graph.to_json(), allow_nan=False))) == graph
    return graph


def of_text(body, given=f"%x: {FLOATS}"):
    text = f'#[version = "0.0.5"]\ndef @main({given}) {{ {body} }}'
    main = relay.transform.InferType()(relay.parse(text))["main"]
    return draw(main.body, *main.params)


def only(graph, op):
    (node,) = [n for n in graph if n.op == op]
    return node


@pytest.fixture(scope="module")
def layer():
    return import_model(load_model(ModelSource("small_bert"), quiet), quiet)


def test_a_real_program_is_drawn_whole(layer):
    graph, expressions = to_graph(layer)
    graph.validate()
    assert (graph.ir, graph.name) == ("relay", "main")
    walked = [e for e in post_order(layer.main.body) if not isinstance(e, tvm.ir.Op)]
    drawn = {e.handle.value for e in expressions.values()}
    assert {e.handle.value for e in walked} == drawn
    assert graph.operators["nn.batch_matmul"] == 8
    names = [graph.by_id[i].name for i in graph.inputs]
    assert names == [p.name_hint for p in layer.main.params]
    kinds = [graph.by_id[i].kind for i in graph.inputs]
    assert kinds == [Kind.INPUT] * 2 + [Kind.PARAMETER] * 16
    weight = next(n for n in graph if n.name == "attention.self.query.weight")
    assert weight.scope == "attention.self.query"
    for ident, expression in expressions.items():
        node = graph.by_id[ident]
        if isinstance(expression, relay.Call):
            assert node.op == expression.op.name
            assert node.scope
            assert node.source.startswith("aten::")
            arguments = [a.handle.value for a in expression.args]
            assert [expressions[i].handle.value for i in node.inputs] == arguments
    (output,) = graph.outputs
    assert graph.by_id[output].outputs == (TensorType((1, 6, 32), "float32"),)
    assert graph.forward_outputs is None


def test_ids_are_of_what_is_computed():
    def make(factor, tail):
        return of_text(f"{tail}((%x + %y) * {factor}f)", f"%x: {FLOATS}, %y: {FLOATS}")

    one, other_end, other_constant = make(2, "tanh"), make(2, "exp"), make(3, "tanh")
    assert one == make(2, "tanh")
    ends = {only(one, "tanh").id, only(other_end, "exp").id}
    assert {n.id for n in one} ^ {n.id for n in other_end} == ends
    assert only(one, "add").id == only(other_constant, "add").id
    for op in ("multiply", "tanh"):
        assert only(one, op).id != only(other_constant, op).id
    assert all(len(n.id) == 12 for n in one)


def test_ids_know_attributes_and_argument_order():
    graph = of_text("(%x - exp(%x), exp(%x) - %x, sum(%x, axis=[0]), sum(%x, axis=[1]))")
    subtracts = [n.id for n in graph if n.op == "subtract"]
    assert len({i.partition("#")[0] for i in subtracts}) == 2
    sums = [n for n in graph if n.op == "sum"]
    assert sums[0].id != sums[1].id
    assert sums[1].attrs == {"axis": [1], "keepdims": False, "exclude": False}


def test_equal_nodes_get_numbers_and_bounds_that_are_not_finite_are_words():
    graph = of_text("exp(%x) + exp(%x)")
    first, second = (n.id for n in graph if n.op == "exp")
    assert second == f"{first}#2"
    assert only(graph, "add").inputs == (first, second)
    # No browser reads JSON with an infinity in it.
    graph = draw(relay.clip(var("x"), 0.0, float("inf")))
    assert graph.nodes[-1].attrs == {"a_min": 0.0, "a_max": "inf"}


def test_results_are_flat_and_may_be_an_input():
    graph = of_text("%0 = exp(%x); (%0, (tanh(%x), %0))")
    assert [graph.by_id[i].op for i in graph.outputs] == ["exp", "tanh", "exp"]
    assert not [n for n in graph if n.kind is Kind.TUPLE]
    graph = of_text("(%x, exp(%x), %x)", f"%x: {FLOATS}, %y: {FLOATS}")
    assert [graph.by_id[i].title for i in graph.outputs] == ["x", "exp", "x"]
    assert [graph.by_id[i].name for i in graph.inputs] == ["x", "y"]


def test_a_tuple_that_is_read_is_drawn():
    pair = "%0 = split(%x, indices_or_sections=3, axis=1); %1 = (%0.0, %0.2);"
    graph = of_text(f"{pair} (concatenate(%1, axis=1), %1)")
    (drawn,) = [n for n in graph if n.kind is Kind.TUPLE]
    assert only(graph, "concatenate").inputs == (drawn.id,)
    assert len(graph.outputs) == 3
    split = only(graph, "split")
    assert split.outputs == (TensorType((2, 1), "float32"),) * 3
    items = [n for n in graph if n.kind is Kind.ITEM]
    assert [i.attrs["index"] for i in items] == [0, 2]
    assert all(i.inputs == (split.id,) for i in items)


def test_constants_show_small_values_and_know_large_ones():
    x = var("x")
    small = relay.const(np.array([[1.5, 2.0, 3.0]], "float32"))
    large, other = np.arange(6000, dtype="float32").reshape(2, 1000, 3) % 3000
    other[-1, -1] += 1
    sums = [relay.sum(relay.const(values)) for values in (large, other)]
    graph = draw(relay.Tuple([relay.add(x, small), *sums]))
    constants = [n for n in graph if n.kind is Kind.CONSTANT]
    assert constants[0].attrs["value"] == "[[1.5, 2.0, 3.0]]"
    assert constants[0].attrs["dtype"] == "float32"
    assert "value" not in constants[1].attrs
    assert len({c.attrs["digest"] for c in constants}) == 3
    assert constants[1].bytes == 12_000


def test_a_bound_parameter_keeps_its_name(layer):
    graph, _ = to_graph(bind(layer))
    named = {n.attrs["parameter"]: n for n in graph if "parameter" in n.attrs}
    assert set(named) == set(layer.params)
    assert named["output.dense.bias"].scope == "output.dense"
    assert [graph.by_id[i].name for i in graph.inputs] == ["hidden_states", "attention_mask"]


def test_fused_groups_have_bodies(layer):
    simple = simplify_inference(layer)
    plain, _ = to_graph(simple)
    graph, _ = to_graph(fuse(simple))
    graph.validate()
    groups = [n for n in graph if n.kind is Kind.FUNCTION]
    assert groups
    assert not [n for n in graph if n.kind is Kind.CALL]
    assert graph.operators == plain.operators
    for group in groups:
        assert group.body is not None
        assert group.op == "+".join(n.op for n in group.body if n.kind is Kind.CALL)
        assert len(group.inputs) == len(group.body.inputs)
    assert {g.scope for g in groups} >= {"attention.self.query", "output.dense"}
    assert len(graph.outputs) == 1


def test_let_bindings_are_names_and_unread_ones_drawn():
    chain = of_text("let %a = exp(%x); let %b = %a + %a; tanh(%b)")
    assert chain == of_text("%0 = exp(%x); tanh(%0 + %0)")
    graph = of_text("let %a = exp(%x); tanh(%x)")
    assert set(graph.operators) == {"exp", "tanh"}
    assert graph.by_id[graph.outputs[0]].op == "tanh"


def test_closures_references_and_branches_are_nodes():
    branches = "if (any(%flag)) { ref_read(%kept) } else { %x }"
    bound = f"let %f = fn (%inner: {FLOATS}) {{ %inner + %x }}; let %kept = ref(%f(exp(%x)));"
    graph = of_text(f"{bound} {branches}", f"%x: {FLOATS}, %flag: Tensor[(1), bool]")
    made = next(n for n in graph if n.kind is Kind.FUNCTION)
    assert made.op == "closure"
    assert [graph.by_id[i].name for i in made.inputs] == ["x"]
    assert made.body is not None
    assert made.body.operators == {"add": 1}
    assert graph.by_id[only(graph, "call").inputs[0]] == made
    assert only(graph, "ref_read").outputs == (F32,)
    assert len(only(graph, "if").inputs) == 3


def test_types_are_inferred_and_spans_give_place_and_operator():
    x = var("x")
    untyped = RelayProgram(tvm.IRModule.from_expr(relay.Function([x], relay.exp(x))), {}, ("x",), 1)
    graph, _ = to_graph(untyped)
    assert only(graph, "exp").outputs == (F32,)
    span = tvm.ir.Span(tvm.ir.SourceName("layer.1|aten::exp|7"), 0, 0, 0, 0)
    program = program_of(relay.Call(tvm.ir.Op.get("exp"), [var("x")], None, None, span))
    origin = NodeOrigin("layer.1", "aten::exp", "model.py:3")
    graph, _ = to_graph(replace(program, provenance={"layer.1|aten::exp|7": origin}))
    assert only(graph, "exp").origin == origin
    bare, _ = to_graph(program)
    assert only(bare, "exp").origin == NodeOrigin()


def test_drawing_takes_work_in_proportion_to_the_nodes():
    """A chain, the deepest shape there is; TVM's own walks would end the process a little later."""

    def work(count):
        x = body = var("x")
        for index in range(count):
            body = relay.add(body, x) if index % 2 else relay.tanh(body)
        program, drawn = program_of(body), []
        calls = calls_of(lambda: drawn.append(to_graph(program)[0]))
        assert len({n.id for n in drawn[0]}) == len(drawn[0]) == count + 1
        return calls

    assert work(10_000) < 10.5 * work(1_000)


def test_long_let_chains_are_drawn():
    names = [var(f"v{i}") for i in range(5_001)]
    body = names[-1]
    for before, name in reversed([*pairwise(names)]):
        body = relay.Let(name, relay.tanh(before), body)
    assert draw(body, names[0]).operators == {"tanh": 5_000}
