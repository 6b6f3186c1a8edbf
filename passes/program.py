"""The value that the passes of all IRs take and return."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from relascope.core.errors import EngineError
from relascope.core.graph import NodeOrigin


@dataclass(frozen=True)
class Mask:
    """Random numbers turned into an input. A dropout's mask says, in a byte or a bit for each
    element, which elements the program keeps and scales; for other operators, it is their result.

    Args:
        rate: a dropout's probability p of a zero.
        shape, dtype: those of the operator's result.
        order: the axes of the dropout's input in memory, outermost first, in which PyTorch draws;
            by default their own order.
        draw: a tensor's method that fills it, such as "normal_", or "randperm"; "" is a dropout.
        given: that method's arguments.
        ordinal: the draw's position in the order in which PyTorch executes the model.
        bits: a dropout's input has one bit for each element: eighth i of the mask, in order of
            memory, in bit i of a row of bytes; the last eighth is filled up with 0."""

    name: str
    rate: float
    shape: tuple[int, ...]
    dtype: str
    order: tuple[int, ...] = ()
    draw: str = ""
    given: tuple[float, ...] = ()
    ordinal: int = -1
    bits: bool = False

    def in_bits(self) -> "Mask":
        """The mask with `bits`, under a name that says so."""
        return replace(self, name=f"{self.name}_bits", bits=True)

    @property
    def state(self) -> str:
        """The name of the generator's state before the draw, from which it can be repeated."""
        return f"state of {self.name}"

    @property
    def elements(self) -> int:
        """How many random numbers are drawn."""
        return prod(self.shape)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of the input."""
        return (1, -(-self.elements // 8)) if self.bits else self.shape

    @property
    def input_dtype(self) -> str:
        """The dtype of the input: a dropout's is 1 where an element stays, else 0."""
        return self.dtype if self.draw else "uint8"

    @property
    def scale(self) -> float:
        """The factor of elements that a dropout keeps: 1/(1-p), divided as PyTorch does. It is 1 if
        none is kept, because TVM simplifies NaN times a constant 0 to 0."""
        kind = np.float64 if self.dtype == "float64" else np.float32
        return float(kind(1) / kind(1 - self.rate)) if self.rate < 1 else 1.0


@dataclass(frozen=True)
class Program:
    """A typed module on its way through a pipeline. Passes return a new one.

    Args:
        mod: the module (tvm.IRModule, of the IR's own TVM); its "main" takes inputs, then
            parameters, then masks, then grad_outs.
        params: values of the parameters, by argument name, in PyTorch's order, then buffers.
        inputs: names of the model's own inputs, in order.
        outputs: number of results before gradients: the model's outputs, then `updates`.
        buffers: those of `params` that are buffers, which have no gradient.
        masks: random numbers that became arguments, in the order in which PyTorch draws them.
        orders: for each dropout that is or was active, the `order` of its mask.
        grad_outs: names of the arguments that carry the gradients of the outputs.
        gradients: after the gradient, the arguments whose gradients follow the outputs in the flat
            result tuple.
        provenance: origins by a key that the importer chooses.
        updates: buffers that a run changes, whose new values are the last of `outputs`, without
            grad_out.
        digests: by a constant's address in memory, its tensor and hash; shared by all programs of
            an import.
        no_gradient: the error to raise when the gradient is taken.
        code: names of kernels and packed functions that came with it.
        not_run: why it is shown but not run, as part of a sentence; "" if it may be run.
        tvm_passes: names of TVM's own passes that ran as steps, which a build does not repeat."""

    mod: Any
    params: Mapping[str, Any]
    inputs: tuple[str, ...]
    outputs: int
    buffers: tuple[str, ...] = ()
    masks: tuple[Mask, ...] = ()
    orders: tuple[tuple[int, ...], ...] = ()
    grad_outs: tuple[str, ...] = ()
    gradients: tuple[str, ...] = ()
    provenance: Mapping[str, NodeOrigin] = field(default_factory=dict)
    updates: tuple[str, ...] = ()
    no_gradient: EngineError | None = None
    code: tuple[str, ...] = ()
    not_run: str = ""
    tvm_passes: tuple[str, ...] = ()
    digests: dict[Any, tuple[Any, str]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def main(self) -> Any:
        return self.mod["main"]
