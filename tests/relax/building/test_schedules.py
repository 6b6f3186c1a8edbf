"""Kernels scheduled by us, and the arithmetic that stands for exp and the like, hold what they
compute against PyTorch and SciPy."""

import numpy as np
import pytest
import torch
from scipy import special
from tvm import relax, tirx

import parallel_loops
from answers import quiet
from gradients import Fn
from limits import POINTWISE, rounding
from relascope.engine.in_process import LiveProgram, load_engine
from relascope.engine.protocol.source import ModelSource
from relascope.engine.pytorch.model import model_from_module
from relascope.engine.relax.building.targets import parse
from relascope.engine.relax.kernels.schedules import schedule_kernels
from relax_modules import compiled, program
from scheduled_kernels import *  # noqa: F403
from scheduled_kernels import OURS

EXACT = {"exp": np.exp, "erf": special.erf, "tanh": np.tanh, "sigmoid": special.expit}
EDGES = (np.nan, np.inf, -np.inf, 0.0, -0.0, 88.7, 88.73, -87.5, -103.0, -104.5, 1e30, -1e30)


def run(mod, target, *values):
    return compiled(mod, target)(*values)


def numbers(count):
    random = np.random.default_rng(0)
    parts = [
        random.uniform(-105, 95, count),
        random.uniform(-6, 6, count),
        random.normal(0, 1e-3, count),
        random.normal(0, 1e-30, count),
    ]
    return np.concatenate([EDGES, *parts]).astype("float32")


@pytest.mark.parametrize("name", sorted(EXACT))
def test_vector_arithmetic_is_a_few_units_in_the_last_place_from_the_exact_value(name):
    x = numbers(20_000)
    found = run(program(getattr(relax.op, name), (x.shape, "float32")), OURS, x).astype("float64")
    with np.errstate(all="ignore"):
        exact = EXACT[name](x.astype("float64"))
        rounded = exact.astype("float32")
    assert np.array_equal(np.isnan(found), np.isnan(x))
    assert np.array_equal(np.isinf(found), np.isinf(rounded))
    finite, normal = np.isfinite(rounded), np.abs(rounded) >= np.finfo("float32").tiny
    off, unit = np.abs(found[finite] - exact[finite]), np.spacing(np.abs(rounded[finite]))
    units = (off / unit)[normal[finite]]
    assert off[~normal[finite]].max() < 1.2e-38  # too small for a float32 to have all its digits
    assert units.max() < 6
    assert not units.max() < 0.01  # the reference is not what it is compared with


@pytest.mark.parametrize("name", sorted(EXACT))
def test_float64_is_computed_as_before(name):
    x = np.linspace(-5, 5, 1001)
    found = run(program(getattr(relax.op, name), (x.shape, "float64")), OURS, x)
    assert found == pytest.approx(
        EXACT[name](x), rel=rounding("float64", POINTWISE), abs=rounding("float64", 1)
    )


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
    n = tirx.Var("n", "int64")
    (text,) = kernels(program(relax.op.exp, ((n, 8), "float32")))
    assert "T.parallel" not in text


@pytest.mark.parametrize("side", [4, 8, 16])
def test_outer_products_laid_out_flat_are_read_at_their_places(side):
    """LLVM reads past the end where a loop divides its counter by the length of its vectors."""
    rows = 8
    flat = program(
        lambda x, y: relax.op.reshape(
            relax.op.expand_dims(x, 2) * relax.op.expand_dims(y, 1), (rows, side * side)
        ),
        ((rows, side), "float32"),
        ((rows, side), "float32"),
    )
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
