"""The gradient of a 2D convolution."""

from collections.abc import Sequence
from typing import Any

from tvm.relax import op

from relascope.core.errors import no_gradient
from relascope.passes.relax.ir.rewrite import shape


def conv2d(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
    """The transposed convolution for the data, and `of_weight`."""
    attrs = call.attrs
    data, weight = call.args
    if str(attrs.data_layout) != "NCHW" or str(attrs.kernel_layout) != "OIHW":
        known = "is known in the layouts NCHW and OIHW only"
        raise no_gradient("nn.conv2d", known, "take the gradient before layouts are changed")
    grad, groups = builder.normalize(grad), int(attrs.groups)
    options = (_numbers(attrs.strides), _numbers(attrs.padding), _numbers(attrs.dilation), groups)
    strides, padding, dilation, _ = options
    by_data = op.nn.conv2d_transpose(
        grad,
        _dilated(weight, *dilation),
        strides=strides,
        padding=padding,
        output_padding=beyond(data, grad, shape(weight), *options[:3]),
        groups=groups,
    )
    return [by_data, of_weight(data, grad, shape(weight), *options, builder)]


def of_weight(
    data: Any,
    grad: Any,
    size: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    builder: Any,
) -> Any:
    """The gradient of a weight of this size, by the number of groups:

    - One: a convolution of the data with the gradient, both with batch and channels exchanged,
      which libraries know.
    - As many as channels: a convolution in whose groups the batch is the channels.
    - Else one product a group of such patches side by side, as im2col (Chellapilla, Puri and
      Simard, "High Performance Convolutional Neural Networks for Document Processing", 2006).

    `data` is (batch, channels, rows, columns), `grad` of the convolution's result, and the others
    are the convolution's, with four paddings."""
    batch, channels, _, _ = shape(data)
    out, _, height, width = size
    rows, columns = shape(grad)[2:]
    top, left, bottom, right = padding
    if groups == 1 or groups == channels == out:
        below, beside = beyond(data, grad, size, strides, padding, dilation)
        layouts = ("CNHW", "IOHW", "CNHW")
        if groups > 1:
            size_of_data = [1, channels * batch, *shape(data)[2:]]
            data = op.reshape(by_channel(data), size_of_data) if batch > 1 else data
            grad = by_channel(grad) if batch > 1 else op.reshape(grad, [channels, 1, rows, columns])
            layouts = ("NCHW", "OIHW", "NCHW")
        by_weight = op.nn.conv2d(
            data,
            grad,
            strides=dilation,
            padding=[top, left, max(bottom - below, 0), max(right - beside, 0)],
            dilation=strides,
            groups=groups,
            **dict(zip(("data_layout", "kernel_layout", "out_layout"), layouts, strict=True)),
        )
        if shape(builder.normalize(by_weight))[2:] != (height, width):
            by_weight = op.strided_slice(by_weight, [2, 3], [0, 0], [height, width])
        return by_weight if groups == 1 else op.reshape(by_weight, size)
    padded = data
    if any(padding):
        padded = builder.emit(op.nn.pad(data, [0, 0, 0, 0, top, bottom, left, right]))
    patches = []
    for y in range(height):
        for x in range(width):
            begin = [y * dilation[0], x * dilation[1]]
            end = [
                first + (count - 1) * step + 1
                for first, count, step in zip(begin, (rows, columns), strides, strict=True)
            ]
            patches.append(op.strided_slice(padded, [2, 3], begin, end, strides))
    patches = [op.reshape(p, [1, batch, channels, rows, columns]) for p in patches]
    stacked = op.concat(patches, 0) if len(patches) > 1 else patches[0]
    # (places, batch, channels, rows, columns) to (groups, the rest, channels a group * places)
    laid = op.reshape(stacked, [height * width, batch, groups, channels // groups, rows * columns])
    laid = op.reshape(
        op.permute_dims(laid, [2, 1, 4, 3, 0]),
        [groups, batch * rows * columns, channels // groups * height * width],
    )
    flat = op.reshape(grad, [batch, groups, out // groups, rows * columns])
    flat = op.reshape(
        op.permute_dims(flat, [1, 2, 0, 3]), [groups, out // groups, batch * rows * columns]
    )
    return op.reshape(op.matmul(flat, laid), size)


def by_channel(image: Any) -> Any:
    """(channels, batch, rows, columns)."""
    return op.permute_dims(image, [1, 0, 2, 3])


def beyond(
    data: Any, grad: Any, size: Sequence[int], strides: Any, padding: Any, dilation: Any
) -> list[int]:
    """Rows and columns at the ends that the kernel was not laid over."""
    sizes = zip(shape(data)[2:], shape(grad)[2:], size[2:], strict=True)
    steps = zip(strides, padding[:2], padding[2:], dilation, strict=True)
    return [
        length + before + after - (count - 1) * stride - (kernel - 1) * apart - 1
        for (length, count, kernel), (stride, before, after, apart) in zip(
            sizes, steps, strict=True
        )
    ]


def _numbers(values: Any) -> list[int]:
    return [int(v) for v in values]


def _dilated(weight: Any, down: int, across: int) -> Any:
    """A kernel with zeros between its elements: transposed convolutions take no dilation."""
    out, inner, height, width = shape(weight)
    for axis, step in ((2, down), (3, across)):
        if step > 1:
            size = [out, inner, height, width]
            apart = op.reshape(weight, [*size[: axis + 1], 1, *size[axis + 1 :]])
            widths = [0] * (2 * (len(size) + 1))
            widths[2 * (axis + 1) + 1] = step - 1
            size[axis] *= step
            padded = op.reshape(op.nn.pad(apart, widths), size)
            size[axis] -= step - 1
            weight = op.strided_slice(padded, [axis], [0], [size[axis]])
            height, width = size[2], size[3]
    return weight
