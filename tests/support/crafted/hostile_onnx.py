"""ONNX files as a stranger might write them, and an honest one."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from onnx.parser import parse_model


def _model(nodes, tensors=(), opset=18, shape=(2, 4)):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(list(nodes), "g", [x], [y], list(tensors))
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def _written(nodes, functions=(), given=""):
    """A model as text: nodes, bodies of functions of a domain `own`, and constants."""
    head = 'opset_import: ["" : 18, "own" : 1]>'
    own = (f'<domain: "own", {head} {n} (a) => (b) {{ {body} }}' for n, body in functions)
    graph = f"g (float[2, 4] x) => (float[] y) <{given}> {{ {nodes} }}"
    return parse_model("\n".join([f"<ir_version: 9, {head} {graph}", *own]))


def _node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def _ints(name, *values):
    return numpy_helper.from_array(np.array(values, np.int64), name)


def honest():
    """A layer with its weights, a function of its own, and a shape that is computed."""
    nodes = """m = MatMul(x, w) t = own.Twice(m) s = Shape(t) rows = Slice(s, zero, one)
        target = Concat<axis = 0>(rows, rest) r = Reshape(t, target) y = Relu(r)"""
    given = "float[4, 4] w, int64[1] zero = {0}, int64[1] one = {1}, int64[2] rest = {2, 2}"
    made = _written(nodes, [("Twice", "b = Add(a, a)")], given)
    weight = np.arange(16, dtype=np.float32).reshape(4, 4) / 16
    made.graph.initializer.insert(0, numpy_helper.from_array(weight, "w"))
    made.graph.node[0].name = "/layer/MatMul"
    return made


def external(place, **about):
    """An honest model whose weight is in another file."""
    model = honest()
    (weight,) = [t for t in model.graph.initializer if t.name == "w"]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in {"location": place, **about}.items():
        weight.external_data.add(key=key, value=str(value))
    return model


def _declares(*dims):
    model = honest()
    model.graph.initializer[0].dims[:] = dims
    return model


def _functions(count, calls):
    """Of which each calls another twice, or none."""
    body = "c = own.f{0}(a) b = own.f{0}(c)"
    called = [body.format(calls(i)) if calls(i) < count else "b = Relu(a)" for i in range(count)]
    return _written("y = own.f0(x)", [(f"f{i}", one) for i, one in enumerate(called)])


def _if(result, node):
    sides = (f"{side}_branch = b () => (float[] o) {{ {node} }}" for side in ("then", "else"))
    return f"{result} = If(c)<{', '.join(sides)}>"


def _branches(depth):
    inner = "o = Relu(x)"
    for _ in range(depth):
        inner = _if("o", inner)
    return _written(f"m = ReduceMax<keepdims = 0>(x) c = Cast<to = 9>(m) {_if('y', inner)}")


CRAFTED = {
    "data above its folder": lambda: external("../canary"),
    "data at the root": lambda: external("/etc/passwd"),
    "data of a device": lambda: external("/dev/zero", length=64),
    "data that is missing": lambda: external("weights.bin"),
    "data that is the model": lambda: external("model.onnx", offset=-4, length=64),
    "data longer than its file": lambda: external("model.onnx", offset=0, length=1 << 40),
    "dims beyond memory": lambda: _declares(1 << 40, 1 << 20),
    "dims below zero": lambda: _declares(-1, 4),
    "an input beyond memory": lambda: _model([_node("Relu", "x", "y")], shape=(1 << 40, 9)),
    "a circle": lambda: _model([_node("Add", "x b", "a"), _node("Add", "x a", "b"),
                                _node("Relu", "b", "y")]),
    "a name made twice": lambda: _model([_node("Relu", "x", "y"), _node("Neg", "x", "y")]),
    "no node for its output": lambda: _model([_node("Relu", "x", "z")]),
    "a function that calls itself": lambda: _functions(1, lambda i: i),
    "a function that calls itself in a branch": lambda: _written(
        "y = own.f(x)", [("f", f"c = Cast<to = 9>(a) {_if('b', 'o = own.f(a)')}")]
    ),
    "functions in a circle": lambda: _functions(3, lambda i: (i + 1) % 3),
    "functions that double": lambda: _functions(60, lambda i: i + 1),
    "branches in branches": lambda: _branches(8),
    "operators that nobody knows": lambda: _model(
        [helper.make_node("Shell", ["x"], ["a"], domain="com.own"),
         helper.make_node("Shell", ["a"], ["b"], domain="com.own"), _node("Frob", "b", "y")]
    ),
    "a set of operators to come": lambda: _model([_node("Relu", "x", "y")], opset=999),
    "a set of operators of old": lambda: _model([_node("Relu", "x", "y")], opset=1),
}  # fmt: skip
"""Each hostile model, by what it does."""
