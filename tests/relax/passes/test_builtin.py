"""TVM's own Relax passes on small modules, beside PyTorch."""

import numpy as np
import pytest
import torch
from torch import nn
from tvm import relax

from gradients import imported, passes, runtime
from limits import LIMITS, rounding
from quick import QUICK, combinations
from relascope.core.errors import EngineError
from relascope.engine.building.options import BuildOptions
from relascope.passes.relax.builtin import topological_sort
from relascope.passes.relax.examples.building import Tensors
from relascope.passes.relax.ir.rewrite import bindings, op_name
from relax_modules import errors

DTYPES = ["float64", "float32"]


class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Linear(16, 16)
        self.a, self.b = nn.Parameter(torch.randn(16, 2)), nn.Parameter(torch.randn(2, 16))

    def forward(self, x):
        return torch.tanh(x @ (self.w.weight.t() + self.a @ self.b) + self.w.bias)


class Parallel(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, width) for width in (4, 4, 6))

    def forward(self, x):
        return tuple(torch.softmax(layer(x), -1) for layer in self.layers)


def counted(made, name):
    return sum(op_name(value) == name for _, value in bindings(made.main))


def work(made):
    """Multiplications in all products."""
    total = 0
    for _, value in bindings(made.main):
        if op_name(value) == "matmul":
            left, result = value.args[0].ty.shape.values, value.ty.shape.values
            total += int(np.prod([int(d) for d in result])) * int(left[-1])
    return total


@pytest.mark.parametrize(("bound", "dtype"), combinations(["", "bind|"], DTYPES))
def test_an_adapter_is_taken_apart_for_less_work(bound, dtype):
    torch.manual_seed(0)
    model, before = imported(Adapted(), torch.randn(2, 16), dtype=dtype)
    after = passes(before, f"{bound}expand_matmul_of_sum|adjust_matmul_order")
    assert counted(after, "matmul") == 3
    assert work(after) < work(before)
    assert max(errors(model, after).values()) <= LIMITS[dtype][0]


def test_joined_weights_are_transposed_as_one():
    torch.manual_seed(0)
    model, before = imported(Parallel(), torch.randn(3, 8), dtype="float64")
    assert counted(passes(before, "combine_matmul"), "permute_dims") == 3
    after = passes(before, "combine_matmul|reorder_permute_dims_after_concat")
    assert (counted(after, "permute_dims"), counted(after, "matmul")) == (1, 1)
    assert max(errors(model, after).values()) <= LIMITS["float64"][0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_fast_math_is_close_in_float32_and_exact_in_float64(dtype):
    torch.manual_seed(0)
    model, before = imported(Parallel(), torch.randn(3, 8), dtype=dtype)
    after = passes(before, "fast_math")
    assert counted(after, "nn.softmax") == 0
    assert counted(after, "call_tir") == 3
    assert max(errors(model, after).values()) <= LIMITS[dtype][0]


def test_fast_math_has_no_gradient():
    _, before = imported(Adapted(), torch.randn(2, 16), training=True)
    with pytest.raises(EngineError, match="gradient"):
        passes(before, "fast_math|root_grad_out|gradient")


def test_other_orders_compute_the_same():
    torch.manual_seed(0)
    model, before = imported(Parallel(), torch.randn(3, 8), dtype="float64")
    kinds, texts = sorted(op_name(v) for _, v in bindings(before.main)), set()
    for order in ("depth-first", "breadth-first"):
        for direction in ("from-inputs", "from-outputs"):
            after = topological_sort(before, order, direction)
            assert sorted(op_name(v) for _, v in bindings(after.main)) == kinds
            assert str(after.main) in texts or (
                max(errors(model, after).values()) <= LIMITS["float64"][0]
            )
            texts.add(str(after.main))
    assert len(texts) > 1


def test_quantize_and_dequantize_are_kernels_that_compute_what_pytorch_does():
    new = Tensors("float32")
    scale, zero = relax.const(0.1, "float32"), relax.const(3, "int8")
    q = new.bind("q", relax.op.quantize(new.var("x", 4, 8), scale, zero, -1, "int8"))
    made = passes(new.program(relax.op.dequantize(q, scale, zero, -1, "float32")), "legalize")
    assert counted(made, "call_tir") == 2
    values = torch.randn(4, 8, generator=torch.Generator().manual_seed(0)) * 10
    ours = runtime.assemble(made, None, BuildOptions(QUICK)).forward({"x": values})[0][0]
    theirs = torch.fake_quantize_per_tensor_affine(values, 0.1, 3, -128, 127)
    torch.testing.assert_close(
        ours, theirs, rtol=0, atol=rounding("float32", 1, values.abs().max())
    )
