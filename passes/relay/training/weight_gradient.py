"""`nn.conv2d_backward_weight`, the gradient of a convolution's weight, as operators with kernels.

TVM's own legalisation runs one group per channel and image, needs types that building drops, and is
wrong for groups of several channels, which `of` writes out.
"""

import functools
from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relay
from tvm.topi.nn.utils import get_pad_tuple

NAME = "nn.conv2d_backward_weight"


def of(grad: Any, data: Any, sizes: Sequence[Sequence[int]], attrs: Any) -> Any:
    """The gradient of a weight. `sizes` are the shapes of `grad`, `data` and the weight; `attrs`
    are the convolution's."""
    types = [relay.TensorType(s) for s in sizes]
    groups, kernel = int(attrs.groups), sizes[2]
    if groups not in (1, sizes[1][1]):
        return unfolded(attrs, (grad, data), types)
    about = {n: attrs[n] for n in ("strides", "padding", "dilation", "groups")}
    return relay.nn.conv2d_backward_weight(
        grad, data, channels=kernel[0], kernel_size=kernel[2:], **about
    )


@functools.cache
def register() -> None:
    """Let TVM legalise it by `unfolded`, except on a CPU with a library (see
    `kernels.torch_convolution`)."""
    tvm.ir.register_op_attr(NAME, "FTVMLegalize", _legalize, level=11)


def _legalize(attrs: Any, inputs: Any, types: Any) -> Any:
    target = tvm.target.Target.current()
    served = target is not None and target.libs and "cpu" in target.keys
    return None if served else unfolded(attrs, inputs, types)


def unfolded(attrs: Any, inputs: Sequence[Any], types: Sequence[Any]) -> Any:
    """The products of the gradient with the data under each element of the kernel, as one matmul of
    (out channels, batch * places) with (kernel elements * in channels, batch * places). `attrs` are
    the operator's; `inputs` are the result's gradient (batch, out channels, rows, columns) and the
    data (batch, channels, rows, columns); `types` are those of both and of the weight, (out
    channels, channels per group, height, width)."""
    grad, data = inputs
    sizes = [[int(d) for d in t.shape] for t in types]
    (_, _, rows, columns), (batch, channels, tall, wide), (out, _, height, width) = sizes
    groups = int(attrs.groups)
    top, left, bottom, right = map(
        int, get_pad_tuple([int(p) for p in attrs.padding], (height, width))
    )
    down, across = (int(s) for s in attrs.strides)
    step_down, step_across = (int(d) for d in attrs.dilation)
    around = ((0, 0), (0, 0), (top, bottom), (left, right))
    padded = relay.nn.pad(data, around) if any((top, left, bottom, right)) else data
    size = [batch, channels, tall + top + bottom, wide + left + right]
    by_row = _windows(padded, 2, size, (height, step_down), (rows, down))
    size = [height, batch, channels, rows, size[3]]
    laid = _windows(by_row, 4, size, (width, step_across), (columns, across))
    # (width, height, batch, channels, rows, columns) to (groups, channels and places, the rest)
    apart = [width, height, batch, groups, channels // groups, rows * columns]
    laid = relay.reshape(
        relay.transpose(relay.reshape(laid, apart), [3, 4, 1, 0, 2, 5]),
        [groups, channels // groups * height * width, batch * rows * columns],
    )
    flat = relay.reshape(grad, [batch, groups, out // groups, rows * columns])
    flat = relay.reshape(
        relay.transpose(flat, [1, 2, 0, 3]), [groups, out // groups, batch * rows * columns]
    )
    if groups == 1:
        patches_in = relay.reshape(laid, [channels * height * width, -1])
        by_weight = relay.nn.dense(relay.reshape(flat, [out, -1]), patches_in)
    else:
        by_weight = relay.nn.batch_matmul(flat, laid)
    return relay.reshape(by_weight, sizes[2])


def _windows(data: Any, axis: int, size: Sequence[int], kernel: Any, places: Any) -> Any:
    """The data under each element of a kernel along one axis, with the elements as a new first
    axis. `size` is the data's shape; `kernel` are the number of elements along this axis and their
    distance; `places` the number of places of the kernel and their distance."""
    (elements, apart), (count, step) = kernel, places
    if elements == step and apart == 1:  # side by side
        size = [*size[:axis], count * step, *size[axis + 1 :]]
        data = relay.strided_slice(data, [0] * len(size), size)
        order = [axis + 1, *(a for a in range(len(size) + 1) if a != axis + 1)]
        size = [*size[:axis], count, step, *size[axis + 1 :]]
        return relay.transpose(relay.reshape(data, size), order)
    slices = []
    for begin in range(0, elements * apart, apart):
        end = begin + (count - 1) * step + 1
        slices.append(relay.strided_slice(data, [begin], [end], [step], axes=[axis]))
    return relay.stack(slices, 0)
