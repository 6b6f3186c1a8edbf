"""The gradient of a 2D convolution."""

from collections.abc import Sequence
from typing import Any

from tvm.relax import op

from relascope.core.errors import no_gradient
from relascope.passes.gradients import beyond
from relascope.passes.relax.ir.rewrite import shape


def conv2d(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
    """The transposed convolution for the data, and `of_weight`."""
    attrs = call.attrs
    data, weight = call.args
    if str(attrs.data_layout) != "NCHW" or str(attrs.kernel_layout) != "OIHW":
        known = "is known in the layouts NCHW and OIHW only"
        raise no_gradient("nn.conv2d", known, "take the gradient before layouts are changed")
    grad, groups = builder.normalize(grad), int(attrs.groups)
    strides, padding, dilation = of_images(attrs, "strides", "padding", "dilation")
    sizes = shape(data)[2:], shape(grad)[2:], shape(weight)[2:]
    end = beyond(*sizes, strides, padding, dilation)
    how = {"strides": strides, "padding": padding, "output_padding": end, "groups": groups}
    by_data = op.nn.conv2d_transpose(grad, _dilated(weight, *dilation), **how)
    window = (strides, padding, dilation, groups)
    return [by_data, of_weight(data, grad, shape(weight), window, builder)]


def of_weight(data: Any, grad: Any, size: Sequence[int], window: Any, builder: Any) -> Any:
    """The gradient of a weight of shape `size`: a convolution of the data with the gradient, which
    libraries support. Batch and channels are exchanged: by the layout if there is one group, else
    group by group. `data` is (batch, channels, rows, columns), `grad` the gradient of the
    convolution's result, and `window` are the convolution's strides, four paddings, dilation and
    groups."""
    strides, padding, dilation, groups = window
    batch, channels, *_ = shape(data)
    out, *_, height, width = size
    top, left, bottom, right = padding
    sizes = shape(data)[2:], shape(grad)[2:], (height, width)
    below, beside = beyond(*sizes, strides, padding, dilation)
    layouts = {"data_layout": "CNHW", "kernel_layout": "IOHW", "out_layout": "CNHW"}
    if groups > 1:
        layouts, window = {}, [out, batch, *shape(grad)[2:]]
        grad = op.reshape(grad, window) if batch == 1 else op.permute_dims(grad, [1, 0, 2, 3])
        if not batch == channels // groups == 1:
            apart = op.reshape(data, [batch, groups, channels // groups, *shape(data)[2:]])
            exchanged = [channels // groups, groups * batch, *shape(data)[2:]]
            data = op.reshape(op.permute_dims(apart, [2, 1, 0, 3, 4]), exchanged)
    around = [top, left, max(bottom - below, 0), max(right - beside, 0)]
    how = {"strides": dilation, "padding": around, "dilation": strides, "groups": groups}
    by_weight = op.nn.conv2d(data, grad, **how, **layouts)
    if shape(builder.normalize(by_weight))[2:] != (height, width):
        by_weight = op.strided_slice(by_weight, [2, 3], [0, 0], [height, width])
    if channels == groups > 1:
        return op.reshape(by_weight, size)
    return by_weight if groups == 1 else op.permute_dims(by_weight, [1, 0, 2, 3])


def of_images(attrs: Any, *names: str) -> list[list[int]]:
    """Some attributes of a convolution or pooling as a 2D one has them: in one dimension, those of
    an image with one row."""
    values = [[int(v) for v in getattr(attrs, name)] for name in names]
    if len(attrs.strides) > 1:
        return values
    pairs = zip(names, values, strict=True)
    return [[0, v[0], 0, v[-1]] if name == "padding" else [1, *v] for name, v in pairs]


def _dilated(weight: Any, down: int, across: int) -> Any:
    """A kernel with zeros between its elements, for transposed convolutions without dilation."""
    size = list(shape(weight))
    for axis, step in ((2, down), (3, across)):
        if step > 1:
            apart = op.reshape(weight, [*size[: axis + 1], 1, *size[axis + 1 :]])
            widths = [0] * (2 * (len(size) + 1))
            widths[2 * (axis + 1) + 1] = step - 1
            size[axis] *= step
            padded = op.reshape(op.nn.pad(apart, widths), size)
            size[axis] -= step - 1
            weight = op.strided_slice(padded, [axis], [0], [size[axis]])
    return weight
