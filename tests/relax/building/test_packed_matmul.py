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
from relax_modules import compiled, program

OURS = f"llvm {BLAS} {SCHEDULES}"


LANES = [AVX2, AVX512]


@pytest.fixture
def lanes(request, monkeypatch):
    """Vectors of either width, whatever the processor: LLVM cuts what is too wide in two."""
    monkeypatch.setattr(blas, "registers_of", lambda target: request.param)


def layer(shape, columns, dtype="float32", turned=False, last=lambda found: found):
    """x @ w + b by way of `last`, with w and b constant; and w and b."""
    random = np.random.default_rng(0)
    weight = random.normal(size=(shape[-1], columns)).astype(dtype)
    bias = random.normal(size=columns).astype(dtype)

    def of(x):
        right = relax.const(weight.T.copy() if turned else weight, dtype)
        right = relax.op.permute_dims(right) if turned else right
        return last(relax.op.add(relax.op.matmul(x, right), relax.const(bias, dtype)))

    return program(of, (shape, dtype)), weight, bias


def close(found, exact, length, dtype="float32"):
    assert found.shape == exact.shape
    return np.abs(found - exact).max() < rounding(dtype, length, np.abs(exact).max())


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


@pytest.mark.parametrize(
    ("shape", "columns", "lanes"),
    combinations(SHAPES, [16, 48, 192, 768], LANES),
    indirect=["lanes"],
)
def test_products_agree_with_numpy(shape, columns, lanes):
    mod, weight, bias = layer(shape, columns, turned=len(shape) == 3, last=relax.op.nn.relu)
    assert "packed_matmul" in kernels(mod)
    run = compiled(mod, OURS)
    x = np.random.default_rng(1).normal(size=shape).astype("float32")
    for given in (x, -x):  # a second run finds nothing of the first
        exact = np.maximum(given.astype("float64") @ weight.astype("float64") + bias, 0)
        assert close(run(given), exact, shape[-1])


@pytest.mark.parametrize(
    ("shape", "columns", "dtype"),
    [((1, 768), 768, "float32"), ((14, 8), 10, "float32"), ((14, 8), 48, "float64")],
)
def test_other_products_go_to_pytorch(shape, columns, dtype):
    mod, weight, bias = layer(shape, columns, dtype)
    assert "packed_matmul" not in kernels(mod)
    x = np.random.default_rng(1).normal(size=shape).astype(dtype)
    assert close(compiled(mod, OURS)(x), x @ weight + bias, shape[-1], dtype)


def test_without_a_library_the_rest_stays_tvms_and_the_target_says_how_wide_registers_are():
    mod, *_ = layer((14, 32), 48)
    assert "packed_matmul" in {
        str(g.name_hint) for g in dispatched(mod, f"llvm {SCHEDULES}").functions
    }
    other, *_ = layer((14, 8), 10)
    left = dispatched(other, f"llvm {SCHEDULES}")
    assert "R.matmul" in str(left)
    assert "relascope.matmul" not in str(left)
    assert dispatched(mod, "llvm").same_as(mod)
    made = [parse(f"llvm -mcpu={name}") for name in ("cascadelake", "haswell")]
    assert [blas.registers_of(target) for target in made] == [AVX512, AVX2]
    assert blas.registers_of(parse("llvm")) == AVX2


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
    def of(x, w):
        right = relax.op.permute_dims(w) if turned else w
        return relax.op.add(relax.op.matmul(x, right), relax.const(1.0, dtype))

    return program(of, (shape, dtype), (weight, dtype))


@pytest.mark.parametrize(
    ("size", "inner", "lanes"),
    combinations(
        [((14,), 48), ((1, 14), 192), ((3, 5), 768), ((7,), 64), ((2, 3, 4), 96), ((48,), 16)],
        [64, 128, 768, 96],
        LANES,
    ),
    indirect=["lanes"],
)
@pytest.mark.parametrize("turned", [False, True])
def test_few_rows_by_a_weight_that_is_an_argument(size, inner, turned, lanes):
    shape, columns = size
    weight = (columns, inner) if turned else (inner, columns)
    mod = product((*shape, inner), weight, turned)
    assert "packed_matmul" in kernels(mod)
    run, random = compiled(mod, OURS), np.random.default_rng(1)
    x, w = (random.normal(size=s).astype("float32") for s in ((*shape, inner), weight))
    for given in (x, -x):  # a second run finds nothing of the first
        exact = given.astype("float64") @ (w.T if turned else w).astype("float64") + 1
        assert close(run(given, w), exact, inner)


@pytest.mark.parametrize(
    ("sizes", "lanes"),
    combinations([(14, 48, 72), (1, 8, 16), (48, 4, 768)], LANES),
    indirect=["lanes"],
)
def test_the_gradient_of_a_weight_from_few_rows(sizes, lanes):
    inner, rows, columns = sizes
    given = [((inner, extent), "float32") for extent in (rows, columns)]
    mod = program(lambda x, y: relax.op.matmul(relax.op.permute_dims(x), y), *given)
    assert "packed_matmul" in kernels(mod)
    random = np.random.default_rng(1)
    a, b = (random.normal(size=(inner, e)).astype("float32") for e in (rows, columns))
    assert close(compiled(mod, OURS)(a, b), a.T.astype("float64") @ b, inner)


@pytest.mark.parametrize("turned", [False, True])
def test_many_rows_by_a_weight_that_is_an_argument_go_to_pytorch(turned):
    assert "packed_matmul" not in kernels(product((1024, 128), (128, 128), turned))


@pytest.mark.parametrize("columns", [48, 768])
def test_the_code_asks_memory_for_what_comes_next(columns):
    mod, _, _ = layer((14, 64), columns)
    code = str(make(mod, BuildOptions(OURS)).mod.imports[0].inspect_source("asm"))
    assert "prefetch" in code
