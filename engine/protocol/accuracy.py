"""How far our tensors are from PyTorch's."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """The errors within one tensor; relative ones use the same scale as its largest error. Means
    and medians are over its elements; `nans` and `infinities` count its elements that are so where
    PyTorch's are not."""

    mean_abs: float = 0.0
    mean_rel: float = 0.0
    median_abs: float = 0.0
    median_rel: float = 0.0
    nans: int = 0
    infinities: int = 0


@dataclass(frozen=True)
class Comparison:
    """One tensor of ours against PyTorch's. `name` is "output 0", "gradient of" an input or
    parameter, or "updated" and a buffer that a run of the model changes, such as a running mean.
    `max_abs` is the largest absolute difference, and `max_rel` that over the tensor's scale, for a
    gradient at least a thousandth of the largest one's: the gradient of an attention key's bias is
    only rounding. `scale` is the largest magnitude in PyTorch's tensor."""

    name: str
    max_abs: float
    max_rel: float
    scale: float
    dtype: str
    spread: Spread = Spread()


WHOLE = "the function built whole"
"""The counterpart of a node of a split program that has none in PyTorch: the joint program's own.
Equal values say that splitting changed nothing, not that they are right."""

AS_IMPORTED = ", as imported"
"""Ends the counterparts of a program that came without PyTorch: nodes of its own."""


@dataclass(frozen=True)
class NodeError:
    """One node's tensor against its counterpart in PyTorch. `max_abs` and `max_rel` are as in a
    `Comparison`. `counterpart` is what it was compared with: "aten::linear in
    encoder.layer.0.output.dense", "gradient of" an input, parameter or operator's result, or
    `WHOLE`; of a program that came without PyTorch "nn.relu, as imported" or "output 0, as
    imported"."""

    id: str
    max_abs: float
    max_rel: float
    counterpart: str
    spread: Spread = Spread()
