"""Convolutions by PyTorch, written into given memory.

PyTorch's kernels lay out data and weight anew in each call, and make a weight's gradient in fresh
memory, page by page. If a window is one pixel, or a weight is large and pixels are few, a product
of matrices (im2col) takes half to a quarter of the time, and less memory.
"""

import functools
import math

import torch
from torch.nn import functional

from relascope.engine.building.cpu import cpu_info

Options = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], bool, tuple[int, ...], int]
"""PyTorch's strides, padding, dilation, whether it is transposed, output padding and groups."""
_BACKWARD = torch.ops.aten.convolution_backward.default
_LARGE = 1 << 20  # bytes
_OUTPUTS = 4  # of a weight for each pixel, from which a product may be faster
PIXELS = 16  # per image, from which a separate product for each image is faster


def convolution(
    data: torch.Tensor, weight: torch.Tensor, options: Options, out: torch.Tensor
) -> None:
    """Convolve, transposed or not. `data` is (batch, channels, *size), `weight` (outputs, channels
    / groups, *window) or, transposed, (channels, outputs / groups, *window), and `out` (batch,
    outputs, *size), all of one dtype."""
    convolved = data if options[3] else out
    way = way_of(options, weight.shape, weight.nbytes, convolved.shape, weight.is_cpu)
    if way != "pointwise" and not data.is_contiguous():
        (data,) = _exact(weight, data)
    if way in ("pointwise", "product"):
        _multiply(data, weight, options, out, way == "pointwise")
    elif way == "folds" and out.numel():
        # PyTorch's own kernel for a transposed one is slow where the channels are few.
        turned = (*options[:3], False, (0,) * (out.ndim - 2), options[5])
        like = out.contiguous() if data.is_contiguous() else out  # read for its layout alone
        out.copy_(_BACKWARD(data, like, weight, None, *turned, (True, False, False))[0])
    else:
        out.copy_(torch.convolution(data, weight, None, *options))


def _multiply(
    data: torch.Tensor, weight: torch.Tensor, options: Options, out: torch.Tensor, pointwise: bool
) -> None:
    """Convolve by a product of matrices."""
    strides, padding, dilation, transposed, *_ = options
    matrix = weight.flatten(1) if transposed else weight.flatten(1).T
    if pointwise and _has_rows(data) and _has_rows(out):
        torch.mm(_rows(data), matrix, out=_rows(out))
        return
    if pointwise and out.shape[2:].numel() >= PIXELS:
        torch.matmul(matrix.T, data.flatten(2), out=out.flatten(2))
        return
    window = weight.shape[2:], dilation, padding, strides
    columns = data if pointwise or transposed else functional.unfold(data, *window)
    # With a pixel in each row: MKL reads weights that are turned at half the speed.
    by_pixel = _by_channel(columns).T @ matrix
    made = by_pixel.view(len(columns), columns.shape[2:].numel(), matrix.shape[1]).mT
    if transposed and not pointwise:
        made = functional.fold(made, tuple(out.shape[2:]), *window).flatten(2)
    # NaN may come from the zeros around an image, times infinity.
    elif not pointwise and made.isnan().any():
        out.copy_(torch.convolution(data, weight, None, *options))
        return
    out.flatten(2).copy_(made)


def weight_gradient(
    data: torch.Tensor, grad: torch.Tensor, options: Options, out: torch.Tensor
) -> None:
    """Write the gradient of the weight of a convolution that is not transposed. `data` was
    convolved, `grad` is the gradient of the result, both of one dtype; `out` is contiguous, and has
    the weight's shape and dtype."""
    strides, padding, dilation, *_ = options
    way = way_of(options, out.shape, out.nbytes, grad.shape, out.is_cpu, True)
    pointwise = way == "pointwise"
    # The zeros around an image, times infinity, would be NaN.
    if not pointwise and not (way == "product" and grad.isfinite().all()):
        if not (data.is_contiguous() and grad.is_contiguous()):
            data, grad = _exact(grad, data, grad)
        out.copy_(_BACKWARD(grad, data, out, None, *options, (False, True, False))[1])
        return
    if pointwise and _has_rows(data) and _has_rows(grad):
        torch.mm(_rows(grad).T, _rows(data), out=out.flatten(1))
        return
    window = out.shape[2:], dilation, padding, strides
    columns = data if pointwise else functional.unfold(data, *window)
    torch.mm(_by_channel(grad), _by_channel(columns).T, out=out.flatten(1))


def _exact(factor: torch.Tensor, *images: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Images to multiply with a factor, with channels first if the factor may be infinite: with
    channels last, PyTorch multiplies the zeros around an image, too."""
    if not any(map(_has_rows, images)) or not factor.is_cpu:
        return images
    return images if math.isfinite(factor.sum()) else tuple(i.contiguous() for i in images)


def _has_rows(image: torch.Tensor) -> bool:
    """Whether its channels are last in memory."""
    return image.ndim == 4 and image.is_contiguous(memory_format=torch.channels_last)


def _rows(image: torch.Tensor) -> torch.Tensor:
    """A view of shape (batch x pixels, channels)."""
    return image.permute(0, 2, 3, 1).flatten(0, 2)


@functools.lru_cache(4096)
def way_of(
    options: Options,
    weight: tuple[int, ...],
    nbytes: int,
    convolved: tuple[int, ...],
    cpu: bool = True,
    of_weight: bool = False,
) -> str:
    """How to convolve, or `of_weight` to make a weight's gradient: "pointwise" for windows of one
    pixel, "product" for images and a large weight with many outputs for each pixel, "folds" for a
    transposed one that is the gradient of another one's data, or "". `weight` and `convolved` are
    shapes, `nbytes` are the weight's."""
    strides, padding, _, transposed, more, groups = options
    if not cpu:
        return ""
    plain = {*strides} == {1} and not any((*padding, *more)) and groups == 1
    if plain and math.prod(weight[2:]) == 1:
        return "pointwise"
    pixels = math.prod(convolved) // max(convolved[1], 1)
    least = _OUTPUTS if of_weight else _outputs_per_pixel()
    few = 0 < least * pixels <= weight[0] and nbytes >= _LARGE
    folds = all(m < s for m, s in zip(more, strides, strict=True))
    if few and folds and len(convolved) == 4 and groups == 1:
        return "product"
    return "folds" if folds and transposed else ""


@functools.cache
def _outputs_per_pixel() -> int:
    """Of a weight, from which a product is faster: MKL takes longer on others' processors. The
    gradient of a weight gains there, too: it is large, and a product writes it where it belongs."""
    return _OUTPUTS if cpu_info().get("vendor_id") == "GenuineIntel" else 16 * _OUTPUTS


def _by_channel(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in shape (channels, batch x pixels)."""
    return tensor.transpose(0, 1).flatten(1)
