"""From a traced PyTorch model to Relay.

TVM's frontend (`relay.frontend.from_pytorch`) converts the operators. This file names arguments as
PyTorch does, notes every node's origin, and mends or refuses what that frontend silently changes
(`engine.relay.frontend.converters`).

A node's span has a source name `scope|operator|ordinal`: the module's path, TorchScript's operator,
and its place in PyTorch's order of execution, as `attention.self.query|aten::linear|12`.
`RelayProgram.provenance` maps it to (scope, operator).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import tvm
from torch.torch_version import TorchVersion
from tvm import relay
from tvm.relay.frontend import pytorch as tvm_frontend

from relascope.core.errors import EngineError
from relascope.engine.protocol.session import Progress
from relascope.engine.pytorch.flat_trace import FlatTrace, TraceOrigin
from relascope.engine.pytorch.in_place import check_in_place
from relascope.engine.pytorch.inputs import tensor_type
from relascope.engine.pytorch.known_operators import in_known_operators
from relascope.engine.pytorch.model import Model
from relascope.engine.pytorch.operators.edges import refused_gradient
from relascope.engine.pytorch.trace_to_fx import BFLOAT16, note_types
from relascope.engine.pytorch.unlike import note_updates, unconverted
from relascope.engine.relay.draw.to_graph import tensor_types
from relascope.engine.relay.frontend.converters import Converter
from relascope.passes.relay.ir.program import RelayProgram

_NO_GRADIENT = ("acosh", "arccosh", "layer_norm", "logcumsumexp", "native_layer_norm")


def import_model(model: Model, progress: Progress) -> RelayProgram:
    """Convert a traced model to a typed Relay module.

    "main" takes the model's inputs, then the parameters and buffers that the trace reads, in
    PyTorch's order and by its names, then what operators draw but for dropouts. It returns the
    outputs, then the new values of buffers that a run changes.

    Raises:
        EngineError: kind "operator": an operator that Relay does not know, or one whose meaning
            would be changed; names the operator and its module.
    """
    progress(0.0, "converting operators to Relay")
    check_in_place(model.flat, model.buffers, model.note)
    if isinstance(model.module, torch.jit.ScriptModule):
        note_types(model)
    flat = in_known_operators(model, Converter(model, {}, None, "", False, True).knows, "Relay")
    tensors = {**model.parameters, **model.buffers}
    kinds = [tensor_type(t) for t in (*model.inputs, *flat.tensors.values())]
    names = (*model.input_names, *flat.tensors)
    infos = [(n, (list(k.shape), k.dtype)) for n, k in zip(names, kinds, strict=True)]
    keys = {n: f"{o.scope}|{o.operator}|{o.ordinal}" for n, o in flat.origins.items()}
    with _ours_inside_tvm(model, flat, keys) as converters:
        # A plain graph: parameters are inputs of it already, by their own names and in our order.
        graph = SimpleNamespace(graph=flat.graph)
        dtype = str(torch.get_default_dtype()).removeprefix("torch.")
        options = {"default_dtype": dtype, "preserve_pytorch_scopes": True}
        try:
            mod, _ = relay.frontend.from_pytorch(graph, infos, **options)
        except EngineError:
            raise
        except Exception as wrong:  # TVM's converters raise anything; these know no operator
            whole = TraceOrigin("", model.source.model, -1)
            raise unconverted("Relay", "the model", whole, wrong) from wrong
    updates = tuple(converters[-1].updates)
    note_updates(model, updates)
    progress(0.8, "inferring types")
    variables = {p.name_hint: p for p in mod["main"].params}
    inputs = zip(model.input_names, kinds, strict=False)
    arguments = [variables.get(n) or relay.var(n, shape=k.shape, dtype=k.dtype) for n, k in inputs]
    masks = tuple(m for m in converters[-1].masks if m.name in variables)
    names = (*tensors, *(m.name for m in masks))
    mod = _taking(mod, [*arguments, *(variables[n] for n in names if n in variables)])
    outputs, used = mod["main"].ret_type, {n: t for n, t in tensors.items() if n in variables}
    found = tensor_types(outputs)[: len(model.outputs_flat)]
    if found != model.outputs_flat:  # a file does not tell the types behind what it refuses
        ours, theirs = (", ".join(map(str, types)) for types in (found, model.outputs_flat))
        message = f"Relay's PyTorch frontend makes a model of {ours}, and PyTorch {theirs}."
        raise EngineError("operator", message, model.source.model)
    return RelayProgram(
        mod=mod,
        params={n: tvm.nd.from_dlpack(t.detach().cpu().clone()) for n, t in used.items()},
        inputs=model.input_names,
        outputs=len(outputs.fields) if isinstance(outputs, tvm.ir.TupleType) else 1,
        updates=updates,
        no_gradient=refused_gradient(model, *_NO_GRADIENT),
        buffers=tuple(n for n in model.buffers if n in variables),
        masks=masks,
        orders=tuple(draw.order for _, draw in model.flat.draws() if not draw.draw),
        provenance={k: (o.scope, o.operator) for n, o in flat.origins.items() for k in [keys[n]]},
    )


def _taking(mod: tvm.IRModule, arguments: list[Any]) -> tvm.IRModule:
    """The module, typed, with the arguments of "main" in this order."""
    made, variables = mod["main"], {a.name_hint: a for a in arguments}
    # Marking a node with its origin copies a variable that the node reads as it is.
    copies = {p: variables[p.name_hint] for p in made.params}
    mod["main"] = relay.Function(arguments, relay.bind(made.body, copies))
    return relay.transform.InferType()(mod)


class _LatePrelude:
    """TVM's library of list functions, loaded when it is first used: traces rarely do."""

    def __init__(self, theirs: Any, mod: Any) -> None:
        self._theirs, self._mod = theirs, mod

    def __getattr__(self, name: str) -> Any:
        loaded = self._theirs(self._mod)
        self.__dict__.update(vars(loaded))
        return getattr(loaded, name)


@contextmanager
def _ours_inside_tvm(
    model: Model, flat: FlatTrace, keys: dict[str, str]
) -> Iterator[list[Converter]]:
    """Let TVM's frontend use our namer and converter for this trace.

    Yields:
        The converters that were made, the last of which converts the model.
    """

    class Namer(tvm_frontend.NodeNamer):
        """Names a node by its key. The debug names of its results are what tells the node."""

        def get_node_source_name(self, node: Any) -> str:
            name = node.outputsAt(0).debugName()
            return keys.get(name) or name.rpartition("#")[0]

        def get_node_output_name(self, node_src_name: str, index: int) -> str:
            # What an operator was written with bears its key, so the key and an index do not tell.
            return f"{node_src_name}#{self.increment_counter('')}"

    origins = {key: flat.origins[name] for name, key in keys.items()}
    made: list[Converter] = []

    def converter(*args: Any, **kwargs: Any) -> Converter:
        made.append(Converter(model, origins, *args, **kwargs))
        return made[-1]

    theirs_wrap, theirs_type = tvm_frontend._wrap_const, tvm_frontend._convert_data_type
    theirs_number = tvm_frontend._convert_dtype_value

    def wrap_const(value: Any) -> Any:
        # TVM makes float32 and int32 of float64 and int64 arrays when it is not told.
        is_array = isinstance(value, np.ndarray)
        return relay.const(value, str(value.dtype)) if is_array else theirs_wrap(value)

    def data_type(name: str | None, default_dtype: str | None = None) -> Any:
        half = name is not None and name.lower() in ("bfloat16", "torch.bfloat16")
        return "bfloat16" if half else theirs_type(name, default_dtype)

    def dtype_value(number: int | None) -> Any:
        return "bfloat16" if number == BFLOAT16 else theirs_number(number)

    ours = {
        "_convert_data_type": data_type,
        "_convert_dtype_value": dtype_value,
        "PytorchScopePreservingNamer": Namer,
        "PyTorchOpConverter": converter,
        "_wrap_const": wrap_const,
        # TVM's asks distutils, which Python 3.12 no longer has.
        "is_version_greater_than": lambda version: TorchVersion(torch.__version__) > version,
        "Prelude": partial(_LatePrelude, tvm_frontend.Prelude),
    }
    theirs = {name: getattr(tvm_frontend, name) for name in ours}
    try:
        for name, value in ours.items():
            setattr(tvm_frontend, name, value)
        yield made
    finally:
        for name, value in theirs.items():
            setattr(tvm_frontend, name, value)
