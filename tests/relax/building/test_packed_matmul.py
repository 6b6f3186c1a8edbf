"""Products with constant weights by our own kernels hold what NumPy computes in float64."""

import numpy as np
import pytest
import tvm
from tvm import relax

from limits import rounding
from quick import combinations
from relascope.engine.building.options import BuildOptions
from relascope.engine.cpu_kernels.packed_matmul import AVX2, AVX512
from relascope.engine.relax.building.runtime import dispatched, make
from relascope.engine.relax.building.targets import BLAS, SCHEDULES, parse
from relascope.engine.relax.kernels import blas

OURS = f"llvm {BLAS} {SCHEDULES}"


@pytest.fixture(params=[AVX2, AVX512], ids=["8 lanes", "16 lanes"])
def lanes(request, monkeypatch):
    """Vectors of either width, whatever the processor: LLVM cuts what is too wide in two."""
    monkeypatch.setattr(blas, "registers_of", lambda target: request.param)


def layer(shape, columns, dtype="float32", turned=False, last=None):
    """x @ w + b by way of `last`, with w and b constant; and w and b."""
    random = np.random.default_rng(0)
    weight = random.normal(size=(shape[-1], columns)).astype(dtype)
    bias = random.normal(size=columns).astype(dtype)
    x = relax.Var("x", relax.TensorType(shape, dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            right = relax.const(weight.T.copy() if turned else weight, dtype)
            if turned:
                right = builder.emit(relax.op.permute_dims(right))
            found = builder.emit(relax.op.matmul(x, right))
            found = builder.emit(relax.op.add(found, relax.const(bias, dtype)))
            found = builder.emit_output(last(found) if last else found)
        builder.emit_func_output(found)
    return builder.get(), weight, bias


def kernels(mod):
    return {str(g.name_hint) for g in blas.dispatch(mod, registers=AVX2).functions}


SHAPES = [
    (14, 32),
    (1, 14, 48),
    (3, 14, 48),
    (8, 128, 64),
    (2, 3, 4, 16),
    (7, 40),
    (197, 24),
    (2, 5, 3072),
    (2, 8),
]


@pytest.mark.usefixtures("lanes")
@pytest.mark.parametrize(("shape", "columns"), combinations(SHAPES, [16, 48, 192, 768]))
def test_products_agree_with_numpy(shape, columns):
    mod, weight, bias = layer(shape, columns, turned=len(shape) == 3, last=relax.op.nn.relu)
    assert "packed_matmul" in kernels(mod)
    machine = relax.VirtualMachine(make(mod, BuildOptions(OURS)), tvm.cpu())
    x = np.random.default_rng(1).normal(size=shape).astype("float32")
    for _ in range(2):  # a second run finds nothing of the first
        found = machine["main"](tvm.runtime.tensor(x)).numpy()
        exact = np.maximum(x.astype("float64") @ weight.astype("float64") + bias, 0)
        assert found.shape == exact.shape
        assert np.abs(found - exact).max() < rounding("float32", shape[-1], np.abs(exact).max())
        x = -x


@pytest.mark.parametrize(
    ("shape", "columns", "dtype"),
    [((1, 768), 768, "float32"), ((14, 8), 10, "float32"), ((14, 8), 48, "float64")],
)
def test_other_products_go_to_pytorch(shape, columns, dtype):
    mod, weight, bias = layer(shape, columns, dtype)
    assert "packed_matmul" not in kernels(mod)
    machine = relax.VirtualMachine(make(mod, BuildOptions(OURS)), tvm.cpu())
    x = np.random.default_rng(1).normal(size=shape).astype(dtype)
    found = machine["main"](tvm.runtime.tensor(x)).numpy()
    assert found == pytest.approx(
        x @ weight + bias, abs=rounding(dtype, shape[-1], np.abs(x @ weight).max())
    )


def test_without_a_library_the_rest_stays_tvms():
    """As on a device of a fleet."""
    mod, *_ = layer((14, 32), 48)
    assert "packed_matmul" in {
        str(g.name_hint) for g in dispatched(mod, f"llvm {SCHEDULES}").functions
    }
    other, *_ = layer((14, 8), 10)
    left = dispatched(other, f"llvm {SCHEDULES}")
    assert "R.matmul" in str(left)
    assert "relascope.matmul" not in str(left)
    assert dispatched(mod, "llvm").same_as(mod)


def test_what_follows_is_computed_on_each_tile():
    mod, *_ = layer((1, 14, 48), 48, last=relax.op.nn.gelu)
    seen = {}

    @tvm.ir.instrument.pass_instrument
    class Watch:
        def run_after_pass(self, mod, info):
            if info.name == "FuseTIR":
                seen["names"] = [str(g.name_hint) for g in mod.functions]

    make(mod, BuildOptions(OURS), [Watch()])
    assert any("packed_matmul_add" in n and "gelu" in n for n in seen["names"])


def product(shape, weight, turned, dtype="float32"):
    """A matmul of two arguments, the right one turned or not, plus one."""
    x = relax.Var("x", relax.TensorType(shape, dtype))
    w = relax.Var("w", relax.TensorType(weight, dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, w]):
        with builder.dataflow():
            right = builder.emit(relax.op.permute_dims(w)) if turned else w
            found = builder.emit(relax.op.matmul(x, right))
            found = builder.emit_output(relax.op.add(found, relax.const(1.0, dtype)))
        builder.emit_func_output(found)
    return builder.get()


@pytest.mark.usefixtures("lanes")
@pytest.mark.parametrize(
    ("size", "inner"),
    combinations(
        [((14,), 48), ((1, 14), 192), ((3, 5), 768), ((7,), 64), ((2, 3, 4), 96), ((48,), 16)],
        [64, 128, 768, 96],
    ),
)
@pytest.mark.parametrize("turned", [False, True])
def test_few_rows_by_a_weight_that_is_an_argument(size, inner, turned):
    shape, columns = size
    weight = (columns, inner) if turned else (inner, columns)
    mod = product((*shape, inner), weight, turned)
    assert "packed_matmul" in kernels(mod)
    machine = relax.VirtualMachine(make(mod, BuildOptions(OURS)), tvm.cpu())
    random = np.random.default_rng(1)
    x, w = (random.normal(size=s).astype("float32") for s in ((*shape, inner), weight))
    for _ in range(2):  # a second run finds nothing of the first
        found = machine["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(w)).numpy()
        exact = x.astype("float64") @ (w.T if turned else w).astype("float64") + 1
        assert found.shape == exact.shape
        assert np.abs(found - exact).max() < rounding("float32", inner, np.abs(exact).max())
        x = -x


@pytest.mark.usefixtures("lanes")
@pytest.mark.parametrize(("inner", "rows", "columns"), [(14, 48, 72), (1, 8, 16), (48, 4, 768)])
def test_the_gradient_of_a_weight_from_few_rows(inner, rows, columns):
    x, y = (
        relax.Var(n, relax.TensorType((inner, e), "float32"))
        for n, e in (("x", rows), ("y", columns))
    )
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            turned = builder.emit(relax.op.permute_dims(x))
            found = builder.emit_output(relax.op.matmul(turned, y))
        builder.emit_func_output(found)
    assert "packed_matmul" in kernels(builder.get())
    machine = relax.VirtualMachine(make(builder.get(), BuildOptions(OURS)), tvm.cpu())
    random = np.random.default_rng(1)
    a, b = (random.normal(size=(inner, e)).astype("float32") for e in (rows, columns))
    found = machine["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(b)).numpy()
    exact = a.T.astype("float64") @ b
    assert np.abs(found - exact).max() < rounding("float32", inner, np.abs(exact).max())


@pytest.mark.parametrize("turned", [False, True])
def test_many_rows_by_a_weight_that_is_an_argument_go_to_pytorch(turned):
    assert "packed_matmul" not in kernels(product((1024, 128), (128, 128), turned))


@pytest.mark.parametrize("columns", [48, 768])
def test_the_code_asks_memory_for_what_comes_next(columns):
    mod, _, _ = layer((14, 64), columns)
    code = str(make(mod, BuildOptions(OURS)).mod.imports[0].inspect_source("asm"))
    assert "prefetch" in code


def test_the_target_says_how_wide_registers_are():
    made = [parse(f"llvm -mcpu={name}") for name in ("cascadelake", "haswell")]
    assert [blas.registers_of(target) for target in made] == [AVX512, AVX2]
    assert blas.registers_of(parse("llvm")) == AVX2
