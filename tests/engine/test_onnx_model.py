"""ONNX files: what is in one is checked before an importer has it, and made plain."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.parser import parse_model
from onnx.reference import ReferenceEvaluator

from handwritten import ONNX
from hostile_onnx import CRAFTED, _model, _node, external, honest
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
        (
            "2^66 elements",
            "ConstantOfShape makes a constant of 73,786,976,294,838,206,464 elements",
        ),
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


def test_all_unknown_operators_are_named_with_counts(tmp_path):
    with pytest.raises(EngineError, match=r"com.own.Shell \(2 times\), Frob"):
        read(tmp_path / "model.onnx", CRAFTED["operators that nobody knows"]())


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


def test_a_branch_that_values_decide_is_named(tmp_path):
    model = branches("all = ReduceSum<keepdims = 0>(x) c = Less(all, zero)")
    with pytest.raises(EngineError, match=r"does not support If \(2 times\)\."):
        read(tmp_path / "model.onnx", model, known=KNOWN | {"Tanh", "Neg", "Sum", "Exp"})


def test_what_is_no_model_is_refused(tmp_path):
    path = tmp_path / "model.onnx"
    for data in (b"\xff" * 40, b""):
        path.write_bytes(data)
        with pytest.raises(EngineError, match=r"Cannot open model\.onnx: "):
            read_onnx(path)
    sparse = honest()
    sparse.graph.sparse_initializer.add()
    with pytest.raises(EngineError, match="it has sparse tensors"):
        read(path, sparse)


def test_inputs_that_a_model_does_not_have_are_refused(tmp_path):
    model, kind = _model([_node("Relu", "x", "y")]), TensorType((2, 4), "float32")
    with pytest.raises(EngineError, match="has no input 'z'; it takes x"):
        read(tmp_path / "model.onnx", model, (("z", kind),))
    with pytest.raises(EngineError, match=r"takes 1 inputs \(x\), not 2"):
        read(tmp_path / "model.onnx", model, (("", kind), ("", kind)))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 0
    with pytest.raises(EngineError, match="without elements"):
        read(tmp_path / "model.onnx", model)


def test_modules_that_pytorch_writes_down_are_scopes(tmp_path):
    model = _model([_node("Relu", "x", "a"), _node("Relu", "a", "b"), _node("Relu", "b", "y")])
    paths = ["['', 'encoder.layer', 'encoder.layer.act']", "no list", ""]
    for node, text in zip(model.graph.node, paths, strict=True):
        node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=text)
    nodes = read(tmp_path / "model.onnx", model).nodes
    assert [n.scope for n in nodes] == ["encoder.layer", "", ""]


def test_sizes_that_are_open_are_given_and_an_input_decides_none(tmp_path):
    model = _model([_node("Relu", "x", "y")])
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    with pytest.raises(EngineError, match="sizes of the input x open: rowsx4"):
        read(tmp_path / "model.onnx", model)
    given = (("x", TensorType((3, 4), "float32")),)
    assert read(tmp_path / "model.onnx", model, given).outputs == (given[0][1],)
    with pytest.raises(EngineError, match="in the file, not"):
        read(tmp_path / "model.onnx", model, (("x", TensorType((3, 5), "float32")),))
    model = _model([_node("Reshape", "x s", "y")])
    model.graph.input.append(helper.make_tensor_value_info("s", TensorProto.INT64, [2]))
    with pytest.raises(EngineError, match=r"depends on values|depends on the input 's'"):
        read(tmp_path / "model.onnx", model)


def test_all_that_an_importer_makes_wrong_is_named(tmp_path):
    nodes = [_node("SpaceToDepth", "x", "a", blocksize=1, mode="CRD"), _node("Mod", "a x", "b")]
    nodes.append(_node("SpaceToDepth", "b", "y", blocksize=1, mode="CRD"))
    model = _model(nodes, shape=(1, 2, 4, 4))
    known = KNOWN | {"SpaceToDepth", "Mod"}
    wanted = r"wrongly: SpaceToDepth in CRD order \(2 times\), Mod of floating-point numbers with"
    with pytest.raises(EngineError, match=wanted):
        read(tmp_path / "model.onnx", model, known=known)


OVER = [[-8, 4, -1, 7], [32, -33, 100, 1]]


@pytest.mark.parametrize(
    ("node", "inputs", "wanted"),
    [
        (_node("BitShift", "x by", "y", direction="RIGHT"), OVER, [-1, 0, -1, 3]),
        (_node("BitShift", "x by", "y", direction="LEFT"), OVER, [0, 0, 0, 14]),
        (
            _node("IsInf", "x", "y", detect_negative=0),
            [[np.inf, -np.inf, 1.0]],
            [True, False, False],
        ),
        (_node("Dropout", "x", "dropped y"), [[1.0, 2.0]], [True, True]),
    ],
    ids=lambda given: given.op_type if hasattr(given, "op_type") else "",
)
def test_what_importers_make_wrong_is_written_as_others(node, inputs, wanted, tmp_path):
    arrays = {
        n: np.array(v, np.int32 if isinstance(v[0], int) else np.float32)
        for n, v in zip(node.input, inputs, strict=True)
    }
    kinds = {n: helper.np_dtype_to_tensor_dtype(a.dtype) for n, a in arrays.items()}
    given = [helper.make_tensor_value_info(n, kinds[n], a.shape) for n, a in arrays.items()]
    kind = TensorProto.BOOL if isinstance(wanted[0], bool) else TensorProto.INT32
    result = helper.make_tensor_value_info("y", kind, [len(wanted)])
    graph = helper.make_graph([node], "one", given, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    made = read(tmp_path / "model.onnx", model, known=KNOWN | {"BitShift", "IsInf", "Dropout"})
    assert len(made.model.graph.node) > 1
    (found,) = ReferenceEvaluator(made.model).run(None, arrays)
    np.testing.assert_array_equal(found, wanted)


def test_a_tensor_without_elements_is_refused(tmp_path):
    model = _model([_node("Slice", "x from to", "y")])
    for name, value in (("from", 4), ("to", 4)):
        model.graph.initializer.append(helper.make_tensor(name, TensorProto.INT64, [1], [value]))
    with pytest.raises(EngineError, match=r"This Slice returns .* without elements"):
        read(tmp_path / "model.onnx", model, known=KNOWN | {"Slice"})


def test_what_is_not_known_is_written_out_where_onnx_says_how(tmp_path):
    model = _model([_node("HardSwish", "x", "y")])
    made = read(tmp_path / "model.onnx", model, known=KNOWN | {"HardSigmoid"})
    assert {n.op_type for n in made.model.graph.node} == {"HardSigmoid", "Mul"}


def test_files_are_told_by_their_first_bytes():
    assert is_onnx(honest().SerializeToString()[:64])
    assert not any(map(is_onnx, (b"PK\x03\x04", b"{}", b"\x7fELF", b"", b"def @main")))
