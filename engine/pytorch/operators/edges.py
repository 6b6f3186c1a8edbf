"""Gradients that are refused: unlike PyTorch's at some values, or too long to build."""

import math
from collections.abc import Callable
from typing import Any

from relascope.core.errors import EngineError
from relascope.engine.pytorch.model import Model

_ANY = (
    "_softmax_backward_data angle as_strided_scatter copysign cumprod digamma ldexp "
    "lgamma logit mvlgamma nanmean renorm special_digamma special_entr special_gammaln "
    "special_logit special_multigammaln special_psi"
)


def _extreme(node: Any) -> bool:
    given = [v.toIValue() for v in node.inputs()]
    return given[-1] is False and ("amin" in given or "amax" in given)


def _root(node: Any) -> bool:
    orders = (v.toIValue() for v in node.inputs())
    return any(isinstance(p, float) and 0 < p < 1 for p in orders)


def _of_one_element(node: Any) -> bool:
    size = node.inputsAt(1)
    given = size.toIValue() or [v.toIValue() for v in size.node().inputs()]
    return all(d == 1 for d in given)


_IN_ONE_IR = dict.fromkeys(("layer_norm", "native_layer_norm"), _of_one_element)
"""For operators that are refused in one IR alone: which nodes are meant, if not all."""

_UNLIKE_PYTORCHS = "would differ from PyTorch's at some values"

_LONG = ("logcumsumexp",)
"""Those whose gradients are right, but take minutes to build."""

_UNLIKE: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(_ANY.split(), lambda node: True),
    **dict.fromkeys(
        ("clamp", "clip"), lambda node: all(v.type().kind() == "TensorType" for v in node.inputs())
    ),
    "cdist": lambda node: _root(node) or any(v.toIValue() == math.inf for v in node.inputs()),
    **dict.fromkeys(("index_reduce", "scatter_reduce"), _extreme),
    **dict.fromkeys(("linalg_norm", "linalg_vector_norm", "norm"), _root),
}
"""Operators that are composed here and whose gradients differ at zeros, at bounds, or for NaN; and
which of their nodes in a trace are meant."""


def refused_gradient(model: Model, *others: str) -> EngineError | None:
    """The error (kind "operator", with the module) if a gradient is taken through an operator whose
    gradient is not PyTorch's; None if all are right. `others` are such in one IR alone."""
    flat, given = model.flat, model.flat.arguments.items()
    reached = {v.debugName() for n, v in given if n not in model.buffers and _floating(v)}
    for node in flat.graph.nodes():
        kind = node.kind().removeprefix("aten::").removesuffix("_")
        if kind == "detach" or not any(v.debugName() in reached for v in node.inputs()):
            continue
        meant = _IN_ONE_IR.get(kind, lambda node: True) if kind in others else _UNLIKE.get(kind)
        if meant is not None and meant(node):
            why = "would take minutes to build" if kind in _LONG else _UNLIKE_PYTORCHS
            message = f"The gradient of {kind} {why}."
            hint = "Write it with other operators, or detach its inputs."
            return EngineError("operator", message, flat.origin(node).where, hint)
        reached.update(v.debugName() for v in node.outputs() if _floating(v))
    return None


def _floating(value: Any) -> bool:
    """Whether a value may hold floating-point numbers, as anything but a tensor may."""
    dtype = value.type().dtype() if value.type().kind() == "TensorType" else None
    return dtype is None or bool(dtype.is_floating_point)
