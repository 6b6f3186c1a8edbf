"""An ONNX file in both engines, held against ONNX Runtime."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from engines import shared
from hostile_onnx import _node, honest
from limits import GRADIENT, OUTPUT
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import source_from_file
from relascope.passes.catalogue import default_pipeline

# Each has ONNX's own node tests in its process.
IRS = ["relax", pytest.param("relay", marks=pytest.mark.exhaustive)]


@pytest.mark.parametrize("ir", IRS)
def test_an_onnx_file_is_right(ir, tmp_path):
    path = tmp_path / "small.onnx"
    path.write_bytes(honest().SerializeToString())
    source = source_from_file(path)
    info = shared(ir).call("load", source)
    assert info.against == "ONNX Runtime" and "operator set 18" in info.notes[0]
    calls = [n for n in info.graph if n.kind == "call"]
    assert {n.source for n in calls} >= {"onnx::MatMul", "onnx::Relu"}
    assert any(n.scope == "layer" for n in calls)
    request = BuildRequest(source, default_pipeline(ir, False), "llvm")
    (found,) = shared(ir).call("check", request)
    assert found.max_rel < OUTPUT
    nodes = shared(ir).call("inside", request)
    assert any(e.counterpart.endswith(" in layer, as imported") for e in nodes)
    assert max(e.max_abs for e in nodes) < OUTPUT


NEW = [
    *(
        _node(f"Reduce{kind}", f"x {axes}", f"{kind}_{axes}", keepdims=int(axes == "first"))
        for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Prod", "Sum", "SumSquare")
        for axes in ("first", "")
    ),
    _node("ReduceSum", "x", "itself", noop_with_empty_axes=1),
    _node("Split", "x", "most rest", axis=1, num_outputs=2),
    _node("OneHot", "which depth values", "hot", axis=0),
    _node("Trilu", "x one", "upper"),
    _node("Trilu", "x one", "lower", upper=0),
    _node("Pad", "x two zero last", "wide"),
    _node("Unsqueeze", "x ahead", "picture"),
    _node("GridSample", "picture grid", "sampled", mode="linear"),
    _node("GridSample", "picture grid", "bent", mode="cubic", padding_mode="border"),
    _node("LpPool", "picture", "norms", kernel_shape=[2, 2], p=3),
    _node("Dropout", "x", "kept mask"),
    _node("CastLike", "which x", "cast"),
]
"""Operators in the forms that new sets of operators give them."""
GIVEN = {
    "x": np.linspace(0.1, 2, 15, dtype=np.float32).reshape(3, 5),
    "which": np.array([-1, 0, 2], np.int64),
    "grid": np.linspace(-1.2, 1.2, 12, dtype=np.float32).reshape(1, 2, 3, 2),
}
CONSTANT = {
    "first": [0],
    "depth": [4],
    "values": np.array([0.5, 2.5], np.float32),
    "one": 1,
    "two": [1, 1],
    "zero": np.array(0, np.float32),
    "last": [-1],
    "ahead": [0, 1],
}


@pytest.mark.parametrize("ir", IRS)
def test_operators_of_new_sets_are_right(ir, tmp_path):
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in GIVEN.items()
    ]
    made = [o for n in NEW for o in n.output if o != "picture"]
    outputs = [helper.make_empty_tensor_value_info(name) for name in made]
    for output in outputs:
        output.type.tensor_type.elem_type = TensorProto.BOOL * (output.name == "mask") or 1
    constants = [numpy_helper.from_array(np.asarray(a), n) for n, a in CONSTANT.items()]
    graph = helper.make_graph(NEW, "new", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    (tmp_path / "new.onnx").write_bytes(model.SerializeToString())
    source = source_from_file(tmp_path / "new.onnx")
    assert shared(ir).call("load", source).against == "ONNX Runtime"
    found = shared(ir).call("check", BuildRequest(source, default_pipeline(ir, False), "llvm"))
    assert len(found) == len(made)
    assert max(one.max_abs for one in found) < GRADIENT
