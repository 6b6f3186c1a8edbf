"""Relay programs as graphs: complete, stable ids, deep ones too, and nothing that crashes."""

import json
from dataclasses import replace

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

F32 = TensorType((2, 3), "float32")


def var(name, *shape, dtype="float32"):
    return relay.var(name, shape=shape or (2, 3), dtype=dtype)


def draw(body, *arguments):
    graph, expressions = to_graph(program_of(body, *arguments))
    graph.validate()
    assert set(expressions) == set(graph.by_id)
    assert Graph.from_json(json.loads(json.dumps(graph.to_json(), allow_nan=False))) == graph
    return graph


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
        x, y = var("x"), var("y")
        doubled = relay.multiply(relay.add(x, y), relay.const(factor, "float32"))
        return draw(tail(doubled), x, y)

    one, same = make(2.0, relay.tanh), make(2.0, relay.tanh)
    assert one == same
    other_end = make(2.0, relay.exp)
    assert {n.id for n in one} ^ {n.id for n in other_end} == {
        only(one, "tanh").id,
        only(other_end, "exp").id,
    }
    other_constant = make(3.0, relay.tanh)
    assert only(one, "add").id == only(other_constant, "add").id
    for op in ("multiply", "tanh"):
        assert only(one, op).id != only(other_constant, op).id
    assert all(len(n.id) == 12 for n in one)


def test_ids_know_attributes_and_argument_order():
    x = var("x")
    graph = draw(
        relay.Tuple(
            [
                relay.subtract(x, relay.exp(x)),
                relay.subtract(relay.exp(x), x),
                relay.sum(x, axis=0),
                relay.sum(x, axis=1),
            ]
        )
    )
    subtracts = [n.id for n in graph if n.op == "subtract"]
    assert len({i.partition("#")[0] for i in subtracts}) == 2
    sums = [n for n in graph if n.op == "sum"]
    assert sums[0].id != sums[1].id
    assert sums[1].attrs == {"axis": [1], "keepdims": False, "exclude": False}


def test_equal_nodes_get_numbers_and_bounds_that_are_not_finite_are_words():
    x = var("x")
    graph = draw(relay.add(relay.exp(x), relay.exp(x)))
    first, second = (n.id for n in graph if n.op == "exp")
    assert second == f"{first}#2"
    assert only(graph, "add").inputs == (first, second)
    # No browser reads JSON with an infinity in it.
    graph = draw(relay.clip(var("x"), 0.0, float("inf")))
    assert graph.nodes[-1].attrs == {"a_min": 0.0, "a_max": "inf"}


def test_results_are_flat_and_may_be_an_input():
    x = var("x")
    a, b = relay.exp(x), relay.tanh(x)
    graph = draw(relay.Tuple([a, relay.Tuple([b, a])]))
    assert [graph.by_id[i].op for i in graph.outputs] == ["exp", "tanh", "exp"]
    assert not [n for n in graph if n.kind is Kind.TUPLE]
    y = var("y")
    graph = draw(relay.Tuple([x, relay.exp(x), x]), x, y)
    assert [graph.by_id[i].title for i in graph.outputs] == ["x", "exp", "x"]
    assert [graph.by_id[i].name for i in graph.inputs] == ["x", "y"]


def test_a_tuple_that_is_read_is_drawn():
    x = var("x")
    parts = relay.split(x, 3, axis=1)
    pair = relay.Tuple([parts[0], parts[2]])
    graph = draw(relay.Tuple([relay.concatenate(pair, 1), pair]))
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
    large = relay.const(np.arange(3000, dtype="float32").reshape(1000, 3))
    other = np.arange(3000, dtype="float32").reshape(1000, 3)
    other[-1, -1] += 1
    graph = draw(
        relay.Tuple([relay.add(x, small), relay.sum(large), relay.sum(relay.const(other))])
    )
    constants = [n for n in graph if n.kind is Kind.CONSTANT]
    assert constants[0].attrs["value"] == "[[1.5, 2.0, 3.0]]"
    assert constants[0].attrs["dtype"] == "float32"
    assert "value" not in constants[1].attrs
    assert len({c.attrs["digest"] for c in constants}) == 3
    assert constants[1].bytes == 12_000


def test_a_bound_parameter_keeps_its_name(layer):
    graph, _ = to_graph(bind(layer))
    named = {
        n.attrs["parameter"]: n for n in graph if n.kind is Kind.CONSTANT and "parameter" in n.attrs
    }
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
    x, a, b = var("x"), relay.var("a"), relay.var("b")
    chain = relay.Let(a, relay.exp(x), relay.Let(b, relay.add(a, a), relay.tanh(b)))
    straight = relay.tanh(relay.add(shared := relay.exp(x), shared))
    assert draw(chain, x) == draw(straight, x)
    x, a = var("x"), relay.var("a")
    graph = draw(relay.Let(a, relay.exp(x), relay.tanh(x)), x)
    assert set(graph.operators) == {"exp", "tanh"}
    assert graph.by_id[graph.outputs[0]].op == "tanh"


def test_closures_references_and_branches_are_nodes():
    x, inner = var("x"), var("inner")
    f, ref = relay.var("f"), relay.var("ref")
    closure = relay.Function([inner], relay.add(inner, x))
    flag = var("flag", 1, dtype="bool")
    body = relay.Let(
        f,
        closure,
        relay.Let(
            ref,
            relay.RefCreate(relay.Call(f, [relay.exp(x)])),
            relay.If(relay.any(flag), relay.RefRead(ref), x),
        ),
    )
    graph = draw(body, x, flag)
    made = next(n for n in graph if n.kind is Kind.FUNCTION)
    assert made.op == "closure"
    assert [graph.by_id[i].name for i in made.inputs] == ["x"]
    assert made.body is not None
    assert made.body.operators == {"add": 1}
    call = only(graph, "call")
    assert graph.by_id[call.inputs[0]] == made
    assert only(graph, "ref_read").outputs == (F32,)
    assert len(only(graph, "if").inputs) == 3


def test_types_are_inferred_and_spans_give_place_and_operator():
    x = var("x")
    untyped = RelayProgram(tvm.IRModule.from_expr(relay.Function([x], relay.exp(x))), {}, ("x",), 1)
    graph, _ = to_graph(untyped)
    assert only(graph, "exp").outputs == (F32,)
    span = tvm.ir.Span(tvm.ir.SourceName("layer.1|aten::exp|7"), 0, 0, 0, 0)
    x = var("x")
    call = relay.Call(tvm.ir.Op.get("exp"), [x], None, None, span)
    program = program_of(call)
    origin = NodeOrigin("layer.1", "aten::exp", "model.py:3")
    graph, _ = to_graph(replace(program, provenance={"layer.1|aten::exp|7": origin}))
    assert only(graph, "exp").origin == origin
    bare, _ = to_graph(program)
    assert only(bare, "exp").origin == NodeOrigin()


def chain_of_calls(length):
    x = body = var("x")
    for index in range(length):
        body = relay.add(body, x) if index % 2 else relay.tanh(body)
    return program_of(body)


def test_drawing_takes_work_in_proportion_to_the_nodes():
    """A chain, the deepest shape there is; TVM's own walks would end the process a little later."""

    def work(count):
        program, drawn = chain_of_calls(count), []
        calls = calls_of(lambda: drawn.append(to_graph(program)[0]))
        assert len({n.id for n in drawn[0]}) == len(drawn[0]) == count + 1
        return calls

    assert work(10_000) < 10.5 * work(1_000)


def test_long_let_chains_are_drawn():
    x = var("x")
    names = [relay.var(f"v{i}", shape=(2, 3)) for i in range(5_000)]
    body = names[-1]
    for index in reversed(range(5_000)):
        value = relay.tanh(names[index - 1] if index else x)
        body = relay.Let(names[index], value, body)
    graph = draw(body, x)
    assert graph.operators == {"tanh": 5_000}
