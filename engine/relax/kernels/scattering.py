"""Scattering by PyTorch on a GPU, where TVM's kernels would loop on the host; see `blas`."""

import functools
from collections.abc import Callable
from typing import Any

import torch
import tvm
from tvm import relax

from relascope.engine.building.executables import tensor_of

_REDUCING = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def dispatched(call: Any) -> Any:
    """PyTorch's call for a scattering operator; None for any other."""
    name, attrs = str(call.op.name).removeprefix("relax."), call.attrs
    run: Callable[..., None]
    options: list[Any]
    if name == "grad.take_backward":
        options = [None if attrs.axis is None else int(attrs.axis)]
        run = _take_backward
    elif name == "scatter_elements":
        options, run = [int(attrs.axis), str(attrs.reduction)], _scatter_elements
    elif name == "scatter_nd" and str(attrs.reduction) in ("update", "add"):
        options, run = [str(attrs.reduction) == "add"], _scatter_nd
    elif name == "index_put":
        options, run = [bool(attrs.accumulate)], _index_put
    else:
        return None
    symbol = " ".join(["relascope", name, *map(str, options)])
    tvm.register_global_func(symbol, functools.partial(run, *options), override=True)
    given = [a.fields if isinstance(a, relax.Tuple) else [a] for a in call.args]
    return relax.op.call_dps_packed(symbol, tuple(a for part in given for a in part), call.ty)


def _take_backward(axis: int | None, grad: Any, like: Any, places: Any, out: Any) -> None:
    """The gradient of taking rows along an axis, or elements of the whole tensor; `like` has the
    shape of that tensor."""
    result, added = tensor_of(out).zero_(), tensor_of(grad)
    if axis is None:
        result, added, axis = result.view(-1), added.reshape(-1), 0
    result.index_add_(axis, tensor_of(places).long(), added)


def _scatter_elements(axis: int, by: str, data: Any, at: Any, updates: Any, out: Any) -> None:
    result, places = tensor_of(out).copy_(tensor_of(data)), tensor_of(at).long()
    places = torch.where(places < 0, places + result.shape[axis], places)
    if by == "update":
        result.scatter_(axis, places, tensor_of(updates))
    else:
        result.scatter_reduce_(axis, places, tensor_of(updates), _REDUCING[by])


def _scatter_nd(accumulate: bool, data: Any, at: Any, updates: Any, out: Any) -> None:
    places = tensor_of(at).long().unbind(-1)
    result = tensor_of(out).copy_(tensor_of(data))
    result.index_put_(places, tensor_of(updates), accumulate=accumulate)


def _index_put(accumulate: bool, data: Any, *given: Any) -> None:
    *places, values, out = map(tensor_of, given)
    result = out.copy_(tensor_of(data))
    result.index_put_([p.long() for p in places], values, accumulate=accumulate)
