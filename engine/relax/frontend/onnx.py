"""From an ONNX model to Relax, by TVM's importer.

`engine.files.onnx_model` has simplified the model. Every operator's result must have the type that
ONNX gives it; what TVM imports differently is mended here or refused."""

import contextlib
import io
import warnings
from dataclasses import replace
from functools import partial
from typing import Any

import tvm
from tvm import relax, topi
from tvm.relax.frontend.onnx import onnx_frontend

from relascope.core.graph import NodeOrigin
from relascope.engine.files.onnx_model import AT_IMPORT, OnnxModel, importing
from relascope.engine.pytorch.flat_trace import TraceOrigin
from relascope.engine.relax.draw.to_graph import tensor_types
from relascope.engine.relax.frontend.converters import NamedBuilder
from relascope.engine.relax.frontend.programs import imported
from relascope.passes.relax.ir.program import RelaxProgram

_LEFT_OUT = """
    Optional OptionalHasElement OptionalGetElement SequenceConstruct SequenceEmpty SequenceErase
    SequenceInsert SequenceLength ConcatFromSequence SplitToSequence SequenceAt If Unique NonZero
    Compress AllClassNMS NonMaxSuppression Attention RMSNormalization
"""
"""Operators without static tensors, of another domain, or better inlined."""


def everything() -> frozenset[str]:
    """The operators that TVM's importer has."""
    return frozenset(onnx_frontend._get_convert_map()) | {"If"}


def known_operators() -> frozenset[str]:
    """Those of them that relascope's programs can have."""
    return everything() - frozenset(_LEFT_OUT.split())


def _padded(mode: str, data: Any, before: Any, after: Any, value: float = 0.0) -> Any:
    width = [int(w) for pair in zip(before, after, strict=True) for w in pair]
    return relax.op.nn.pad(data, width, mode, float(value))


_OPERATORS: dict[Any, Any] = {
    topi.maximum: relax.op.maximum,
    topi.minimum: relax.op.minimum,
    topi.flip: relax.op.flip,
    topi.tile: relax.op.tile,
    topi.einsum: lambda equation, *inputs: relax.op.einsum(list(inputs), equation),
    topi.nn.pad: partial(_padded, "constant"),
    topi.nn.mirror_pad: lambda data, before, after, _: _padded("reflect", data, before, after),
    topi.nn.replicate_pad: partial(_padded, "replicate"),
    topi.nn.circular_pad: partial(_padded, "circular"),
}
"""Relax operators for what TVM's importer writes as loops, which no pass and no gradient knows."""


class OnnxBuilder(NamedBuilder):
    """Binds Relax operators in place of loops."""

    def emit_te(self, func: Any, *args: Any, **options: Any) -> Any:
        if func not in _OPERATORS:
            return super().emit_te(func, *args, **options)
        return self.emit(_OPERATORS[func](*args, **options))


def _mish(builder: OnnxBuilder, x: Any) -> Any:
    """x tanh(log(1 + e)) for e = exp(x), without the logarithm, which loses a small e's digits."""
    two, most = (relax.const(number, x.ty.dtype) for number in (2.0, 20.0))
    power = builder.emit(relax.op.exp(relax.op.minimum(x, most)))
    part = builder.emit(relax.op.multiply(power, relax.op.add(power, two)))
    return relax.op.multiply(x, relax.op.divide(part, relax.op.add(part, two)))


_OWN = {"Mish": _mish}


class Importer(onnx_frontend.ONNXGraphImporter):
    """TVM's importer, with our names, origins and refusals."""

    def __init__(self, given: OnnxModel) -> None:
        inputs = {n: [int(d) for d in t.shape] for n, t in given.inputs}
        dtypes = {n: t.dtype for n, t in given.inputs}
        super().__init__(inputs, dtypes, keep_params_in_input=True, sanitize=False)
        self.given = given
        self.bb = self.builder = OnnxBuilder()

    def _convert_operator(self, op_name: str, inputs: Any, attrs: Any, opset: int) -> Any:
        index = int(attrs["tvm_custom"]["name"] or -1)
        node = self.given.nodes[index]
        self.builder.origin = TraceOrigin(node.scope, f"onnx::{node.operator}", index)
        printed = contextlib.redirect_stdout(io.StringIO())
        with importing(f"this {op_name}", node.where), printed:
            kind, back = _wide(op_name, inputs)
            if kind:
                at_import = AT_IMPORT.get(op_name, ())
                inputs = onnx_frontend.onnx_input(
                    i if place in at_import else self._cast(i, kind)
                    for place, i in enumerate(inputs)
                )
            if own := _OWN.get(op_name):
                made = self.builder.normalize(own(self.builder, *inputs))
            else:
                made = super()._convert_operator(op_name, inputs, attrs, opset)
            made = self._bound(self._cast(made, back) if back else made)
        several = isinstance(made, relax.Tuple) or isinstance(made.ty, relax.TupleType)
        kinds = made.ty.fields if several else [made.ty]
        found = (next(iter(tensor_types(kind)), str(kind)) for kind in kinds)
        self.given.check_results(index, found)
        return made

    def _cast(self, value: Any, dtype: str) -> Any:
        if value is None or not isinstance(getattr(value, "ty", None), relax.TensorType):
            return value
        same = value.ty.dtype == dtype
        return value if same else self.builder.emit(relax.op.astype(value, dtype))

    def _bound(self, made: Any) -> Any:
        if isinstance(made, relax.Tuple):
            return relax.Tuple([self._bound(f) for f in made.fields])
        if isinstance(made, relax.ShapeExpr):
            return relax.const([int(v) for v in made.values], "int64")
        return self.builder.emit(made) if isinstance(made, tvm.ir.Call) else made


_SUMS = "Conv ConvTranspose MatMul Gemm Einsum ReduceSum ReduceMean AveragePool CumSum"


def _wide(op_name: str, inputs: Any) -> tuple[str, str]:
    """The dtype to compute an operator in, and that of its result; "" for its own."""
    types = [getattr(i, "ty", None) for i in inputs]
    kinds = [t.dtype if isinstance(t, relax.TensorType) else "" for t in types]
    first = str(kinds[0]) if kinds else ""
    if op_name in _SUMS.split() and first in ("float16", "bfloat16"):
        return "float32", first
    if op_name in ("ReduceMax", "ReduceMin") and first == "bool":
        return "int8", first
    if op_name == "Pow" and (len({str(k) for k in kinds}) > 1 or "int" in first):
        return ("float64" if "int" in first or "64" in str(kinds) else "float32"), first
    return "", ""


def import_onnx(given: OnnxModel, path: str) -> RelaxProgram:
    """Convert a plain ONNX model to a typed Relax module. The arguments of "main" are the model's
    inputs, then the weights that it reads. Raises EngineError of kind "operator" that names the
    operator and its node."""
    importer = Importer(given)
    with warnings.catch_warnings(), importing("the model", path):
        warnings.simplefilter("ignore")
        mod = importer.from_onnx(given.model.graph, given.opset)
    main = mod["main"]
    pure = relax.Function(main.params, main.body, main.ret_ty, True)
    mod["main"] = pure.with_attr("global_symbol", "main")
    mod = relax.transform.DeadCodeElimination(["main"])(relax.transform.Normalize()(mod))
    main = mod["main"]
    read = {str(v.name) for v in relax.analysis.free_vars(main.body)}
    kept = [p for p in main.params if str(p.name) in {*read, *dict(given.inputs)}]
    mod["main"] = relax.Function(kept, main.body, main.ret_ty, main.is_pure, main.attrs)
    values = {n: v.numpy() for n, (_, v) in importer._params.items() if n in read}
    made = imported(mod, values, path)
    given.check_outputs(made.outputs, path)
    return replace(made.program, provenance=_provenance(mod["main"], importer.builder))


def _provenance(function: Any, builder: NamedBuilder) -> dict[str, NodeOrigin]:
    """Origins by variable; what TVM binds inside a converter has the origin of the next binding."""
    found, waiting = {}, []
    for block in function.body.blocks:
        for binding in block.bindings:
            waiting.append(str(binding.var.name))
            origin = builder.origins.get(waiting[-1])
            if origin is not None:
                found.update(dict.fromkeys(waiting, origin.origin))
                waiting = []
    return found
