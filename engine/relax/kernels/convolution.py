"""Convolutions by PyTorch inside functions that TVM builds; see `engine.relax.kernels.blas`.

These are convolutions of images; transposed ones of any rank (TVM's multiplies inserted zeros,
which turns infinite weights into NaN); and the gradient of a convolution's weight, a convolution
of CNHW by IOHW, or with a group for each channel (`passes.relax.training.conv_gradient`).
"""

import functools
import math
from typing import Any

import tvm
from tvm import relax

from relascope.engine.building.executables import tensor_of
from relascope.engine.cpu_kernels import convolutions
from relascope.passes.gradients import beyond
from relascope.passes.relax import channels_last
from relascope.passes.relax.channels_last import FIRST
from relascope.passes.relax.ir.rewrite import shape

TURNED = {
    f"relax.nn.conv{rank}d_transpose": layouts
    for rank, layouts in enumerate((("NCW", "IOW"), ("NCHW", "IOHW"), ("NCDHW", "IODHW")), 1)
}
"""Transposed convolutions, and their layouts in PyTorch."""
_NAME = "relascope.convolution"
_OF_WEIGHTS = ("CNHW", "IOHW"), ("NCHW", "OIHW")
_LAST = {last: (data, weight, data) for (_, data, weight), last in channels_last.LAYOUTS.items()}
"""From layouts of data, weight and result with channels last to those with channels first."""


def dispatched(call: Any, *images: Any) -> Any:
    """PyTorch's call for a convolution; None if it has none. `call` is a typed call of any operator
    on tensors of one floating-point dtype; `images` are as in `passes.relax.channels_last.Served`.
    """
    name = str(call.op.name)
    if name != "relax.nn.conv2d" and name not in TURNED:
        return None
    attrs = call.attrs
    given = attrs.strides, attrs.dilation, attrs.padding
    strides, dilation, around = (tuple(map(int, g)) for g in given)
    padding, after = around[: len(strides)], around[len(strides) :]
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout))
    last, groups = layouts in _LAST, int(attrs.groups)
    data, weight, out = layouts = _LAST.get(layouts, layouts)
    in_groups = bool(images) or (not last and _is_of_weight_in_groups(call, groups))
    of_weight = groups == 1 if data == "CNHW" else in_groups
    # For a weight's gradient, the padding may end before the last places.
    uneven = (
        any(b > a for a, b in zip(padding, after, strict=True)) if of_weight else padding != after
    )
    if uneven or out != data:
        return None
    if name in TURNED:
        if (data, weight) != TURNED[name]:
            return None
        more = tuple(map(int, attrs.output_padding))
        options = (strides, padding, dilation, True, more, groups)
        run, text = _convolution, f"transposed {strides} {padding} {dilation} {more} {groups}"
    elif of_weight and (data, weight) in _OF_WEIGHTS and _is_even(call, padding, last):
        # The kernel's strides are the gradient's dilation, and vice versa.
        options = (dilation, padding, strides, False, (0, 0), groups)
        run, text = _weight_gradient, f"weight {dilation} {padding} {strides} {groups}"
    elif (data, weight) == ("NCHW", "OIHW") and padding == after:
        options = (strides, padding, dilation, False, (0, 0), groups)
        run, text = _convolution, f"{strides} {padding} {dilation} {groups}"
    else:
        return None
    if images and run is not _weight_gradient:
        return None
    last |= bool(images)
    symbol = f"{_NAME}{' channels-last' * last} {text}"
    tvm.register_global_func(symbol, functools.partial(run, options, last), override=True)
    return relax.op.call_dps_packed(symbol, images or tuple(call.args), call.ty)


moved = functools.partial(channels_last.moved, served=dispatched)
"""A function with channels last between its convolutions."""


def _is_of_weight_in_groups(call: Any, groups: int) -> bool:
    """Whether a convolution is, or equals, the gradient of a weight in groups: its window is larger
    than its result."""
    if str(call.op.name) in TURNED or groups == 1 or not _is_static(call):
        return False
    return math.prod(shape(call.args[1])[2:]) > math.prod(shape(call)[2:])


def _is_even(call: Any, padding: tuple[int, ...], last: bool) -> bool:
    """Whether a weight's gradient belongs to a convolution with equal padding on both sides."""
    if not _is_static(call):
        return True
    data, grad = (shape(a)[1:3] if last else shape(a)[2:] for a in call.args)
    steps = call.attrs.dilation, (*padding, *padding), call.attrs.strides
    ends = beyond(data, grad, shape(call)[2:], *steps)
    return all(0 <= end < stride for end, stride in zip(ends, call.attrs.dilation, strict=True))


def _is_static(call: Any) -> bool:
    return all(isinstance(d, tvm.tirx.IntImm) for t in (*call.args, call) for d in t.ty.shape)


def _convolution(options: convolutions.Options, last: bool, *arrays: Any) -> None:
    data, weight, out = map(tensor_of, arrays)
    if last:
        data, out = data.permute(FIRST), out.permute(FIRST)
    convolutions.convolution(data, weight, options, out)


def _weight_gradient(options: convolutions.Options, last: bool, *arrays: Any) -> None:
    data, grad, out = map(tensor_of, arrays)
    if last:
        data, grad = data.permute(FIRST), grad.permute(FIRST)
    elif (groups := options[-1]) > 1:
        parts = data.unflatten(1, (groups, -1)).permute(2, 1, 0, *range(3, data.ndim + 1))
        data, grad = parts.flatten(1, 2), grad.transpose(0, 1)
    if options[-1] > 1:
        out = out.transpose(0, 1)
    convolutions.weight_gradient(data, grad, options, out)
