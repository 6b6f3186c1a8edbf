"""A Relay module as a program, whichever file it came from."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import tvm
from tvm import relay

from relascope.core.errors import EngineError
from relascope.core.graph import TensorType
from relascope.engine.files.program_file import check_params
from relascope.engine.relay.draw.to_graph import tensor_types
from relascope.engine.server.program_model import Imported, of_module
from relascope.passes.relay.ir.program import RelayProgram

_HINT = "Give the module as it was before it was compiled."


def imported(mod: Any, params: Mapping[str, Any], name: str) -> Imported:
    """A typed module as a program. `params` are those of its arguments that have a value; `name` is
    the file's."""
    main = mod["main"]
    kinds = {str(p.name_hint): _tensor(p, name) for p in main.params}
    if len(kinds) < len(main.params):
        raise EngineError("file", f'Two arguments of "main" in {name} have the same name.', name)
    check_params(params, kinds, name)
    order = sorted(kinds, key=lambda n: n in params)
    if order != list(kinds):  # passes take inputs first
        variables = {str(p.name_hint): p for p in main.params}
        arguments = [variables[n] for n in order]
        mod["main"] = relay.Function(arguments, main.body, main.ret_type, attrs=main.attrs)
        mod = relay.transform.InferType()(mod)
    result = mod["main"].ret_type
    parts = result.fields if isinstance(result, tvm.ir.TupleType) else [result]
    if not all(isinstance(part, tvm.ir.TensorType) for part in parts):
        message = f'"main" in {name} returns {result}, not a tensor or a tuple of tensors.'
        raise EngineError("file", message[:400], name, _HINT)
    program = partial(RelayProgram, mod)
    return of_module(kinds, params, tensor_types(result), program, tvm.nd.array)


def _tensor(param: Any, name: str) -> TensorType:
    said, kind = str(param.name_hint), param.checked_type
    kinds = tensor_types(kind)
    if not isinstance(kind, tvm.ir.TensorType) or len(kinds) != 1:
        message = f"The argument {said} of {name} is {kind}, not a tensor."
        raise EngineError("input", message, said, "Make its tensors separate arguments.")
    if any(not isinstance(d, int) for d in kinds[0].shape):
        message = f"The argument {said} of {name} leaves sizes open: {kinds[0]}."
        example = "x".join(str(d) if isinstance(d, int) else "1" for d in kinds[0].shape)
        hint = f"Give them as an input, such as {said}={example}:{kinds[0].dtype}."
        raise EngineError("input", message, said, hint)
    return kinds[0]
