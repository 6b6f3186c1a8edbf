"""Convolutions by PyTorch, written into given memory.

PyTorch's kernels lay out data and weight anew in each call, and make a weight's gradient in fresh
memory, page by page. If a window is one pixel, or a weight is large and pixels are few, a product
of matrices (im2col) takes half to a quarter of the time, and less memory.
"""

import math

import torch
from torch.nn import functional

Options = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], bool, tuple[int, ...], int]
"""PyTorch's strides, padding, dilation, whether it is transposed, output padding and groups."""
_CONVOLUTION = torch.ops.aten.convolution.out
_BACKWARD = torch.ops.aten.convolution_backward.default
_LARGE = 1 << 20  # bytes
_PIXELS = 16  # per image, from which a separate product for each image is faster


def convolution(
    data: torch.Tensor, weight: torch.Tensor, options: Options, out: torch.Tensor
) -> None:
    """Convolve, transposed or not. `data` is (batch, channels, *size), `weight` (outputs, channels
    / groups, *window) or, transposed, (channels, outputs / groups, *window), and `out` (batch,
    outputs, *size), all of one dtype."""
    transposed = options[3]
    pointwise = _is_pointwise(weight, options)
    (data,) = (data,) if pointwise else _exact(weight, data)
    if pointwise or _is_product(data if transposed else out, weight, options):
        _multiply(data, weight, options, out, pointwise)
    elif transposed and _folds(options) and out.numel() and weight.device.type == "cpu":
        # PyTorch's own kernel for a transposed one is slow where the channels are few.
        turned = (*options[:3], False, (0,) * (out.ndim - 2), options[5])
        like = out.contiguous() if data.is_contiguous() else out  # read for its layout alone
        out.copy_(_BACKWARD(data, like, weight, None, *turned, (True, False, False))[0])
    else:
        _CONVOLUTION(data, weight, None, *options, out=out)


def _multiply(
    data: torch.Tensor, weight: torch.Tensor, options: Options, out: torch.Tensor, pointwise: bool
) -> None:
    """Convolve by a product of matrices."""
    strides, padding, dilation, transposed, *_ = options
    matrix = weight.flatten(1) if transposed else weight.flatten(1).T
    if pointwise and _has_rows(data) and _has_rows(out):
        torch.mm(_rows(data), matrix, out=_rows(out))
        return
    if pointwise and out.shape[2:].numel() >= _PIXELS:
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
        _CONVOLUTION(data, weight, None, *options, out=out)
        return
    out.flatten(2).copy_(made)


def weight_gradient(
    data: torch.Tensor, grad: torch.Tensor, options: Options, out: torch.Tensor
) -> None:
    """Write the gradient of the weight of a convolution that is not transposed. `data` was
    convolved, `grad` is the gradient of the result, both of one dtype; `out` is contiguous, and has
    the weight's shape and dtype."""
    strides, padding, dilation, *_ = options
    pointwise = _is_pointwise(out, options)
    # The zeros around an image, times infinity, would be NaN.
    if not pointwise and not (_is_product(grad, out, options) and grad.isfinite().all()):
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
    if all(i.is_contiguous() or not _has_rows(i) for i in images) or factor.device.type != "cpu":
        return images
    return images if math.isfinite(factor.sum()) else tuple(i.contiguous() for i in images)


def _has_rows(image: torch.Tensor) -> bool:
    """Whether its channels are last in memory."""
    return image.ndim == 4 and image.is_contiguous(memory_format=torch.channels_last)


def _rows(image: torch.Tensor) -> torch.Tensor:
    """A view of shape (batch x pixels, channels)."""
    return image.permute(0, 2, 3, 1).flatten(0, 2)


def _is_pointwise(weight: torch.Tensor, options: Options) -> bool:
    strides, padding, _, _, more, groups = options
    plain = set(strides) == {1} and not any((*padding, *more)) and groups == 1
    return plain and weight.shape[2:].numel() == 1 and weight.device.type == "cpu"


def _is_product(convolved: torch.Tensor, weight: torch.Tensor, options: Options) -> bool:
    """Whether a convolution of images has a large weight and few pixels to multiply it with."""
    groups = options[5]
    pixels = convolved.numel() // max(convolved.shape[1], 1)
    few = 0 < 4 * pixels <= len(weight) and weight.nbytes >= _LARGE
    return (
        few
        and _folds(options)
        and convolved.ndim == 4
        and groups == 1
        and weight.device.type == "cpu"
    )


def _folds(options: Options) -> bool:
    """Whether a transposed convolution is the gradient of the data of one that is not."""
    strides, *_, more, _ = options
    return all(m < s for m, s in zip(more, strides, strict=True))


def _by_channel(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in shape (channels, batch x pixels)."""
    return tensor.transpose(0, 1).flatten(1)
