"""Kernels scheduled by us hold what PyTorch computes, in the engine whose TVM is here."""

import math
from importlib import import_module

import pytest
import torch
from torch.nn import functional as F

import parallel_loops
from gradients import Fn, draw, imported, runtime, values_of
from limits import rounding
from quick import ENGINE, combinations
from relascope.engine.building.options import BuildOptions
from relascope.engine.cpu_kernels import max_pool
from relascope.engine.cpu_kernels.schedules import SCHEDULES, scheduled

BLAS = import_module(f"relascope.engine.{ENGINE}.building.targets").BLAS
DIALECT = import_module(f"relascope.engine.{ENGINE}.kernels.schedules")._DIALECT
OURS = f"llvm {BLAS} {SCHEDULES}"
SCHEDULED = {
    "softmax": lambda x: x.softmax(-1),
    "softmax over rows": lambda x: x.softmax(-2),
    "log softmax": lambda x: x.log_softmax(-1),
    "layer norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "gelu, twice read": lambda x: (lambda y: y * y.sum(-1, keepdim=True))(F.gelu(x)),
    "columns": lambda x: (x * x).sum((0, 1)),
    "rows and columns": lambda x: x.sum((0, 2)),
    "all": lambda x: x.tanh().sum(),
    "largest": lambda x: x.amax(1) + x.amax(-1).amax(-1)[:, None],
    "turned": lambda x: x.transpose(0, 2).exp().transpose(1, 2),
    "gathered": lambda x: x.sigmoid()[:, torch.tensor([1, 0, 1])].sum(1),
    "joined": lambda x: torch.cat([x.exp(), x[:, :1]], 1).mean(-1),
    "a row's own factor": lambda x: x * x[:, :, :1].exp(),
    "a column's own factor": lambda x: x * x[:1, :1].exp(),
    "running sum": lambda x: x.cumsum(1) * 2,
    "sorted": lambda x: x.sort(-1).values + 1,
    "powers": lambda x: x**3 + (x * x) ** torch.tensor([[[[2.0]]]]) + (x.abs() + 1) ** 1.5,
    "erf and variance": lambda x: x.erf() * x.var(-1, keepdim=True),
    "waves": lambda x: x.sin() * (x[:, :1] / 2).cos() * x.flip(-1).sin(),
    "waves, turned": lambda x: x.transpose(0, 2).cos().sin().transpose(1, 2),
    "waves in rows": lambda x: x.cos().softmax(-1) * x.sin().sum(-1, keepdim=True),
    "small products": lambda x: x @ x.mT,
    "products with one matrix": lambda x: x @ x[0].mT,
    "pooled": lambda x: F.max_pool2d(x[None], 2, stride=1),
    "convolution": lambda x: F.conv2d(x[None], torch.ones(4, len(x), 3, 3).to(x)),
}
IN_FLOAT64 = "softmax", "gelu, twice read", "rows and columns", "running sum", "powers"
IN_FLOAT64 += "small products", "products with one matrix"
"""A kind of loops each; the others have them, too."""


def agrees(function, x, dtype, target=OURS):
    model, program = imported(Fn(function), x, dtype=dtype)
    built = runtime.assemble(program, None, BuildOptions(target))
    ((found,), _), (theirs,) = built.forward(values_of(model, program)), model.forward()
    assert (found.shape, found.dtype) == (theirs.shape, theirs.dtype)
    exact = function(model.inputs[0].double())
    scale = exact.abs().max()
    assert (found - exact).abs().max() <= rounding(dtype, math.prod(x.shape), scale)


@pytest.mark.parametrize(
    ("name", "shape"), combinations(list(SCHEDULED), [(2, 3, 5), (3, 40, 384), (2, 64, 770)])
)
def test_scheduled_kernels_compute_what_pytorch_does(name, shape):
    agrees(SCHEDULED[name], draw(*shape), "float32")


@pytest.mark.parametrize(
    "name",
    [n if n in IN_FLOAT64 else pytest.param(n, marks=pytest.mark.exhaustive) for n in SCHEDULED],
)
def test_scheduled_kernels_in_float64(name):
    agrees(SCHEDULED[name], draw(2, 40, 770), "float64")


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_eight_sines_are_two_numbers_from_the_nearest_at_most(name):
    function = getattr(torch, name)
    bits = torch.randint(-(2**31), 2**31, (4, 1 << 14), generator=torch.Generator().manual_seed(0))
    x = bits.to(torch.int32).view(torch.float32)  # of any exponent, infinite, and not a number
    x[0, :3] = torch.tensor([math.inf, -math.inf, math.nan])
    _, program = imported(Fn(function), x)
    run = runtime.build(program, BuildOptions(OURS))
    (found,) = run.run({next(iter(run.arguments)): x})
    nearest = function(x.double()).float()
    assert torch.equal(found.isnan(), nearest.isnan())
    there, signs = ~nearest.isnan(), (found.signbit(), nearest.signbit())
    places = (v.view(torch.int32).long() & 0x7FFFFFFF for v in (found, nearest))
    one, other = (torch.where(sign, -at, at)[there] for sign, at in zip(signs, places, strict=True))
    assert (one - other).abs().max() <= 2
    assert ((one - other) != 0).float().mean() > 1e-3  # of the C library's none are


@pytest.mark.parametrize(
    ("function", "extents"),
    [
        (lambda x, bias, at: x[at] + bias[at[1], 0, 0], [24, 15]),
        (lambda x, bias, at: x[at] + x[(*at[:3], 0)], [120, 3]),
        (lambda x, bias, at: x[at] + at[3].astype("float32"), [120, 3]),
    ],
)
def test_loops_through_one_piece_of_memory_are_one(function, extents):
    x, bias = (DIALECT.tvm.te.placeholder(size) for size in ((4, 6, 5, 3), (6, 1, 1)))
    made = DIALECT.tvm.te.compute(x.shape, lambda *at: function(x, bias, at))
    kernel = scheduled(DIALECT, DIALECT.tvm.te.create_prim_func([x, bias, made]))
    (block,) = kernel.get_child_blocks(DIALECT.block(kernel, "root"))
    assert [int(kernel.get(loop).extent) for loop in kernel.get_loops(block)] == extents


def test_a_poolings_gradient_is_computed_plane_by_plane():
    te, options = DIALECT.tvm.te, ((3, 3), (2, 2), (1, 1), 2)
    grad, data = (te.placeholder((2, 3, size, size)) for size in (4, 8))
    made = max_pool.gradient(te, DIALECT.tir, grad, data, *options)
    number = te.compute((), lambda: DIALECT.tir.const(0.5, "float32"))  # a block of its own
    scaled = te.compute(data.shape, lambda *at: made[at] * number())
    kernel = scheduled(DIALECT, te.create_prim_func([grad, data, scaled]))
    blocks = kernel.get_child_blocks(DIALECT.block(kernel, "root"))
    first, *others = (kernel.get(loops[0]) for b in blocks if (loops := kernel.get_loops(b)))
    assert int(first.extent) == 2 * 3 and others
    assert all(first.loop_var.same_as(loop.loop_var) for loop in others)


def test_threads_share_the_rows_of_a_mean():
    te, tir = DIALECT.tvm.te, DIALECT.tir
    x, k = te.placeholder((512, 512)), te.reduce_axis((0, 512))
    total = te.compute((512, 1), lambda row, _: te.sum(x[row, k], k), "total")
    mean = te.compute((512, 1), lambda *at: total[at] / 512)
    kernel = scheduled(DIALECT, te.create_prim_func([x, mean]))
    row, *_ = kernel.get_loops(DIALECT.block(kernel, "total_update"))
    assert int(kernel.get(row).kind) == tir.ForKind.PARALLEL


def test_a_batch_norms_mean_is_not_one_long_sum():
    x = torch.full((8, 2, 256, 256), 0.1)
    agrees(lambda x: x.mean((0, 2, 3), keepdim=True), x, "float32", "llvm")


def test_a_kernel_may_be_one_number():
    number = DIALECT.tvm.te.compute((), lambda: DIALECT.tir.const(0.5, "float32"))
    assert scheduled(DIALECT, DIALECT.tvm.te.create_prim_func([number])) is not None


def test_every_task_runs_once_and_without_openmp_tvm_has_its_threads(monkeypatch):
    parallel_loops.check_every_task_runs_once()
    parallel_loops.check_no_team_without_openmp(monkeypatch)


def test_two_threads_take_turns():
    _, twice = imported(Fn(lambda x: x.exp().exp()), draw(256, 256))
    function = runtime.build(twice, BuildOptions("llvm", opt_level=0))
    (name,) = function.arguments
    parallel_loops.check_two_threads_take_turns(lambda x: function.run({name: x})[0])
