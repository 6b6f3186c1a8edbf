"""ONNX files as a stranger might write them, and an honest one."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

_FLOAT, _BOOL = TensorProto.FLOAT, TensorProto.BOOL


def _model(nodes, tensors=(), functions=(), opset=18, shape=(2, 4), imports=()):
    x = helper.make_tensor_value_info("x", _FLOAT, list(shape))
    y = helper.make_tensor_value_info("y", _FLOAT, None)
    graph = helper.make_graph(list(nodes), "g", [x], [y], list(tensors))
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in imports)]
    return helper.make_model(graph, functions=list(functions), opset_imports=opsets, ir_version=9)


def _node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def _ints(name, *values):
    return numpy_helper.from_array(np.array(values, np.int64), name)


def honest():
    """A layer with its weights, a function of its own, and a shape that is computed."""
    weight = np.arange(16, dtype=np.float32).reshape(4, 4) / 16
    twice = helper.make_function(
        "own", "Twice", ["a"], ["b"], [_node("Add", "a a", "b")], [helper.make_opsetid("", 18)]
    )
    nodes = [
        _node("MatMul", "x w", "m", name="/layer/MatMul"),
        helper.make_node("Twice", ["m"], ["t"], domain="own"),
        _node("Shape", "t", "s"),
        _node("Slice", "s zero one", "rows"),
        _node("Concat", "rows rest", "target", axis=0),
        _node("Reshape", "t target", "r"),
        _node("Relu", "r", "y"),
    ]
    tensors = [
        numpy_helper.from_array(weight, "w"),
        _ints("zero", 0),
        _ints("one", 1),
        _ints("rest", 2, 2),
    ]
    return _model(nodes, tensors, [twice], imports=["own"])


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


def _scalar(name, value):
    return numpy_helper.from_array(np.array(value, np.int64), name)


def _functions(count, calls):
    own = [
        helper.make_function(
            "own",
            f"f{i}",
            ["a"],
            ["b"],
            [
                helper.make_node(f"f{calls(i)}", ["a"], ["c"], domain="own"),
                helper.make_node(f"f{calls(i)}", ["c"], ["b"], domain="own"),
            ]
            if calls(i) < count
            else [_node("Relu", "a", "b")],
            [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)],
        )
        for i in range(count)
    ]
    call = helper.make_node("f0", ["x"], ["y"], domain="own")
    return _model([call], functions=own, imports=["own"])


def _branch(node):
    return helper.make_graph([node], "b", [], [helper.make_tensor_value_info("o", _FLOAT, None)])


def _hidden():
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    branch = _branch(helper.make_node("f", ["a"], ["o"], domain="own"))
    body = [_node("Cast", "a", "c", to=_BOOL)]
    body.append(_node("If", "c", "b", then_branch=branch, else_branch=branch))
    own = helper.make_function("own", "f", ["a"], ["b"], body, opsets)
    return _model([helper.make_node("f", ["x"], ["y"], domain="own")], (), [own], imports=["own"])


def _nested(depth):
    branch = _branch(_node("Relu", "x", "o"))
    for _ in range(depth):
        node = _node("If", "c", "o", then_branch=branch, else_branch=branch)
        branch = _branch(node)
    return branch


def _branches(depth):
    values = [_node("ReduceMax", "x", "m", keepdims=0), _node("Cast", "m", "c", to=_BOOL)]
    inner = _nested(depth)
    return _model([*values, _node("If", "c", "y", then_branch=inner, else_branch=inner)])


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
    "a function that calls itself in a branch": _hidden,
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
