"""From an ONNX model to Relay, by TVM's importer.

`engine.files.onnx_model` has made the model plain. Every operator's result has the type that ONNX
gives it; where TVM's differs, it is mended here or refused.
"""

import sys
import warnings
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import tvm
from tvm import relay
from tvm.relay.frontend import onnx as onnx_frontend
from tvm.relay.frontend.common import infer_type

from relascope.core.graph import NodeOrigin, TensorType
from relascope.engine.files.onnx_model import DTYPES, OnnxModel, importing
from relascope.engine.relay.frontend.onnx_operators import OPERATORS
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
            if own := OPERATORS.get(op_name):
                made = own(inputs, attrs)
            else:
                made = super()._convert_operator(op_name, inputs, attrs, opset)
            kind = infer_type(made.astuple() if hasattr(made, "astuple") else made).checked_type
        kinds = kind.fields if isinstance(kind, relay.TupleType) else [kind]
        self.given.check_results(index, map(tensor_type, kinds))
        return made


def tensor_type(kind: Any) -> TensorType | None:
    if not isinstance(kind, relay.TensorType):
        return None
    if not all(isinstance(d, tvm.tir.IntImm) for d in kind.shape):
        return None
    return TensorType(tuple(int(d) for d in kind.shape), str(kind.dtype))


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
