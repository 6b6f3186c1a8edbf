"""Convolutions by PyTorch inside functions that TVM builds; see `engine.relax.kernels.blas`.

Known are that of images; transposed ones of any rank (TVM's multiplies inserted zeros, which makes
NaN of infinite weights); and the gradient of a convolution's weight, a convolution of layout CNHW
with kernels of layout IOHW, or of a group a channel (`passes.relax.training.conv_gradient`).
"""

import functools
import math
from typing import Any

import tvm
from tvm import relax

from relascope.engine.building.executables import tensor_of
from relascope.engine.cpu_kernels import convolutions
from relascope.passes.relax.ir.rewrite import shape
from relascope.passes.relax.training.conv_gradient import beyond

TURNED = {
    f"relax.nn.conv{rank}d_transpose": layouts
    for rank, layouts in enumerate((("NCW", "IOW"), ("NCHW", "IOHW"), ("NCDHW", "IODHW")), 1)
}
"""Transposed convolutions, and the layouts that PyTorch has."""
_NAME = "relascope.convolution"
_OF_WEIGHT = ("CNHW", "IOHW")


def dispatched(call: Any) -> Any:
    """PyTorch's call for a convolution; None where it has none. `call` is of any operator, typed,
    on tensors of one floating dtype."""
    name = str(call.op.name)
    if name != "relax.nn.conv2d" and name not in TURNED:
        return None
    attrs = call.attrs
    strides, dilation, around = map(_numbers, (attrs.strides, attrs.dilation, attrs.padding))
    padding, after = around[: len(strides)], around[len(strides) :]
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout))
    groups = int(attrs.groups)
    of_weight = groups == 1 if layouts == _OF_WEIGHT else _is_of_depthwise_weight(call, groups)
    # The padding need not reach the last places of a weight's gradient.
    uneven = (
        any(b > a for a, b in zip(padding, after, strict=True)) if of_weight else padding != after
    )
    if uneven or str(attrs.out_layout) != layouts[0]:
        return None
    if name in TURNED:
        if layouts != TURNED[name]:
            return None
        more = _numbers(attrs.output_padding)
        run = functools.partial(_convolution, (strides, padding, dilation, True, more, groups))
        text = f"transposed {strides} {padding} {dilation} {more} {groups}"
    elif of_weight and _is_even(call, padding):
        # What strides the kernel dilates the gradient, and the other way round.
        options = (dilation, padding, strides, False, (0, 0), groups)
        run = functools.partial(_weight_gradient, options)
        text = f"weight {dilation} {padding} {strides} {groups}"
    elif layouts == ("NCHW", "OIHW") and padding == after:
        run = functools.partial(_convolution, (strides, padding, dilation, False, (0, 0), groups))
        text = f"{strides} {padding} {dilation} {groups}"
    else:
        return None
    symbol = f"{_NAME} {text}"
    tvm.register_global_func(symbol, run, override=True)
    return relax.op.call_dps_packed(symbol, tuple(call.args), call.ty)


def _is_of_depthwise_weight(call: Any, groups: int) -> bool:
    """Whether a convolution is the gradient of a weight with a group for each channel, or the same
    as one: its window is larger than its result."""
    data, window, result = (a.ty.shape for a in (*call.args, call))
    if not all(isinstance(d, tvm.tirx.IntImm) for d in (*data, *window, *result)):
        return False
    if str(call.op.name) in TURNED or str(call.attrs.data_layout) != "NCHW":
        return False
    (batch, channels, *_), (out, _, *of_window) = map(_numbers, (data, window))
    large = math.prod(of_window) > math.prod(_numbers(result)[2:])
    return batch == 1 and 1 < groups == channels == out and large


def _is_even(call: Any, padding: tuple[int, ...]) -> bool:
    """Whether a weight's gradient is of a convolution with as much padding behind as before."""
    (data, grad), attrs = call.args, call.attrs
    if not all(isinstance(d, tvm.tirx.IntImm) for t in (data, grad, call) for d in t.ty.shape):
        return True
    steps = attrs.dilation, (*padding, *padding), attrs.strides
    ends = beyond(data, grad, shape(call), *steps)
    return all(0 <= end < stride for end, stride in zip(ends, attrs.dilation, strict=True))


def _numbers(values: Any) -> tuple[int, ...]:
    return tuple(int(v) for v in values)


def _convolution(options: convolutions.Options, data: Any, weight: Any, out: Any) -> None:
    convolutions.convolution(tensor_of(data), tensor_of(weight), options, tensor_of(out))


def _weight_gradient(options: convolutions.Options, data: Any, grad: Any, out: Any) -> None:
    by_result, of_weight = tensor_of(grad), tensor_of(out)
    if options[-1] > 1:  # a group has one channel
        by_result, of_weight = by_result.transpose(0, 1), of_weight.transpose(0, 1)
    convolutions.weight_gradient(tensor_of(data), by_result, options, of_weight)
