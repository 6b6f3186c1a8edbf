"""ONNX files: what is in one is checked before an importer has it, and made plain."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.parser import parse_model
from onnx.reference import ReferenceEvaluator

from handwritten import ONNX
from hostile_onnx import CRAFTED, _model, _node, _written, external, honest
from relascope.core.errors import EngineError
from relascope.core.graph import TensorType
from relascope.engine.files.formats import is_onnx
from relascope.engine.files.onnx_model import FOLDED, prepare_onnx, read_onnx
from relascope.engine.protocol.source import bundled

KNOWN = FOLDED | {"MatMul", "Relu"}


def read(path, model, types=(), known=KNOWN):
    path.write_bytes(model.SerializeToString())
    return prepare_onnx(read_onnx(path), known, "relax", path.name, types)


@pytest.mark.parametrize("name", CRAFTED)
def test_a_hostile_model_ends_in_a_sentence(name, tmp_path):
    (tmp_path.parent / "canary").write_bytes(bytes(64))
    with pytest.raises(EngineError) as refused:
        read(tmp_path / "model.onnx", CRAFTED[name]())
    assert refused.value.kind in ("file", "operator", "input")
    assert "Traceback" not in refused.value.message and refused.value.message.endswith(".")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("2^66 elements", "ConstantOfShape makes a constant of 73,786,976,294,838,206,464 el"),
        ("2^30 elements", "ConstantOfShape makes a constant of 1,073,741,824 elements"),
        ("a size below 0", r"ConstantOfShape has a negative size among \[-5\]"),
        ("a range to NaN", "Range counts from 0.0 to nan by 1.0, which never ends"),
        ("a range by no step", "Range counts from 0 to 9 by 0, which never ends"),
        ("a range of 2^63", "Range makes a constant of 9,223,372,036,854,775,808 elements"),
        ("a range between none", "Range counts between values that are not single numbers"),
        ("one expanded to 2^30", "Expand makes a constant of 1,073,741,824 elements"),
        ("two laid 2^29 times", "Tile makes a constant of 1,073,741,824 elements"),
        ("doubled 40 times", r"Concat makes a tensor of float32\[1073741824, 4\]"),
        ("padded by 2^40", r"Pad makes a tensor of float32\[1099511627778, 4\]"),
    ],
)
def test_what_would_be_too_large_names_its_node(name, why, tmp_path):
    with pytest.raises(EngineError, match=f"model.onnx was refused: its {why}"):
        read(tmp_path / "model.onnx", ONNX[name](tmp_path), known=KNOWN | {"Pad"})


def test_a_model_is_made_plain(tmp_path):
    made = read(tmp_path / "model.onnx", honest())
    ops = [n.op_type for n in made.model.graph.node]
    assert ops == ["Constant", "MatMul", "Add", "Reshape", "Relu"]
    assert made.nodes[1].scope == "layer" and set(made.weights) == {"w"}
    assert made.inputs == (("x", TensorType((2, 4), "float32")),)
    assert made.outputs == (TensorType((2, 2, 2), "float32"),)
    x = np.ones((2, 4), np.float32)
    one, other = (ReferenceEvaluator(m).run(None, {"x": x}) for m in (made.model, made.given))
    np.testing.assert_array_equal(one[0], other[0])


def test_data_in_the_same_folder_is_read(tmp_path):
    (tmp_path / "w.bin").write_bytes(bytes(4) + np.ones(16, np.float32).tobytes())
    made = read(tmp_path / "model.onnx", external("w.bin", offset=4, length=64))
    assert (made.weights["w"] == 1).all()
    (tmp_path / "apart").mkdir()
    packed = bundled((tmp_path / "model.onnx", tmp_path / "w.bin"), tmp_path / "apart")
    assert (read_onnx(packed).graph.initializer[0].raw_data) == np.ones(16, np.float32).tobytes()
    (tmp_path / "away.bin").symlink_to("/etc/hostname")
    with pytest.raises(EngineError, match=r"its data cannot be read from 'away\.bin'"):
        read(tmp_path / "model.onnx", external("away.bin"))


def branches(condition, rows=2):
    """A branch in one side of another; `c` is what both read, and both sides have a `t`."""
    return parse_model(
        f"""<ir_version: 9, opset_import: ["" : 18]>
        g (float[{rows}, 4] x) => (float[M, 4] y) <int64[1] six = {{6}}, float zero = {{0}}> {{
            {condition}
            p, q, s = If (c) <
                then_branch = outer () => (r, r, ones) <float[4] ones = {{1, 1, 1, 1}}> {{
                    u, v, w = If (c) <
                        then_branch = one () => (a, t, x) {{ t = Tanh(x) a = Add(t, t) }},
                        else_branch = two () => (b, t, x) {{ t = Exp(x) b = Add(t, t) }}>
                    r = Relu(u)
                }},
                else_branch = other () => (n, n, n) {{ n = Neg(x) }}>
            y = Sum(p, q, s)
        }}"""
    )


@pytest.mark.parametrize("rows", [2, 3])
def test_of_a_branch_that_sizes_decide_one_side_is_taken(rows, tmp_path):
    of_sizes = "sizes = Shape(x) all = ReduceSum<keepdims = 0>(sizes) c = Equal(all, six)"
    model = branches(of_sizes, rows)
    made = read(tmp_path / "model.onnx", model, known=KNOWN | {"Tanh", "Neg", "Sum", "Exp", "If"})
    ops = {n.op_type for n in made.model.graph.node}
    assert ("Tanh" in ops, "Neg" in ops, "If" in ops) == (rows == 2, rows == 3, False)
    x = np.linspace(-1, 1, rows * 4, dtype=np.float32).reshape(rows, 4)
    one, other = (ReferenceEvaluator(m).run(None, {"x": x}) for m in (made.model, made.given))
    np.testing.assert_array_equal(one[0], other[0])


def test_what_is_no_model_is_refused(tmp_path):
    path = tmp_path / "model.onnx"
    for data in (b"\xff" * 40, b""):
        path.write_bytes(data)
        with pytest.raises(EngineError, match=r"Cannot open model\.onnx: "):
            read_onnx(path)


def edited(model, change):
    change(model.graph)
    return model


KIND, WIDER = TensorType((2, 4), "float32"), TensorType((3, 5), "float32")
RELU, RESHAPE = [_node("Relu", "x", "y")], [_node("Reshape", "x s", "y")]
SIZES = helper.make_tensor_value_info("s", TensorProto.INT64, [2])
BY_VALUES = branches("all = ReduceSum<keepdims = 0>(x) c = Less(all, zero)")
TO_DEPTH = 'SpaceToDepth<blocksize = 1, mode = "CRD">'
WRONG = f"p = Unsqueeze(x, at) a = {TO_DEPTH}(p) b = Mod(a, p) y = {TO_DEPTH}(b)"


@pytest.mark.parametrize(
    ("model", "types", "why"),
    [
        (edited(honest(), lambda g: g.sparse_initializer.add()), (), "it has sparse tensors"),
        (CRAFTED["operators that nobody knows"](), (), r"com.own.Shell \(2 times\), Frob"),
        (BY_VALUES, (), r"does not support If \(2 times\)\."),
        (_model(RELU), (("z", KIND),), "has no input 'z'; it takes x"),
        (_model(RELU), (("", KIND),) * 2, r"takes 1 inputs \(x\), not 2"),
        (_model(RELU, shape=(0, 4)), (), "without elements"),
        (_model(RELU, shape=("rows", 4)), (), "sizes of the input x open: rowsx4"),
        (_model(RELU, shape=("rows", 4)), (("x", WIDER),), "in the file, not"),
        (edited(_model(RESHAPE), lambda g: g.input.append(SIZES)), (), "depends on the input 's'"),
        (_written("y = Slice(x, i, i)", given="int64[1] i = {4}"), (), r"Slice .* without elem"),
        (
            _written(WRONG, given="int64[2] at = {0, 1}"),
            (),
            r"wrongly: SpaceToDepth in CRD order \(2 times\), Mod of floating-point numbers with",
        ),
    ],
)
def test_what_no_importer_is_given_is_refused(model, types, why, tmp_path):
    known = KNOWN | {"Tanh", "Neg", "Sum", "Exp", "SpaceToDepth", "Mod", "Slice"}
    with pytest.raises(EngineError, match=why):
        read(tmp_path / "model.onnx", model, types, known)


def test_sizes_that_are_open_are_given(tmp_path):
    model = _model(RELU, shape=("rows", 4))
    assert read(tmp_path / "model.onnx", model, (("x", KIND),)).outputs == (KIND,)


def test_modules_that_pytorch_writes_down_are_scopes(tmp_path):
    model = _model([_node("Relu", "x", "a"), _node("Relu", "a", "b"), _node("Relu", "b", "y")])
    paths = ["['', 'encoder.layer', 'encoder.layer.act']", "no list", ""]
    for node, text in zip(model.graph.node, paths, strict=True):
        node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=text)
    nodes = read(tmp_path / "model.onnx", model).nodes
    assert [n.scope for n in nodes] == ["encoder.layer", "", ""]


OVER = [[-8, 4, -1, 7], [32, -33, 100, 1]]
SHIFT = 'int32[4] x, int32[4] by) => (int32[4] y) {{ y = BitShift<direction = "{}">(x, by) }}'


@pytest.mark.parametrize(
    ("text", "inputs", "wanted"),
    [
        (SHIFT.format("RIGHT"), OVER, [-1, 0, -1, 3]),
        (SHIFT.format("LEFT"), OVER, [0, 0, 0, 14]),
        (
            "float[3] x) => (bool[3] y) { y = IsInf<detect_negative = 0>(x) }",
            [[np.inf, -np.inf, 1.0]],
            [True, False, False],
        ),
        ("float[2] x) => (bool[2] y) { dropped, y = Dropout(x) }", [[1.0, 2.0]], [True, True]),
    ],
)
def test_what_importers_make_wrong_is_written_as_others(text, inputs, wanted, tmp_path):
    model = parse_model(f'<ir_version: 9, opset_import: ["" : 18]> one ({text}')
    arrays = {
        i.name: np.array(v, helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type))
        for i, v in zip(model.graph.input, inputs, strict=True)
    }
    made = read(tmp_path / "model.onnx", model, known=KNOWN | {"BitShift", "IsInf", "Dropout"})
    assert len(made.model.graph.node) > 1
    (found,) = ReferenceEvaluator(made.model).run(None, arrays)
    np.testing.assert_array_equal(found, wanted)


def test_what_is_not_known_is_written_out_where_onnx_says_how(tmp_path):
    model = _model([_node("HardSwish", "x", "y")])
    made = read(tmp_path / "model.onnx", model, known=KNOWN | {"HardSigmoid"})
    assert {n.op_type for n in made.model.graph.node} == {"HardSigmoid", "Mul"}


def test_files_are_told_by_their_first_bytes():
    assert is_onnx(honest().SerializeToString()[:64])
    assert not any(map(is_onnx, (b"PK\x03\x04", b"{}", b"\x7fELF", b"", b"def @main")))
