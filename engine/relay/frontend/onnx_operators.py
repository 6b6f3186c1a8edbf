"""ONNX operators that TVM's importer for Relay has for older opsets only, or fails on.

Each is called as `made(inputs, attributes)`: inputs are Relay expressions, None where left out.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from tvm import relay
from tvm.relay.frontend.common import fold_constant, infer_shape

_Made = Callable[[Any, Mapping[str, Any]], Any]


def _value(of: Any) -> np.ndarray:
    """The value of an input that is known at import. Raises ValueError for others."""
    folded = fold_constant(of)
    if not isinstance(folded, relay.Constant):
        raise ValueError("an input that determines shapes is not constant")
    return np.asarray(folded.data.numpy())


def _given(inputs: Any, place: int) -> Any:
    return inputs[place] if place < len(inputs) else None


def _reduced(reduce: Callable[..., Any], inputs: Any, attrs: Mapping[str, Any]) -> Any:
    """A reduction over axes of an attribute or the second input, else all; `reduce` takes the
    tensor, its axes, and whether they stay."""
    data, axes = inputs[0], attrs.get("axes")
    if axes is None and _given(inputs, 1) is not None:
        axes = _value(inputs[1]).reshape(-1).tolist()
    if not axes:
        axes = () if attrs.get("noop_with_empty_axes") else range(len(infer_shape(data)))
    axes, keep = [int(a) for a in axes], bool(attrs.get("keepdims", 1))
    if axes:
        return reduce(data, axes, keep)
    return reduce(relay.expand_dims(data, 0), [0], False)  # of each element alone


def _shift(inputs: Any, attrs: Mapping[str, Any]) -> Any:
    left = attrs["direction"] == b"LEFT"
    return (relay.left_shift if left else relay.right_shift)(*inputs)


def _split(inputs: Any, attrs: Mapping[str, Any]) -> Any:
    data, axis = inputs[0], int(attrs.get("axis", 0))
    sizes, count = attrs.get("split"), int(attrs["tvm_custom"]["num_outputs"])
    if sizes is None and _given(inputs, 1) is not None:
        sizes = _value(inputs[1]).reshape(-1)
    if sizes is None:
        sizes = [(-(-int(infer_shape(data)[axis]) // count))] * (count - 1)
    else:
        sizes = sizes[:-1]
    if count == 1:
        return data
    return relay.split(data, [int(s) for s in np.cumsum(sizes)], axis)


def _pad(inputs: Any, attrs: Mapping[str, Any]) -> Any:
    data, mode = inputs[0], attrs.get("mode", b"constant").decode()
    if mode not in ("constant", "edge", "reflect"):
        raise ValueError(f"its padding mode is {mode}")
    rank = len(infer_shape(data))
    pads = attrs.get("pads")
    pads = _value(inputs[1]) if pads is None else np.array(pads)
    axes = range(rank) if _given(inputs, 3) is None else _value(inputs[3]).tolist()
    value = _given(inputs, 2)
    value = attrs.get("value", 0.0) if value is None else _value(value).reshape(-1)[0].item()
    width = [(0, 0)] * rank
    for axis, pair in zip(axes, pads.reshape(2, -1).T.tolist(), strict=True):
        width[int(axis)] = tuple(pair)
    return relay.nn.pad(data, width, value, mode)


def _triangle(inputs: Any, attrs: Mapping[str, Any]) -> Any:
    data, k = inputs[0], _given(inputs, 1)
    rows, columns = (int(s) for s in infer_shape(data)[-2:])
    upper, offset = attrs.get("upper", 1), 0 if k is None else int(_value(k).reshape(-1)[0])
    kept = np.tri(rows, columns, offset - 1 if upper else offset, dtype=bool) ^ bool(upper)
    return relay.where(relay.const(kept), data, relay.zeros_like(data))


_MODES = {"linear": "bilinear", "cubic": "bicubic"}  # as opset 20 spells them


def _grid_sample(inputs: Any, attrs: Mapping[str, Any]) -> Any:
    mode = attrs.get("mode", b"bilinear").decode()
    padding = attrs.get("padding_mode", b"zeros").decode()
    rank = len(infer_shape(inputs[0]))
    grid = relay.transpose(inputs[1], (0, rank - 1, *range(1, rank - 1)))
    layout = "NCHW" if rank == 4 else "NCDHW"
    corners = bool(attrs.get("align_corners", 0))
    mode = _MODES.get(mode, mode)
    return relay.image.grid_sample(inputs[0], grid, mode, layout, padding, corners)


def _square_sum(data: Any, axes: list[int], keep: bool) -> Any:
    return relay.sum(data * data, axes, keep)


_REDUCTIONS = ("max", "mean", "min", "prod", "sum")
OPERATORS: dict[str, _Made] = {
    "BitShift": _shift,
    "Dropout": lambda inputs, attrs: inputs[0],
    "GridSample": _grid_sample,
    "Pad": _pad,
    "ReduceL1": partial(_reduced, lambda data, axes, keep: relay.sum(relay.abs(data), axes, keep)),
    "ReduceL2": partial(_reduced, lambda *given: relay.sqrt(_square_sum(*given))),
    "ReduceLogSum": partial(_reduced, lambda *given: relay.log(relay.sum(*given))),
    "ReduceLogSumExp": partial(_reduced, relay.logsumexp),
    **{f"Reduce{n.title()}": partial(_reduced, getattr(relay, n)) for n in _REDUCTIONS},
    "ReduceSumSquare": partial(_reduced, _square_sum),
    "Split": _split,
    "Trilu": _triangle,
}
