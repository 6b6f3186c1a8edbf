"""Products by OpenBLAS on TVM's threads, in Relay."""

import pytest
import torch
import tvm
from torch.nn import functional as F
from tvm import relay, te

from limits import rounding
from products import EVERY, check_product
from quick import combinations
from relascope.core.errors import EngineError
from relascope.engine.cpu_kernels.openblas import FUNCTIONS, OPENBLAS
from relascope.engine.cpu_kernels.schedules import SCHEDULES
from relascope.engine.relay.building.targets import parse, targets
from relay_functions import compiled, var

TARGET = f"llvm {OPENBLAS}"


def built(product):
    a = te.placeholder(product.left, product.dtype, "a")
    b = te.placeholder(product.right, product.dtype, "b")
    kernel = te.create_prim_func([a, b, product.kernel(te, tvm.tir, a, b)])
    run = tvm.build(tvm.IRModule({"main": kernel}), target=parse("llvm"))
    return lambda *tensors: run(
        *(tvm.nd.from_dlpack(torch.utils.dlpack.to_dlpack(t)) for t in tensors)
    )


@EVERY
def test_products_agree_with_pytorch(left, right, turn_a, turn_b, dtype):
    check_product(built, left, right, turn_a, turn_b, dtype)


@pytest.mark.parametrize(
    ("target", "dtype"), combinations([TARGET, f"{TARGET} {SCHEDULES}"], ["float64", "float32"])
)
def test_a_program_agrees_with_pytorch_and_calls_no_python(target, dtype, monkeypatch):
    def fail(*_, **__):
        raise AssertionError("a product was left to PyTorch")

    x, w = var("x", 4, 200, 96, dtype=dtype), var("w", 80, 96, dtype=dtype)
    dense = relay.nn.dense(relay.reshape(x, (800, 96)), w)
    rows = relay.tanh(relay.reshape(dense, (4, 200, 80)))
    function = compiled(relay.nn.batch_matmul(rows, rows, transpose_b=True), target)
    assert FUNCTIONS[dtype] in function.library.get_lib().get_source("asm")
    kind = getattr(torch, dtype)
    a, b = torch.randn(4, 200, 96, dtype=kind), torch.randn(80, 96, dtype=kind)
    expected = F.linear(a.double(), b.double()).tanh()
    for name in ("mm", "bmm"):
        monkeypatch.setattr(torch, name, fail)
    (found,) = function.run({"x": a, "w": b})
    monkeypatch.undo()
    exact = expected @ expected.mT
    assert (found - exact).abs().max() < rounding(dtype, expected.shape[-1], exact.abs().max())


def test_it_is_offered_with_our_schedules_and_without_for_processors_alone():
    names = [t.name for t in targets()]
    for last in (OPENBLAS, f"{OPENBLAS} {SCHEDULES}"):
        assert sum(name.endswith(last) for name in names) == 1
    with pytest.raises(EngineError, match="CPU"):
        parse(f"cuda {OPENBLAS}")


def test_other_libraries_stay_what_they_are():
    function = compiled(relay.nn.dense(var("a", 300, 50), var("b", 70, 50)), "llvm -libs=mkl")
    assert "scipy_cblas" not in function.library.get_lib().get_source("asm")
    function = compiled(relay.nn.dense(var("a", 300, 50), var("b", 70, 50)), "llvm -libs=cudnn")
    code = function.library.get_lib().get_source("asm")
    assert "scipy_cblas" not in code and "tvm.contrib.mkl" not in code
