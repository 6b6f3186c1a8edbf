"""From an ONNX model to Relay, by TVM's importer.

`engine.files.onnx_model` has made the model plain. Every operator's result has the type that ONNX
gives it; where TVM's differs, it is mended here or refused.
"""

import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import tvm
from tvm import relay
from tvm.relay.frontend import onnx as onnx_frontend
from tvm.relay.frontend.common import fold_constant, infer_shape, infer_type

from relascope.core.graph import NodeOrigin
from relascope.engine.files.onnx_model import DTYPES, OnnxModel, importing
from relascope.engine.relay.draw.to_graph import tensor_types
from relascope.engine.relay.frontend.programs import imported
from relascope.passes.relay.ir.program import RelayProgram

_LEFT_OUT = """
    Optional OptionalHasElement OptionalGetElement SequenceConstruct SequenceEmpty SequenceErase
    SequenceInsert SequenceLength ConcatFromSequence SplitToSequence SequenceAt If Loop Scan Unique
    NonZero Compress NonMaxSuppression ATen Adagrad Adam Momentum LinearRegressor Attention
    Bernoulli RandomNormal RandomNormalLike RandomUniform RandomUniformLike Multinomial DFT
"""
"""Operators that have no static tensors, that draw numbers, that TVM takes for others of that name,
or that it computes with less than float32's digits."""


def everything() -> frozenset[str]:
    """The operators that TVM's importer has."""
    return frozenset({*onnx_frontend._get_convert_map(18), *onnx_frontend._identity_list})


def known_operators() -> frozenset[str]:
    """Those of them that a program here can hold."""
    return everything() - frozenset(_LEFT_OUT.split())


_Made = Callable[[Any, Mapping[str, Any]], Any]
"""From an operator's inputs, None where left out, and its attributes to its result."""


def _value(of: Any) -> np.ndarray:
    """The value of an input that is known at import. Raises ValueError for others."""
    folded = fold_constant(of)
    if not isinstance(folded, relay.Constant):
        raise ValueError("an input that determines shapes is not constant")
    return np.asarray(folded.data.numpy())


def _given(inputs: Any, place: int) -> Any:
    return inputs[place] if place < len(inputs) else None


def _reduced(reduce: Callable[..., Any], inputs: Any, attrs: Mapping[str, Any]) -> Any:
    """A reduction over axes of an attribute or the second input, else all; `reduce` takes the
    tensor, its axes, and whether they stay."""
    data, axes = inputs[0], attrs.get("axes")
    if axes is None and _given(inputs, 1) is not None:
        axes = _value(inputs[1]).reshape(-1).tolist()
    if not axes:
        axes = () if attrs.get("noop_with_empty_axes") else range(len(infer_shape(data)))
    axes, keep = [int(a) for a in axes], bool(attrs.get("keepdims", 1))
    if axes:
        return reduce(data, axes, keep)
    return reduce(relay.expand_dims(data, 0), [0], False)  # of each element alone


def _shift(inputs: Any, attrs: Mapping[str, Any]) -> Any:
    left = attrs["direction"] == b"LEFT"
    return (relay.left_shift if left else relay.right_shift)(*inputs)


def _split(inputs: Any, attrs: Mapping[str, Any]) -> Any:
    data, axis = inputs[0], int(attrs.get("axis", 0))
    sizes, count = attrs.get("split"), int(attrs["tvm_custom"]["num_outputs"])
    if sizes is None and _given(inputs, 1) is not None:
        sizes = _value(inputs[1]).reshape(-1)
    if sizes is None:
        sizes = [(-(-int(infer_shape(data)[axis]) // count))] * (count - 1)
    else:
        sizes = sizes[:-1]
    if count == 1:
        return data
    return relay.split(data, [int(s) for s in np.cumsum(sizes)], axis)


def _pad(inputs: Any, attrs: Mapping[str, Any]) -> Any:
    data, mode = inputs[0], attrs.get("mode", b"constant").decode()
    if mode not in ("constant", "edge", "reflect"):
        raise ValueError(f"its padding mode is {mode}")
    rank = len(infer_shape(data))
    pads = attrs.get("pads")
    pads = _value(inputs[1]) if pads is None else np.array(pads)
    axes = range(rank) if _given(inputs, 3) is None else _value(inputs[3]).tolist()
    value = _given(inputs, 2)
    value = attrs.get("value", 0.0) if value is None else _value(value).reshape(-1)[0].item()
    width = [(0, 0)] * rank
    for axis, pair in zip(axes, pads.reshape(2, -1).T.tolist(), strict=True):
        width[int(axis)] = tuple(pair)
    return relay.nn.pad(data, width, value, mode)


def _triangle(inputs: Any, attrs: Mapping[str, Any]) -> Any:
    data, k = inputs[0], _given(inputs, 1)
    rows, columns = (int(s) for s in infer_shape(data)[-2:])
    upper, offset = attrs.get("upper", 1), 0 if k is None else int(_value(k).reshape(-1)[0])
    kept = np.tri(rows, columns, offset - 1 if upper else offset, dtype=bool) ^ bool(upper)
    return relay.where(relay.const(kept), data, relay.zeros_like(data))


_MODES = {"linear": "bilinear", "cubic": "bicubic"}  # as opset 20 spells them


def _grid_sample(inputs: Any, attrs: Mapping[str, Any]) -> Any:
    mode = attrs.get("mode", b"bilinear").decode()
    padding = attrs.get("padding_mode", b"zeros").decode()
    rank = len(infer_shape(inputs[0]))
    grid = relay.transpose(inputs[1], (0, rank - 1, *range(1, rank - 1)))
    layout = "NCHW" if rank == 4 else "NCDHW"
    corners = bool(attrs.get("align_corners", 0))
    mode = _MODES.get(mode, mode)
    return relay.image.grid_sample(inputs[0], grid, mode, layout, padding, corners)


def _square_sum(data: Any, axes: list[int], keep: bool) -> Any:
    return relay.sum(data * data, axes, keep)


_REDUCTIONS = ("max", "mean", "min", "prod", "sum")
_OPERATORS: dict[str, _Made] = {
    "BitShift": _shift,
    "Dropout": lambda inputs, attrs: inputs[0],
    "GridSample": _grid_sample,
    "Pad": _pad,
    "ReduceL1": partial(_reduced, lambda data, axes, keep: relay.sum(relay.abs(data), axes, keep)),
    "ReduceL2": partial(_reduced, lambda *given: relay.sqrt(_square_sum(*given))),
    "ReduceLogSum": partial(_reduced, lambda *given: relay.log(relay.sum(*given))),
    "ReduceLogSumExp": partial(_reduced, relay.logsumexp),
    **{f"Reduce{n.title()}": partial(_reduced, getattr(relay, n)) for n in _REDUCTIONS},
    "ReduceSumSquare": partial(_reduced, _square_sum),
    "Split": _split,
    "Trilu": _triangle,
}
"""Operators that TVM has for older opsets only, or fails on."""


class Importer(onnx_frontend.GraphProto):
    """TVM's importer, with our origins and refusals."""

    def __init__(self, given: OnnxModel) -> None:
        inputs = {n: tuple(int(d) for d in t.shape) for n, t in given.inputs}
        dtypes = {n: t.dtype for n, t in given.inputs}
        super().__init__(inputs, dtypes, freeze_params=False, op_type_dict={})
        self.given = given

    def _convert_operator(self, op_name: str, inputs: Any, attrs: Any, opset: int) -> Any:
        index = int(attrs["tvm_custom"]["name"].rpartition("|")[2] or -1)
        with importing(f"this {op_name}", self.given.nodes[index].where):
            if own := _OPERATORS.get(op_name):
                made = own(inputs, attrs)
            else:
                made = super()._convert_operator(op_name, inputs, attrs, opset)
            kind = infer_type(made.astuple() if hasattr(made, "astuple") else made).checked_type
        kinds = kind.fields if isinstance(kind, relay.TupleType) else [kind]
        found = [next(iter(tensor_types(k)), None) for k in kinds]
        self.given.check_results(index, (t if t and "?" not in t.shape else None for t in found))
        return made


def _one_each(mod: Any) -> Any:
    """The module with one variable per name: marking a node's origin copies its variables."""
    main = mod["main"]
    by_name = {p.name_hint: p for p in main.params}
    for variable in relay.analysis.free_vars(main.body):
        by_name.setdefault(variable.name_hint, variable)
    same = {v: by_name[v.name_hint] for v in relay.analysis.free_vars(main.body)}
    body = relay.bind(main.body, same)
    return tvm.IRModule.from_expr(relay.Function(list(by_name.values()), body))


def import_onnx(given: OnnxModel, path: str) -> RelayProgram:
    """Convert a plain ONNX model to a typed Relay module.

    The arguments of "main" are the model's inputs, then the weights that it reads. Raises
    EngineError of kind "operator", which names the operator and its node.
    """
    if "onnx.mapping" not in sys.modules:  # which TVM needs, and current onnx packages lack
        module: Any = ModuleType("onnx.mapping")
        kinds = {i: np.dtype(d) for i, d in DTYPES.items() if d != "bfloat16"}
        module.TENSOR_TYPE_TO_NP_TYPE = kinds
        sys.modules["onnx.mapping"] = module
    keys = []
    for index, node in enumerate(given.nodes):
        keys.append(f"{node.scope}|onnx::{node.operator}|{index}")
        given.model.graph.node[index].name = keys[-1]
    with warnings.catch_warnings(), Importer(given) as importer, importing("the model", path):
        warnings.simplefilter("ignore")
        mod, _ = importer.from_onnx(given.model.graph, given.opset)
        mod = relay.transform.DynamicToStatic()(relay.transform.InferType()(_one_each(mod)))
        mod = relay.transform.InferType()(mod)
    main = mod["main"]
    read = {v.name_hint for v in relay.analysis.free_vars(main.body)}
    inputs = [n for n, _ in given.inputs]
    by_name = {p.name_hint: p for p in main.params}
    weights = {n: v for n, v in given.weights.items() if n in read}
    arguments = [by_name[n] for n in (*inputs, *weights)]
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(arguments, main.body)))
    made = imported(mod, weights, path)
    given.check_outputs(made.outputs, path)
    origins = [NodeOrigin(n.scope, f"onnx::{n.operator}") for n in given.nodes]
    return replace(made.program, provenance=dict(zip(keys, origins, strict=True)))
