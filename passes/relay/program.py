"""The value that Relay passes take and return: a module and what is known about its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import tvm


@dataclass(frozen=True)
class Mask:
    """A dropout turned into a mask input. The mask holds 0 and 1/(1-p), as PyTorch scales it.

    Args:
        name: of the function's argument.
        rate: the probability p of a zero.
        shape, dtype: of the mask.
    """

    name: str
    rate: float
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class RelayProgram:
    """A typed Relay module on its way through a pipeline. Passes return a new one.

    Args:
        mod: the module; its "main" takes inputs, then parameters, then masks, then grad_outs.
        params: values of the parameters, by argument name, in PyTorch's order, then buffers.
        inputs: names of the model's own inputs, in order.
        masks: dropout masks that became arguments, in the order in which PyTorch draws them.
        grad_outs: names of the arguments that carry the gradients of the outputs.
        outputs: how many outputs the model has.
        buffers: those of `params` that are buffers, which have no gradient.
        gradients: after the gradient, the arguments whose gradients follow the outputs in the
            (then flat) result tuple; empty before.
        provenance: (scope, framework operator) by a handle of the importer's own, see
            `engine.relay.frontend`; spans carry the keys where TVM keeps spans.
    """

    mod: tvm.IRModule
    params: Mapping[str, tvm.nd.NDArray]
    inputs: tuple[str, ...]
    outputs: int
    buffers: tuple[str, ...] = ()
    masks: tuple[Mask, ...] = ()
    grad_outs: tuple[str, ...] = ()
    gradients: tuple[str, ...] = ()
    provenance: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def main(self) -> Any:
        """The function "main" (tvm.relay.Function)."""
        return self.mod["main"]
