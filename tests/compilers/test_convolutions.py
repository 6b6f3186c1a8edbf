"""Convolutions as products of matrices are PyTorch's."""

import pytest
import torch
from torch.nn import functional

from limits import rounding
from relascope.engine.cpu_kernels import convolutions
from relascope.engine.measure.memory import torch_peak

SHAPES = {  # batch, channels, size, outputs, window, stride, padding, dilation, groups
    "few pixels": (2, 96, (3, 4), 1024, (2, 3), 1, 1, 1, 1),
    "few pixels, strided, dilated": (1, 64, (7, 5), 1024, (3, 2), 2, 1, 2, 1),
    "pointwise, a product an image": (3, 5, (4, 6), 7, (1, 1), 1, 0, 1, 1),
    "pointwise, one product": (3, 5, (3, 2), 7, (1, 1), 1, 0, 1, 1),
    "pointwise, no image": (0, 5, (3, 2), 7, (1, 1), 1, 0, 1, 1),
    "pointwise, strided": (2, 5, (4, 6), 7, (1, 1), 2, 0, 1, 1),
    "groups": (2, 6, (4, 6), 4, (3, 3), 1, 1, 1, 2),
    "groups, strided, dilated": (2, 4, (9, 8), 6, (3, 2), 2, 1, 2, 2),
    "rows": (2, 6, (9,), 4, (1,), 1, 0, 1, 1),
}


class Convolution:
    """A convolution in float64, with what convolutions are asked for it."""

    def __init__(self, batch, channels, size, outputs, window, stride, padding, dilation, groups):
        torch.manual_seed(0)
        kind = {"dtype": torch.float64, "requires_grad": True}
        self.data = torch.randn(batch, channels, *size, **kind)
        self.weight = torch.randn(outputs, channels // groups, *window, **kind)
        convolve = functional.conv2d if len(size) == 2 else functional.conv1d
        about = stride, padding, dilation, groups
        self.made = convolve(self.data, self.weight, None, *about)
        self.grad = torch.randn_like(self.made)
        self.made.backward(self.grad)
        self.window = tuple((v,) * len(size) for v in (stride, padding, dilation))
        pairs = zip(size, self.made.shape[2:], window, strict=True)
        self.more = tuple(
            s - ((m - 1) * stride - 2 * padding + dilation * (w - 1) + 1) for s, m, w in pairs
        )
        self.groups = groups

    def options(self, transposed=False):
        more = self.more if transposed else (0,) * len(self.more)
        return (*self.window, transposed, more, self.groups)


@pytest.mark.parametrize("name", SHAPES)
def test_forward_and_gradients_are_pytorchs(name):
    wanted = Convolution(*SHAPES[name])
    data, weight, grad = (t.detach().float() for t in (wanted.data, wanted.weight, wanted.grad))
    out = torch.empty(wanted.made.shape)
    convolutions.convolution(data, weight, wanted.options(), out)
    of_data, of_weight = torch.empty_like(data), torch.empty_like(weight)
    convolutions.convolution(grad, weight, wanted.options(True), of_data)
    convolutions.weight_gradient(data, grad, wanted.options(), of_weight)
    for made, exact in (
        (out, wanted.made),
        (of_data, wanted.data.grad),
        (of_weight, wanted.weight.grad),
    ):
        largest = max([*exact.abs().flatten().tolist(), 0])
        limit = rounding("float32", max(weight[0].numel(), grad[:, 0].numel()), largest)
        torch.testing.assert_close(made.double(), exact, rtol=0, atol=limit)


def test_transposed_convolutions_may_make_nothing_or_outlast_their_stride():
    data = torch.randn(2, 6, 1, 2)
    for window, dilation, more in (((3, 1), 1, 0), ((3, 2), 2, 1)):
        weight, steps = torch.randn(6, 3, *window), ((1, 1), (1, 1), (dilation, dilation))
        options = (*steps, True, (more, more), 2)
        exact = torch.ops.aten.convolution(data, weight, None, *options)
        out = torch.empty_like(exact)
        convolutions.convolution(data, weight, options, out)
        torch.testing.assert_close(out, exact)


def test_infinity_meets_no_padding_and_large_weights_are_not_copied():
    wanted = Convolution(*SHAPES["few pixels"])
    data, weight, grad = (t.detach().float() for t in (wanted.data, wanted.weight, wanted.grad))
    out, of_weight = torch.empty(wanted.made.shape), torch.empty_like(weight)
    runs = (
        lambda: convolutions.convolution(data, weight, wanted.options(), out),
        lambda: convolutions.convolution(
            grad, weight, wanted.options(True), torch.empty_like(data)
        ),
        lambda: convolutions.weight_gradient(data, grad, wanted.options(), of_weight),
    )
    assert all(torch_peak(run, torch.device("cpu")) < weight.nbytes / 4 for run in runs)
    weight[0, 0, 0, 0] = grad[0, 0, 0, 0] = torch.inf
    convolutions.convolution(data, weight, wanted.options(), out)
    convolutions.weight_gradient(data, grad, wanted.options(), of_weight)
    exact = torch.ops.aten.convolution_backward(
        grad, data, weight, None, *wanted.options(), (False, True, False)
    )[1]
    assert torch.equal(out.isnan(), functional.conv2d(data, weight, padding=1).isnan())
    assert torch.equal(of_weight.isnan(), exact.isnan())
    assert out.isinf().any()
