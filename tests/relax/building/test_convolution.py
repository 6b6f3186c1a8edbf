"""Convolutions by PyTorch are those that it has."""

import pytest
from tvm import relax

from relascope.engine.relax.kernels.convolution import dispatched


@pytest.mark.parametrize(
    ("size", "padding", "served"), [(5, [1, 1, 1, 1], True), (4, [1, 1, 0, 0], False)]
)
def test_the_gradient_of_a_weight_under_uneven_padding_stays_with_tvm(size, padding, served):
    data = relax.Var("data", relax.TensorType([2, 3, 5, 5], "float32"))
    grad = relax.Var("grad", relax.TensorType([2, 4, size, size], "float32"))
    layouts = {"data_layout": "CNHW", "kernel_layout": "IOHW", "out_layout": "CNHW"}
    builder = relax.BlockBuilder()
    with builder.function("main", [data, grad]):
        call = builder.normalize(relax.op.nn.conv2d(data, grad, padding=padding, **layouts))
        assert (dispatched(call) is not None) == served
        builder.emit_func_output(builder.emit(call))
