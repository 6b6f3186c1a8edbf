"""From a traced PyTorch model to Relay.

The trace is written as an FX graph of ATen operators (`engine.pytorch.trace_to_fx`), and TVM's
converters, mended by `engine.relay.frontend.converters`, are called node by node. Arguments have
PyTorch's names.

A node's span has a source name `scope|operator|ordinal`: the module's path, TorchScript's operator,
and its place in PyTorch's order of execution, as `attention.self.query|aten::linear|12`.
`RelayProgram.provenance` maps it to the origin.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import tvm
from tvm import relay
from tvm.relay.frontend import pytorch as tvm_frontend

from relascope.core.errors import EngineError
from relascope.engine.protocol.session import Progress
from relascope.engine.pytorch.in_place import check_in_place
from relascope.engine.pytorch.inputs.tensors import tensor_type
from relascope.engine.pytorch.model import Model
from relascope.engine.pytorch.operators.edges import refused_gradient
from relascope.engine.pytorch.trace_to_fx import BFLOAT16, note_values, trace_to_fx
from relascope.engine.pytorch.unlike import note_updates
from relascope.engine.relay.draw.to_graph import tensor_types
from relascope.engine.relay.frontend.converters import Converter, span_key
from relascope.passes.relay.ir.program import RelayProgram

_NO_GRADIENT = ("acosh", "arccosh", "layer_norm", "logcumsumexp", "native_layer_norm")


def import_model(model: Model, progress: Progress) -> RelayProgram:
    """Convert a traced model to a typed Relay module.

    "main" takes the model's inputs, then the parameters and buffers that the trace reads, in
    PyTorch's order and by its names, then draws of other operators than dropouts. It returns the
    outputs, then the new values of buffers that a run changes. Raises EngineError of kind
    "operator", which names the operator and its module, if Relay lacks one, or would change its
    meaning.
    """
    progress(0.0, "writing the trace as ATen operators")
    check_in_place(model.flat, model.buffers, model.note)
    converter = Converter(model)
    trace = trace_to_fx(model, converter.knows, "Relay")
    note_values(model, trace.values)
    progress(0.4, "converting operators to Relay")
    tensors = {**model.parameters, **model.buffers}
    given = (*model.inputs, *model.flat.tensors.values())
    kinds = zip(trace.arguments, map(tensor_type, given), strict=True)
    variables = {n: relay.var(n, shape=k.shape, dtype=k.dtype, span=_span(n)) for n, k in kinds}
    for m in trace.masks:
        variables[m.name] = relay.var(m.name, shape=m.shape, dtype=m.dtype, span=_span(m.name))
    with _mended():
        results = converter.convert(trace, variables)
    note_updates(model, tuple(trace.updates))
    progress(0.8, "inferring types")
    made = relay.Tuple(results) if len(results) > 1 else results[0]
    read = {v.name_hint: v for v in relay.analysis.free_vars(made)}
    draws = [draw for _, draw in model.flat.draws()]
    drawn = zip(trace.masks, (d for d in draws if d.draw), strict=True)
    masks = tuple(replace(m, order=d.order) for m, d in drawn if m.name in read)
    # Arguments that only PyTorch reads stay, too: their gradients in PyTorch are zeros.
    arguments = [variables[n] for n in (*model.input_names, *tensors)]
    arguments += [read[m.name] for m in masks]
    # Marking a node with its origin copies a variable that the node reads as it is.
    own = {a.name_hint: a for a in arguments}
    made = relay.bind(made, {v: own[v.name_hint] for v in relay.analysis.free_vars(made)})
    mod = tvm.IRModule({"main": relay.Function(arguments, made)})
    mod = relay.transform.InferType()(mod)
    outputs = mod["main"].ret_type
    found = tensor_types(outputs)[: len(model.outputs_flat)]
    if found != model.outputs_flat:  # a file does not tell the types behind what it refuses
        ours, theirs = (", ".join(map(str, types)) for types in (found, model.outputs_flat))
        message = f"The model gives {ours} in Relay's PyTorch frontend, and {theirs} in PyTorch."
        raise EngineError("operator", message, model.source.model)
    return RelayProgram(
        mod=mod,
        params={n: tvm.nd.from_dlpack(t) for n, t in model.tvm_tensors().items()},
        inputs=model.input_names,
        outputs=len(outputs.fields) if isinstance(outputs, tvm.ir.TupleType) else 1,
        updates=tuple(trace.updates),
        no_gradient=refused_gradient(model, *_NO_GRADIENT),
        buffers=tuple(model.buffers),
        masks=masks,
        orders=tuple(d.order for d in draws if not d.draw),
        provenance={span_key(o): o.origin for o in model.flat.origins.values()},
    )


def _span(name: str) -> Any:
    return tvm.relay.Span(tvm.relay.SourceName(name), 0, 0, 0, 0)


@contextmanager
def _mended() -> Iterator[None]:
    """Let TVM's frontend know bfloat16, and keep the dtypes of constants."""
    theirs_wrap, theirs_type = tvm_frontend._wrap_const, tvm_frontend._convert_data_type
    theirs_number = tvm_frontend._convert_dtype_value

    def wrap_const(value: Any) -> Any:
        # TVM makes float32 and int32 of float64 and int64 arrays.
        is_array = isinstance(value, np.ndarray)
        return relay.const(value, str(value.dtype)) if is_array else theirs_wrap(value)

    def data_type(name: str | None, default_dtype: str | None = None) -> Any:
        half = name is not None and name.lower() in ("bfloat16", "torch.bfloat16")
        return "bfloat16" if half else theirs_type(name, default_dtype)

    def dtype_value(number: int | None) -> Any:
        return "bfloat16" if number == BFLOAT16 else theirs_number(number)

    ours: dict[str, Any] = {
        "_convert_data_type": data_type,
        "_convert_dtype_value": dtype_value,
        "_wrap_const": wrap_const,
    }
    with patch.multiple(tvm_frontend, **ours):
        yield
