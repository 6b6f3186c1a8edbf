"""A Relax module from any file as a program."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import tvm
from tvm import relax

from relascope.core.errors import lines_of
from relascope.core.graph import TensorType
from relascope.engine.files.program_file import check_params
from relascope.engine.relax.draw.to_graph import tensor_types
from relascope.engine.server.program_model import Imported, of_module
from relascope.passes.relax.ir.program import RelaxProgram

OPEN = 3
"""An open size in a run, unless an input sets it."""


def imported(mod: Any, params: Mapping[str, Any], name: str) -> Imported:
    """A module as a program. `params` are the arguments' values that the file `name` has."""
    main = mod["main"]
    sizes = {str(v.name): OPEN for p in main.params for v in _open_sizes(p)}
    closed, not_run = main, ""
    if sizes:
        try:
            closed = relax.transform.BindSymbolicVars(sizes, "main")(mod)["main"]
        except Exception as unfit:  # TVM raises anything on sizes that do not fit
            not_run = f"it cannot run with all open sizes set to {OPEN}: {lines_of(unfit)[0]}"
    known = {str(p.name): p for p in closed.params}
    kinds: dict[str, TensorType] = {}
    for param in main.params:
        said = str(param.name)
        if isinstance(param.ty, relax.TensorType):
            kinds[said] = _tensor(known.get(said, param))
        else:
            not_run = f"its argument {said} is {param.ty}, not a tensor"
    check_params(params, kinds, name)
    order = sorted(kinds, key=lambda n: n in params)
    if order != list(kinds) and not not_run:  # passes take inputs first
        variables = {str(p.name): p for p in main.params}
        arguments = [variables[name] for name in order]
        main = relax.Function(arguments, main.body, main.ret_ty, main.is_pure, main.attrs)
        mod = tvm.IRModule({**others(mod, mod["main"]), "main": main})
        mod = relax.transform.Normalize()(mod)
    result = closed.ret_ty
    parts = result.fields if isinstance(result, relax.TupleType) else [result]
    if strange := [str(p) for p in parts if not isinstance(p, relax.TensorType)]:
        not_run = f"it returns {strange[0]}, not a tensor or a tuple of tensors"
    notes = []
    if sizes:
        text = f"Open sizes: {', '.join(sizes)}. In a run each is {OPEN}, unless an input sets it."
        notes.append(text)
    if guessed := [n for p in main.params if (n := str(p.name)) in kinds and _says_less(p)]:
        text = f"The types of {', '.join(guessed)} are left open: they are "
        notes.append(text + f"{', '.join(str(kinds[n]) for n in guessed)} in a run.")
    if not_run:
        notes.append(f"It can be shown and stepped, but not run: {not_run}.")
    program = partial(RelaxProgram, mod, not_run=not_run)
    return of_module(kinds, params, tensor_types(result), program, tvm.runtime.tensor, notes)


def others(mod: Any, main: Any) -> dict[Any, Any]:
    if isinstance(mod, relax.Function):
        return {}
    return {v: f for v, f in mod.functions.items() if not f.same_as(main)}


def _open_sizes(param: Any) -> list[Any]:
    shape = getattr(param.ty, "shape", None)
    sizes = shape.values if isinstance(shape, relax.ShapeExpr) else ()
    return [size for size in sizes if isinstance(size, tvm.tirx.Var)]


def _says_less(param: Any) -> bool:
    """Whether an argument's type leaves out the dtype or the shape."""
    return param.ty.dtype is None or not isinstance(param.ty.shape, relax.ShapeExpr)


def _tensor(param: Any) -> TensorType:
    """The type of a tensor in a run: an open size is `OPEN`, an open dtype float32."""
    (kind,) = tensor_types(param.ty)
    sizes = kind.shape if int(param.ty.ndim) >= 0 else (OPEN, OPEN)
    dtype = "float32" if param.ty.dtype is None else kind.dtype
    return TensorType(tuple(d if isinstance(d, int) else OPEN for d in sizes), dtype)
