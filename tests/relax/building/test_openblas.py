"""Products by OpenBLAS on TVM's threads, and programs that are built with them."""

import pytest
import torch
import tvm
from torch import nn
from tvm import relax, te, tirx

from answers import refused
from gradients import Fn, imported
from limits import LIMITS, OUTPUT
from products import EVERY, check_product
from quick import combinations
from relascope.core.errors import EngineError
from relascope.engine.cpu_kernels import openblas
from relascope.engine.cpu_kernels.openblas import FUNCTIONS, OPENBLAS
from relascope.engine.cpu_kernels.schedules import SCHEDULES
from relascope.engine.relax.building import runtime
from relascope.engine.relax.building.profiled import Profiled
from relascope.engine.relax.building.targets import parse, targets
from relascope.engine.relax.kernels.openblas import native, replaced
from relascope.engine.relax.tune import tuning
from relax_modules import compiled, draw, errors, main_of, program

TARGET = f"llvm {OPENBLAS}"


def built(product):
    a = te.placeholder(product.left, product.dtype, "a")
    b = te.placeholder(product.right, product.dtype, "b")
    kernel = te.create_prim_func([a, b, product.kernel(te, tirx, a, b)])
    run = tvm.compile(tvm.IRModule({"main": kernel}), parse("llvm"))["main"]
    return lambda *tensors: run(*map(tvm.runtime.from_dlpack, tensors))


@EVERY
def test_products_agree_with_pytorch(left, right, turn_a, turn_b, dtype):
    check_product(built, left, right, turn_a, turn_b, dtype)


class Layer(nn.Module):
    """Products of a batch, with a weight and of two results, one with an operand turned."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(96, 80), nn.Linear(96, 80)

    def forward(self, x):
        return torch.softmax(self.a(x) @ self.b(x).mT, -1) @ x


def module_of(program, target):
    mod = runtime.module_of(program, "main", program.mod["main"])
    return native(runtime.dispatched(mod, target))


@pytest.mark.parametrize(
    ("target", "dtype"), combinations([TARGET, f"{TARGET} {SCHEDULES}"], ["float64", "float32"])
)
def test_a_program_agrees_with_pytorch_and_calls_no_python(target, dtype):
    torch.manual_seed(0)
    model, program = imported(Layer(), draw(4, 70, 96), dtype=dtype)
    text = module_of(program, target).script()
    assert FUNCTIONS[dtype] in text
    assert "relascope.matmul" not in text
    assert max(errors(model, program, target).values()) <= LIMITS[dtype][0]


def test_a_product_of_unknown_shape_stays_with_pytorch():
    rows = tirx.Var("n", "int64")
    mod = program(relax.op.matmul, ((rows, 8), "float32"), ((8, 4), "float32"))
    left, right = draw(5, 8).numpy(), draw(8, 4).numpy()
    assert abs(compiled(mod, TARGET)(left, right) - left @ right).max() < OUTPUT


def test_tuning_knows_which_kernels_are_the_librarys():
    _, program = imported(Fn(torch.matmul), draw(40, 70), draw(70, 90))
    main = main_of(program)
    found = tuning.tunable(main, TARGET, Profiled(main, TARGET))
    (task,) = found.workloads
    assert task.program.symbol == "relascope.matmul_nn"
    assert found.calls == (task.key,)
    (site,) = found.profiled.kernels
    assert site.name.startswith("openblas_") and replaced(site.name) == "relascope.matmul_nn"
    assert replaced("fused_matmul_nn") == "fused_matmul_nn"


def test_targets_offer_it_where_it_is_installed(monkeypatch):
    names = [t.name for t in targets()]
    assert any(OPENBLAS in n.split() for n in names)
    monkeypatch.setattr(openblas, "_file", lambda: None)
    assert not any(OPENBLAS in way for way in openblas.cpu_ways("-libs=blas"))
    openblas.load.cache_clear()
    with refused("target", "OpenBLAS is not here", hint=OPENBLAS):
        openblas.load()


@pytest.mark.parametrize(
    ("vendor", "first"), [("GenuineIntel", "blas"), ("AuthenticAMD", "openblas")]
)
def test_the_first_choice_is_the_faster_library_for_the_processor(monkeypatch, vendor, first):
    monkeypatch.setattr(openblas, "cpu_info", lambda: {"vendor_id": vendor})
    best = list(openblas.cpu_ways("-libs=blas"))[-1]
    assert best == f"-libs={first} -schedules=relascope -records=relascope"


def test_other_libraries_stay_and_it_is_for_processors_alone():
    with pytest.raises(EngineError, match="CPU"):
        parse(f"cuda {OPENBLAS}")
    _, program = imported(Fn(torch.matmul), draw(40, 70), draw(70, 90))
    mod = runtime.module_of(program, "main", program.mod["main"])
    assert runtime.dispatched(mod, "llvm -libs=cudnn").same_as(mod)
