"""An ONNX file in both engines, held against ONNX Runtime."""

import pytest

from engines import shared
from hostile_onnx import honest
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import source_from_file
from relascope.passes.catalogue import default_pipeline


@pytest.mark.parametrize("ir", ["relax", "relay"])
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
    assert found.max_abs < 1e-5
