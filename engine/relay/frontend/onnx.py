"""From an ONNX model to Relay, by TVM's importer.

`engine.files.onnx_model` has made the model plain. Every operator's result is held against the type
that ONNX gives it; what TVM makes otherwise of it is mended here or refused.
"""

import sys
import warnings
from types import ModuleType
from typing import Any

import numpy as np
import tvm
from tvm import relay
from tvm.relay.frontend import onnx as onnx_frontend
from tvm.relay.frontend.common import infer_type

from relascope.core.errors import EngineError, lines_of
from relascope.core.graph import TensorType
from relascope.engine.files.onnx_model import DTYPES, OnnxModel
from relascope.engine.relay.frontend.onnx_operators import OPERATORS
from relascope.passes.relay.ir.program import RelayProgram

_LEFT_OUT = """
    Optional OptionalHasElement OptionalGetElement SequenceConstruct SequenceEmpty SequenceErase
    SequenceInsert SequenceLength ConcatFromSequence SplitToSequence SequenceAt If Loop Scan Unique
    NonZero Compress NonMaxSuppression ATen Adagrad Adam Momentum LinearRegressor Attention
    Bernoulli RandomNormal RandomNormalLike RandomUniform RandomUniformLike Multinomial DFT
"""
"""What has no static tensors, what draws numbers, what TVM knows under the name of another, and
what it computes with less than float32's digits."""


def everything() -> frozenset[str]:
    """The operators that TVM's importer has."""
    return frozenset({*onnx_frontend._get_convert_map(18), *onnx_frontend._identity_list})


def known_operators() -> frozenset[str]:
    """Those of them that a program here can hold."""
    return everything() - frozenset(_LEFT_OUT.split())


class Importer(onnx_frontend.GraphProto):
    """TVM's, with origins of ours, and refusals."""

    def __init__(self, given: OnnxModel) -> None:
        inputs = {n: tuple(int(d) for d in t.shape) for n, t in given.inputs}
        dtypes = {n: t.dtype for n, t in given.inputs}
        super().__init__(inputs, dtypes, freeze_params=False, op_type_dict={})
        self.given = given

    def _convert_operator(self, op_name: str, inputs: Any, attrs: Any, opset: int) -> Any:
        index = int(attrs["tvm_custom"]["name"].rpartition("|")[2] or -1)
        node = self.given.nodes[index]
        proto = self.given.model.graph.node[index]
        try:
            if own := OPERATORS.get(op_name):
                made = own(inputs, attrs)
            else:
                made = super()._convert_operator(op_name, inputs, attrs, opset)
            kind = infer_type(made.astuple() if hasattr(made, "astuple") else made).checked_type
        except EngineError:
            raise
        except Exception as wrong:
            said = (lines_of(wrong) or [type(wrong).__name__])[-1]
            message = f"TVM's importer does not take this {op_name}: {said[:300]}"
            raise EngineError("operator", message.rstrip(". ") + ".", node.where) from wrong
        kinds = list(kind.fields) if isinstance(kind, relay.TupleType) else [kind]
        for one, name in zip(kinds, proto.output, strict=False):
            wanted, found = self.given.types.get(name), tensor_type(one)
            if name and wanted is not None and found is not None and found != wanted:
                message = f"TVM's importer makes {found} of this {op_name}, and ONNX"
                raise EngineError("operator", f"{message} {wanted}.", node.where)
        return made


def tensor_type(kind: Any) -> TensorType | None:
    """A static tensor's type; None for another."""
    if not isinstance(kind, relay.TensorType):
        return None
    if not all(isinstance(d, tvm.tir.IntImm) for d in kind.shape):
        return None
    return TensorType(tuple(int(d) for d in kind.shape), str(kind.dtype))


def _mapping() -> None:
    """What TVM asks of a module that present packages of onnx do not have."""
    if "onnx.mapping" not in sys.modules:
        module: Any = ModuleType("onnx.mapping")
        kinds = {i: np.dtype(d) for i, d in DTYPES.items() if d != "bfloat16"}
        module.TENSOR_TYPE_TO_NP_TYPE = kinds
        sys.modules["onnx.mapping"] = module


def _one_each(mod: Any) -> Any:
    """The module with one variable a name: marking a node with its origin copies those it reads."""
    main = mod["main"]
    by_name = {p.name_hint: p for p in main.params}
    for variable in relay.analysis.free_vars(main.body):
        by_name.setdefault(variable.name_hint, variable)
    same = {v: by_name[v.name_hint] for v in relay.analysis.free_vars(main.body)}
    body = relay.bind(main.body, same)
    return tvm.IRModule.from_expr(relay.Function(list(by_name.values()), body))


def import_onnx(given: OnnxModel, path: str) -> RelayProgram:
    """Convert a plain ONNX model to a typed Relay module.

    The arguments of "main" are the model's inputs, then the weights that it reads.

    Raises:
        EngineError: kind "operator"; names the operator and its node.
    """
    _mapping()
    keys = []
    for index, node in enumerate(given.nodes):
        keys.append(f"{node.scope}|onnx::{node.operator}|{index}")
        given.model.graph.node[index].name = keys[-1]
    with warnings.catch_warnings(), Importer(given) as importer:
        warnings.simplefilter("ignore")
        try:
            mod, _ = importer.from_onnx(given.model.graph, given.opset)
            mod = relay.transform.DynamicToStatic()(relay.transform.InferType()(_one_each(mod)))
            mod = relay.transform.InferType()(mod)
        except EngineError:
            raise
        except Exception as wrong:
            said = (lines_of(wrong) or [type(wrong).__name__])[-1][:300]
            message = f"TVM's importer does not take the model: {said}"
            raise EngineError("operator", message, path) from wrong
    main = mod["main"]
    inputs = [n for n, _ in given.inputs]
    by_name = {p.name_hint: p for p in main.params}
    read = {v.name_hint for v in relay.analysis.free_vars(main.body)}
    weights = [n for n in given.weights if n in read]
    arguments = [by_name[n] for n in (*inputs, *weights)]
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(arguments, main.body)))
    result = mod["main"].ret_type
    kinds = list(result.fields) if isinstance(result, relay.TupleType) else [result]
    found = tuple(tensor_type(k) for k in kinds)
    if found != given.outputs:
        ours, theirs = (", ".join(map(str, types)) for types in (found, given.outputs))
        message = f"TVM's importer makes a model of {ours}, and ONNX of {theirs}."
        raise EngineError("operator", message, path)
    return RelayProgram(
        mod=mod,
        params={n: tvm.nd.array(given.weights[n]) for n in weights},
        inputs=tuple(inputs),
        outputs=len(found),
        provenance={
            k: (n.scope, f"onnx::{n.operator}") for k, n in zip(keys, given.nodes, strict=True)
        },
    )
