"""An ONNX file in both engines, held against ONNX Runtime."""

import pytest
from onnx import TensorProto, helper
from onnx.parser import parse_model

from engines import shared
from hostile_onnx import honest
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


KINDS = "L1 L2 LogSum LogSumExp Max Mean Prod Sum SumSquare"
REDUCED = "{0}_some = Reduce{0}<keepdims = 1>(x, first) {0}_all = Reduce{0}<keepdims = 0>(x)"
NEW = f"""<ir_version: 9, opset_import: ["" : 20]>
new (float[3, 5] x, int64[3] which, float[1, 2, 3, 2] grid) => (float[] itself)
<int64[1] first = {{0}}, int64[1] depth = {{4}}, float[2] values = {{0.5, 2.5}}, int64 one = {{1}},
 int64[2] two = {{1, 1}}, float zero = {{0}}, int64[1] last = {{-1}}, int64[2] ahead = {{0, 1}}> {{
    {" ".join(map(REDUCED.format, KINDS.split()))}
    itself = ReduceSum<noop_with_empty_axes = 1>(x)
    most, rest = Split<axis = 1, num_outputs = 2>(x)
    hot = OneHot<axis = 0>(which, depth, values)
    upper = Trilu(x, one)
    lower = Trilu<upper = 0>(x, one)
    wide = Pad(x, two, zero, last)
    picture = Unsqueeze(x, ahead)
    sampled = GridSample<mode = "linear">(picture, grid)
    bent = GridSample<mode = "cubic", padding_mode = "border">(picture, grid)
    norms = LpPool<kernel_shape = [2, 2], p = 3>(picture)
    kept, mask = Dropout(x)
    cast = CastLike(which, x)
}}"""
"""Operators in the forms that new sets of operators give them."""


@pytest.mark.parametrize("ir", IRS)
def test_operators_of_new_sets_are_right(ir, tmp_path):
    model, path = parse_model(NEW), tmp_path / "new.onnx"
    made = [o for n in model.graph.node for o in n.output if o != "picture"]
    del model.graph.output[:]
    model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in made)
    for output in model.graph.output:
        output.type.tensor_type.elem_type = TensorProto.BOOL * (output.name == "mask") or 1
    path.write_bytes(model.SerializeToString())
    source = source_from_file(path)
    assert shared(ir).call("load", source).against == "ONNX Runtime"
    found = shared(ir).call("check", BuildRequest(source, default_pipeline(ir, False), "llvm"))
    assert len(found) == len(made) == 31
    assert max(one.max_abs for one in found) < GRADIENT
