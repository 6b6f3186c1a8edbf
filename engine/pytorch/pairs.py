"""Complex inputs, parameters, buffers and outputs as pairs of floats: a last axis of two holds the
real and the imaginary part, in the memory of the complex tensor."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from relascope.core.errors import EngineError
from relascope.engine.pytorch.flat_trace import FlatTrace, TraceOrigin
from relascope.engine.pytorch.in_place import seen_elsewhere

_OF_PAIR, _TO_PAIR, _PLAIN = "aten::view_as_complex", "aten::view_as_real", "aten::resolve_conj"
NOTE = "Complex tensors are pairs of floats, with real and imaginary part on a last axis of 2: {}."


def as_pairs(tensor: torch.Tensor) -> torch.Tensor:
    """A complex tensor of a shape (...) as floats of (..., 2), with its gradient; others as they
    are."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def leaf(tensor: torch.Tensor) -> torch.Tensor:
    """A parameter or buffer of a module as pairs that are a leaf of autograd."""
    if not tensor.is_complex():
        return tensor
    return as_pairs(tensor.detach()).requires_grad_(tensor.requires_grad)


def take_pairs(
    flat: FlatTrace, inputs: Iterable[torch.Tensor], outputs: Sequence[torch.Tensor]
) -> tuple[str, ...]:
    """Have a trace take and return pairs, before changes in place are written as pure operators:
    autograd supports changes in place of complex tensors, but not what replaces them. Inputs and
    outputs are the model's own. Returns the names of what is pairs now: arguments, and "output 0"
    for the first output. A change in place of a complex argument is refused (kind "operator")."""
    tensors = {**dict(zip(flat.input_names, inputs, strict=True)), **flat.tensors}
    found = [name for name, tensor in tensors.items() if tensor.is_complex()]
    if not found and not any(tensor.is_complex() for tensor in outputs):
        return ()
    for made, _, _, changed in seen_elsewhere(flat) if found else ():
        if changed in found:
            origin = flat.origins[made]
            message = f"{origin.operator} changes the complex tensor {changed} in place."
            hint = "Keep real and imaginary part in a tensor of floats (torch.view_as_real)."
            raise EngineError("operator", message, origin.where, hint)
    for value, tensor in zip([*flat.graph.inputs()], tensors.values(), strict=True):
        if tensor.is_complex():
            _take(flat, value, tensor)
    end = flat.graph.return_node()
    for index, (value, tensor) in enumerate(zip([*end.inputs()], outputs, strict=True)):
        if tensor.is_complex():
            plain = flat.insert(_PLAIN, [value], end, TraceOrigin("", _PLAIN, -1, further=True))
            made = flat.insert(_TO_PAIR, [plain], end, TraceOrigin("", _TO_PAIR, -1))
            plain.inferTypeFrom(tensor.resolve_conj())
            made.inferTypeFrom(as_pairs(tensor))
            end.replaceInput(index, made)
            found.append(f"output {index}")
    flat.tensors = {name: as_pairs(tensor.detach()) for name, tensor in flat.tensors.items()}
    if flat.__dict__.pop("function", None) is not None:  # it was of the graph as it was before
        _ = flat.function
    return tuple(found)


def _take(flat: FlatTrace, value: Any, tensor: torch.Tensor) -> None:
    first = next(iter(flat.graph.nodes()), flat.graph.return_node())
    made = flat.insert(_OF_PAIR, [value], first, TraceOrigin("", _OF_PAIR, -1))
    made.inferTypeFrom(tensor)
    value.replaceAllUsesWith(made)
    made.node().replaceInput(0, value)
    value.inferTypeFrom(as_pairs(tensor.detach()))
