"""Kernels of our schedules, products and arithmetic of our own, against PyTorch and NumPy."""

import numpy as np
import pytest
import torch
import tvm
from scipy import special
from tvm import relax, tirx

import parallel_loops
from answers import quiet
from edge_values import drawn, forward_agrees
from gradients import Fn
from limits import POINTWISE, rounding
from quick import combinations
from relascope.engine.building.options import BuildOptions
from relascope.engine.cpu_kernels.packed_matmul import AVX2, AVX512
from relascope.engine.in_process import LiveProgram, load_engine
from relascope.engine.protocol.source import ModelSource
from relascope.engine.pytorch.model import model_from_module
from relascope.engine.relax.building.runtime import dispatched, make
from relascope.engine.relax.building.split_slices import split_slices
from relascope.engine.relax.building.targets import SCHEDULES, parse
from relascope.engine.relax.kernels import blas
from relascope.engine.relax.kernels.schedules import schedule_kernels
from relax_modules import compiled, program
from scheduled_kernels import *  # noqa: F403
from scheduled_kernels import OURS

EXACT = {"exp": np.exp, "erf": special.erf, "tanh": np.tanh, "sigmoid": special.expit}
EXACT |= {"sin": np.sin, "cos": np.cos}
EDGES = (np.nan, np.inf, -np.inf, 0.0, -0.0, 88.7, 88.73, -87.5, -103.0, -104.5, 1e30, -1e30)


def run(mod, target, *values):
    return compiled(mod, target)(*values)


def numbers(count):
    random = np.random.default_rng(0)
    parts = [random.uniform(*ends, count) for ends in ((-105, 95), (-6, 6))]
    parts += [random.normal(0, width, count) for width in (1e-3, 1e-30)]
    return np.concatenate([EDGES, *parts]).astype("float32")


@pytest.mark.parametrize("name", sorted(EXACT))
def test_vector_arithmetic_is_a_few_units_in_the_last_place_from_the_exact_value(name):
    x = numbers(20_001)
    found = run(program(getattr(relax.op, name), (x.shape, "float32")), OURS, x).astype("float64")
    with np.errstate(all="ignore"):
        exact = EXACT[name](x.astype("float64"))
        rounded = exact.astype("float32")
    assert np.array_equal(np.isnan(found), np.isnan(exact))
    assert np.array_equal(np.isinf(found), np.isinf(rounded))
    finite, normal = np.isfinite(rounded), np.abs(rounded) >= np.finfo("float32").tiny
    off, unit = np.abs(found[finite] - exact[finite]), np.spacing(np.abs(rounded[finite]))
    units = (off / unit)[normal[finite]]
    # What is too small for a float32 has not all its digits.
    assert off[~normal[finite]].max(initial=0) < 1.2e-38
    assert units.max() < 6
    assert not units.max() < 0.01  # the reference is not what it is compared with


@pytest.mark.parametrize("name", sorted(EXACT))
def test_float64_is_computed_as_before(name):
    x = np.linspace(-5, 5, 1001)
    found = run(program(getattr(relax.op, name), (x.shape, "float64")), OURS, x)
    near = {"rel": rounding("float64", POINTWISE), "abs": rounding("float64", 1)}
    assert found == pytest.approx(EXACT[name](x), **near)


def test_tanh_of_what_is_small_keeps_its_digits_on_every_target():
    x = np.full(64, 1e-8, "float32")
    mod = program(relax.op.tanh, (x.shape, "float32"))
    for target in (OURS, "llvm"):
        assert run(mod, target, x)[0] == pytest.approx(1e-8)


def kernels(mod):
    target = parse(OURS)
    with target:
        for each in ("LegalizeOps", "AnnotateTIROpPattern", "FuseOps", "FuseTIR"):
            mod = getattr(relax.transform, each)()(mod)
        made = schedule_kernels(mod)
    return [f.script() for f in made.functions.values() if isinstance(f, tirx.PrimFunc)]


def test_a_chain_is_one_loop_and_writes_nothing_in_between():
    def chain(x):
        return relax.op.multiply(relax.op.exp(relax.op.add(x, x)), x)

    (text,) = kernels(program(chain, ((256, 1024), "float32")))
    assert "sblock_alloc_buffer" not in text
    assert text.count("T.parallel") == 1
    (small,) = kernels(program(chain, ((2, 8), "float32")))
    assert "T.parallel" not in small  # not worth waking threads for


def test_a_sum_runs_along_memory_and_unknown_shapes_are_left_alone():
    (text,) = kernels(program(lambda x: relax.op.sum(x, axis=[0]), ((512, 768), "float32")))
    loops = [line.strip() for line in text.splitlines() if line.strip().startswith("for ")]
    assert loops[0].startswith("for ax0_0 in T.parallel(T.int64(2))")
    assert loops[-1].startswith("for k0, ax0_1 in T.grid(T.int64(512), T.int64(384))")
    (text,) = kernels(program(relax.op.exp, ((tirx.Var("n", "int64"), 8), "float32")))
    assert "T.parallel" not in text


@pytest.mark.parametrize("side", [4, 8, 16])
def test_outer_products_laid_out_flat_are_read_at_their_places(side):
    """LLVM reads past the end where a loop divides its counter by the length of its vectors."""
    rows = 8

    def outer(x, y):
        pairs = relax.op.expand_dims(x, 2) * relax.op.expand_dims(y, 1)
        return relax.op.reshape(pairs, (rows, side * side))

    flat = program(outer, *[((rows, side), "float32")] * 2)
    x, y = (np.random.default_rng(s).normal(size=(rows, side)).astype("float32") for s in (0, 1))
    assert np.array_equal(run(flat, OURS, x, y), (x[:, :, None] * y[:, None]).reshape(rows, -1))


def test_what_lies_behind_a_slice_in_another_shape():
    """LLVM reads past the end where a loop that is not written out divides its counter less one."""

    def few(x, y, z):
        x = x.clone()
        seen = x[:, 1:, 1:].reshape(2, 16, 16, 4, 4) + y.unsqueeze(-1) + z.unsqueeze(-2)
        x[:, 1:, 1:] = seen.reshape(2, 256, 16)
        return x

    def many(x, y):
        x = x.clone()
        seen = x[:, 1:, 1:].reshape(2, 256, 32, 4) + y.reshape(2, 256, 1, 4)
        x[:, 1:, 1:] = seen.reshape(2, 256, 128)
        return x

    random = torch.Generator().manual_seed(0)
    sides = [torch.randn(2, 16, 16, 4, generator=random) for _ in range(2)]
    for form, width, beside in ((few, 17, sides), (many, 129, sides[:1])):
        tensors = torch.randn(2, 257, width, generator=random), *beside
        given = dict(zip("xyz", tensors, strict=False))
        model = model_from_module(
            Fn(form), tuple(given), tuple(given.values()), ModelSource("sliced"), quiet
        )
        live = LiveProgram(load_engine("relax"), model, ("min_cut", None), OURS)
        torch.testing.assert_close(live.forward(given), model.forward())


def test_loops_run_on_pytorchs_threads():
    x = torch.rand(512, 512)
    kernel = compiled(program(relax.op.exp, (x.shape, "float32")), OURS)
    parallel_loops.check_loops_on_pytorchs_threads(lambda _: kernel(x))


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


def check_products(mod, exact, *shapes, length, dtype="float32", packed=True):
    """Against NumPy in float64; a second run has nothing left of the first."""
    assert ("packed_matmul" in dispatched_to(mod)) == packed
    run, random = compiled(mod, OURS), np.random.default_rng(1)
    x, *rest = (random.normal(size=shape).astype(dtype) for shape in shapes)
    for given in (x, -x):
        found, wanted = run(given, *rest), exact(given.astype("float64"), *rest)
        assert found.shape == wanted.shape
        assert np.abs(found - wanted).max() < rounding(dtype, length, np.abs(wanted).max())


def dispatched_to(mod):
    return {str(g.name_hint) for g in blas.dispatch(mod, registers=AVX2).functions}


SHAPES = [(14, 32), (1, 14, 48), (3, 14, 48), (8, 128, 64), (2, 3, 4, 16)]
SHAPES += [(7, 40), (197, 24), (2, 5, 3072), (2, 8)]


@pytest.mark.parametrize(
    ("shape", "columns", "lanes"),
    combinations(SHAPES, [16, 48, 192, 768], LANES),
    indirect=["lanes"],
)
def test_products_agree_with_numpy(shape, columns, lanes):
    mod, weight, bias = layer(shape, columns, turned=len(shape) == 3, last=relax.op.nn.relu)
    check_products(mod, lambda x: np.maximum(x @ weight + bias, 0), shape, length=shape[-1])


@pytest.mark.parametrize(
    ("shape", "columns", "dtype"),
    [((1, 768), 768, "float32"), ((14, 8), 10, "float32"), ((14, 8), 48, "float64")],
)
def test_other_products_go_to_pytorch(shape, columns, dtype):
    mod, weight, bias = layer(shape, columns, dtype)
    about = {"length": shape[-1], "dtype": dtype, "packed": False}
    check_products(mod, lambda x: x @ weight + bias, shape, **about)


def test_without_a_library_the_rest_stays_tvms_and_the_target_says_how_wide_registers_are():
    mod, *_ = layer((14, 32), 48)
    assert "packed_matmul" in str(dispatched(mod, f"llvm {SCHEDULES}"))
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
    names = []

    @tvm.ir.instrument.pass_instrument
    class Watch:
        def run_after_pass(self, mod, info):
            if info.name == "FuseTIR":
                names.extend(str(g.name_hint) for g in mod.functions)

    make(mod, BuildOptions(OURS), [Watch()])
    assert any("packed_matmul_add" in n and "gelu" in n for n in names)


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

    def exact(x, w):
        return x @ (w.T if turned else w) + 1

    check_products(mod, exact, (*shape, inner), weight, length=inner)


@pytest.mark.parametrize(
    ("sizes", "lanes"),
    combinations([(14, 48, 72), (1, 8, 16), (48, 4, 768)], LANES),
    indirect=["lanes"],
)
def test_the_gradient_of_a_weight_from_few_rows(sizes, lanes):
    inner, rows, columns = sizes
    shapes = (inner, rows), (inner, columns)
    kinds = [(shape, "float32") for shape in shapes]
    mod = program(lambda x, y: relax.op.matmul(relax.op.permute_dims(x), y), *kinds)
    check_products(mod, lambda x, y: x.T @ y, *shapes, length=inner)


@pytest.mark.parametrize("turned", [False, True])
def test_many_rows_by_a_weight_that_is_an_argument_go_to_pytorch(turned):
    assert "packed_matmul" not in dispatched_to(product((1024, 128), (128, 128), turned))


@pytest.mark.parametrize("columns", [48, 768])
def test_the_code_asks_memory_for_what_comes_next(columns):
    mod, _, _ = layer((14, 64), columns)
    code = str(make(mod, BuildOptions(OURS)).mod.imports[0].inspect_source("asm"))
    assert "prefetch" in code


def split(x):
    first, second, _ = x.split([1, 4, 2], 1)
    return torch.cat([second * 2, first], 1) * x.chunk(3, -1)[2].sum()


def test_splits_are_slices_where_kernels_are_made():
    live, _ = forward_agrees(split, drawn(2, 7, 12))
    before, after = (str(m) for m in (live.program.mod, split_slices(live.program.mod)))
    assert "R.split" in before
    assert "R.split" not in after
    assert after.count("R.strided_slice") == 3

    def parts(x):
        across, along = relax.op.split(x, 3, axis=-1), relax.op.split(x, [2], axis=0)
        return relax.Tuple([relax.TupleGetItem(across, 2), relax.TupleGetItem(along, 1)])

    rows = tvm.tirx.Var("n", "int64")
    after = str(split_slices(program(parts, ([rows, 6], "float32"))))
    assert (after.count("R.strided_slice"), after.count("R.split")) == (1, 1)


def test_indices_that_are_computed_are_read_where_kernels_are_fused():
    def taken(x, i):
        behind = relax.op.add(i, relax.const(5, "int64"))
        at = relax.op.where(relax.op.less(i, relax.const(0, "int64")), behind, i)
        return relax.op.index_tensor(x, [at])

    run = compiled(program(taken, ([5], "float32"), ([5], "int64")), "llvm -schedules=relascope")
    made = run(np.arange(5, dtype="float32"), np.array([0, -1, 2, -5, 4]))
    assert made.tolist() == [0.0, 4.0, 2.0, 0.0, 4.0]
