"""The gradient of a 2D convolution."""

from typing import Any

from tvm.relax import op

from relascope.core.errors import no_gradient
from relascope.passes.relax.ir.rewrite import shape


def conv2d(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
    """The transposed convolution for the data; for the weight, by the number of groups:

    - One: a convolution of the data with the gradient, both with batch and channels exchanged,
      which
      libraries know.
    - As many as channels: for each place in the kernel, the sum of gradient times data there.
    - Else one product a group of such patches side by side, as im2col (Chellapilla, Puri and
      Simard,
      "High Performance Convolutional Neural Networks for Document Processing", 2006).
    """
    attrs = call.attrs
    data, weight = call.args
    groups = int(attrs.groups)
    if str(attrs.data_layout) != "NCHW" or str(attrs.kernel_layout) != "OIHW":
        known = "is known in the layouts NCHW and OIHW only"
        raise no_gradient("nn.conv2d", known, "take the gradient before layouts are changed")
    batch, channels, tall, wide = shape(data)
    out, _, height, width = shape(weight)
    _, _, rows, columns = shape(variable)
    top, left, bottom, right = map(int, attrs.padding)
    down, across = map(int, attrs.strides)
    step_down, step_across = map(int, attrs.dilation)
    reach_down, reach_across = (height - 1) * step_down + 1, (width - 1) * step_across + 1
    # Rows and columns at the ends that the kernel was not laid over.
    below = tall + top + bottom - (rows - 1) * down - reach_down
    beside = wide + left + right - (columns - 1) * across - reach_across
    by_data = op.nn.conv2d_transpose(
        grad,
        _dilated(weight, step_down, step_across),
        strides=[down, across],
        padding=[top, left, bottom, right],
        output_padding=[below, beside],
        groups=groups,
    )
    if groups == 1:
        by_weight = op.nn.conv2d(
            data,
            grad,
            strides=[step_down, step_across],
            padding=[top, left, max(bottom - below, 0), max(right - beside, 0)],
            dilation=[down, across],
            data_layout="CNHW",
            kernel_layout="IOHW",
            out_layout="CNHW",
        )
        if shape(builder.normalize(by_weight))[2:] != (height, width):
            by_weight = op.strided_slice(by_weight, [2, 3], [0, 0], [height, width])
        return [by_data, by_weight]
    padded = data
    if any((top, left, bottom, right)):
        padded = builder.emit(op.nn.pad(data, [0, 0, 0, 0, top, bottom, left, right]))
    patches = []
    for y in range(height):
        for x in range(width):
            begin = [y * step_down, x * step_across]
            end = [begin[0] + (rows - 1) * down + 1, begin[1] + (columns - 1) * across + 1]
            patches.append(op.strided_slice(padded, [2, 3], begin, end, [down, across]))
    if groups == channels == out:
        sums = [op.reshape(op.sum(op.multiply(p, grad), [0, 2, 3]), [out, 1]) for p in patches]
        joined = op.concat(sums, 1) if len(sums) > 1 else sums[0]
        return [by_data, op.reshape(joined, list(shape(weight)))]
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
    return [by_data, op.reshape(op.matmul(flat, laid), list(shape(weight)))]


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
