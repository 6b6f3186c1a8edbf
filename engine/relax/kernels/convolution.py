"""Convolutions by PyTorch inside functions that TVM builds; see `engine.relax.kernels.blas`.

Known are that of images; transposed ones of any rank (TVM's multiplies inserted zeros, which makes
NaN of infinite weights); and the gradient of a convolution's weight, a convolution of layout CNHW
with kernels of layout IOHW (`passes.relax.training.conv_gradient`).
"""

import functools
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
    of_weight = layouts == ("CNHW", "IOHW")  # whose last places the padding need not reach
    uneven = (
        any(b > a for a, b in zip(padding, after, strict=True)) if of_weight else padding != after
    )
    if uneven or str(attrs.out_layout) != layouts[0]:
        return None
    groups = int(attrs.groups)
    if name in TURNED:
        if layouts != TURNED[name]:
            return None
        more = _numbers(attrs.output_padding)
        run = functools.partial(_convolution, (strides, padding, dilation, True, more, groups))
        text = f"transposed {strides} {padding} {dilation} {more} {groups}"
    elif layouts == ("NCHW", "OIHW"):
        run = functools.partial(_convolution, (strides, padding, dilation, False, (0, 0), groups))
        text = f"{strides} {padding} {dilation} {groups}"
    elif of_weight and groups == 1 and _is_even(call, padding):
        # What strides the kernel dilates the gradient, and the other way round.
        options = (dilation, padding, strides, False, (0, 0), 1)
        run = functools.partial(_weight_gradient, options)
        text = f"weight {dilation} {padding} {strides}"
    else:
        return None
    symbol = f"{_NAME} {text}"
    tvm.register_global_func(symbol, run, override=True)
    return relax.op.call_dps_packed(symbol, tuple(call.args), call.ty)


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
    convolutions.weight_gradient(tensor_of(data), tensor_of(grad), options, tensor_of(out))
