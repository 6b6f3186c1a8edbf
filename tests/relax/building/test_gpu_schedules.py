"""Relax on a GPU without tuning: DLight's rules, one after the other."""

import sys
from functools import partial
from tempfile import mkdtemp
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
import tvm
from tvm import relax, te, tirx
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from answers import refused
from quick import QUICK
from relascope.engine.building import launches as facts
from relascope.engine.building.options import BuildOptions
from relascope.engine.measure.tuner import Workload
from relascope.engine.protocol import records
from relascope.engine.protocol.artefact import KernelCode, Launch
from relascope.engine.relax.building import runtime
from relascope.engine.relax.building.libraries import launches
from relascope.engine.relax.building.targets import parse, target
from relascope.engine.relax.kernels import blas
from relascope.engine.relax.kernels.gpu_schedules import RULE, SUMMED, schedule_on_gpu
from relascope.engine.relax.tune import tuning
from relax_modules import compiled, program

CUDA = "cuda -arch=sm_80"


def built(shapes, make, options=CUDA):
    watch = launches()
    mod = program(make, *((s, "float32") for s in shapes))
    watching = [watch.instrument(tvm.instrument.pass_instrument)]
    runtime.make(mod, BuildOptions(options), watching)
    return list(watch.launches.values())


def notes(found):
    return list(facts.notes([KernelCode("k", "forward", None, (), tuple(found))], "cuda"))


def test_a_product_is_tiled_and_elements_shared_among_many_blocks():
    (one,) = built([(128, 64), (64, 96)], relax.op.matmul)
    assert one.schedule == "DLight's Matmul"
    assert one.threads == 128 and one.blocks > 1 and 0 < one.shared_bytes <= 48 * 1024
    (one,) = built([(64, 256)], lambda x: relax.op.add(x, x))
    assert (one.threads, one.blocks) == (256, 64)


def test_the_next_rule_has_its_turn_where_one_fails():
    def gradient(x, y):  # DLight's rule for vectors fails on it
        return relax.op.sum(relax.op.divide(relax.op.negative(relax.op.multiply(x, y)), x), [1])

    (one,) = built([(8, 256), (8, 256)], gradient)
    assert one.schedule == "DLight's Reduction" and one.threads >= 32

    def gradient(given, x):  # a pooling's, whose maxima's places TVM knows no way to find together
        about = {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1, 1, 1)}
        pooled = relax.op.grad.max_pool2d_backward(given, x, **about)
        zero = relax.const(0.0, "float32")
        return relax.op.where(relax.op.less_equal(x, zero), zero, pooled)

    found = built([(2, 8, 16, 16), (2, 8, 32, 32)], gradient)
    assert {one.schedule for one in found} == {"DLight's Fallback"}
    assert not notes(found)


def test_sums_are_a_thread_each_where_no_rule_takes_them():
    shapes = [(2, 32, 16, 16), (32, 1, 3, 3)]
    (one,) = built(shapes, lambda x, w: relax.op.nn.conv2d(x, w, groups=32))
    assert one.schedule == "DLight's Fallback" and one.threads == 256
    assert not notes([one])
    mod = tvm.IRModule({"main": padded()})
    with parse(CUDA):
        assert schedule_on_gpu([])(mod)["main"].attrs[RULE] == SUMMED
    one = Launch("k_kernel", 4, 256, 0, f"DLight's {SUMMED}")
    assert any("one thread computes each sum" in note for note in notes([one]))


def padded():
    """A product whose result is written with a border, in one kernel."""
    x, y = (te.placeholder((64, 64), name=n) for n in "xy")
    k = te.reduce_axis((0, 64), name="k")
    made = te.compute((64, 64), lambda i, j: te.sum(x[i, k] * y[k, j], axis=k), name="made")

    def border(i, j):
        inside = tirx.all(i >= 1, i < 65, j >= 1, j < 65)
        return tirx.if_then_else(inside, made[i - 1, j - 1], tirx.const(0.0, "float32"))

    return te.create_prim_func([x, y, te.compute((66, 66), border, name="wide")])


def test_whose_kernels_a_target_takes_is_said():
    assert target(CUDA).kernels == "DLight's schedules"
    library = target(f"{CUDA} -libs=blas").kernels
    assert library == "PyTorch's cuBLAS and cuDNN, DLight's schedules"


@derived_object
class Unbuilt(ms.builder.PyBuilder):
    def build(self, inputs):
        return [ms.builder.BuilderResult(f"{mkdtemp()}/file", None) for _ in inputs]


@derived_object
class Unmeasured(ms.runner.PyRunner):
    def run(self, inputs):
        return [ms.runner.local_runner.LocalRunnerFuture([1e-3], None) for _ in inputs]


@pytest.mark.parametrize("what", ["product", "sum", "pointwise"])
def test_records_of_schedules_for_a_gpu_are_such_as_are_read(what, tmp_path, monkeypatch):
    # The instructions of all tensor cores take half a minute to import; this GPU has none.
    monkeypatch.setitem(sys.modules, "tvm.s_tir.tensor_intrin", ModuleType("tensor_intrin"))
    for name, few in {"POPULATION": 16, "SAMPLED": 8, "GENERATIONS": 1}.items():
        monkeypatch.setattr(tuning, name, few)
    a, b = (te.placeholder((64, 64), "float32", name) for name in "ab")
    k = te.reduce_axis((0, 64), "k")
    made = {
        "product": lambda: te.compute((64, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k)),
        "sum": lambda: te.compute((64,), lambda i: te.sum(a[i, k], axis=k)),
        "pointwise": lambda: te.compute((64, 64), lambda i, j: a[i, j] * b[i, j]),
    }[what]()
    main = te.create_prim_func([a, *([b] * (what != "sum")), made])
    work = Workload("key", what, (), None, SimpleNamespace(mod=tvm.IRModule({"main": main})))
    limits = f"-max_threads_per_block=1024 -max_shared_memory_per_block={48 << 10}"
    old, found = f"cuda -arch=sm_61 {limits}", []
    searched = tuning.ScheduleSearch(old, 1, (Unbuilt(), Unmeasured()), seed=0)
    searched.search(work, tmp_path, 8, found.extend)
    lines = list(records.checked(tmp_path / records.SCHEDULES))
    used = {step[0] for line in lines for step in line[1][0][0]}
    assert len(lines) == len(found) > 0 and {"Bind", "Fuse", "Split"} <= used
    assert ("CacheRead" in used) == (what == "product")


def _to_rows(data, places, rows):
    return relax.op.grad.take_backward(rows, data, places, 0)


def _elements(data, places, rows, by):
    spread = relax.op.broadcast_to(relax.op.expand_dims(places, 1), [4, 3])
    return relax.op.scatter_elements(data, spread, rows, 0, by)


def _nd(data, places, rows):
    return relax.op.scatter_nd(data, relax.op.expand_dims(places, 1), rows, "add")


def _put(data, places, rows, add):
    columns = relax.const([0, 1, 2, 0], "int64")
    return relax.op.index_put(data, [places, columns], relax.op.sum(rows, [1]), add)


@pytest.mark.parametrize(
    ("make", "places"),
    [
        *((make, [3, 4, 0, 3]) for make in (_to_rows, _nd)),
        *((partial(_elements, by=by), [3, -1, 0, 3]) for by in ("add", "mul", "max", "min")),
        (partial(_put, add=True), [3, -1, 0, 3]),
        (partial(_elements, by="update"), [4, -3, 0, 3]),
        (partial(_put, add=False), [4, -3, 0, 3]),
    ],
)
def test_pytorch_scatters_as_tvm_does(make, places):
    given = program(make, ((5, 3), "float32"), ((4,), "int64"), ((4, 3), "float32"))
    ours = blas.dispatch(given, on_gpu=True)
    assert "call_dps_packed" in str(ours)
    drawn = torch.Generator().manual_seed(0)
    data, rows = (torch.randn(n, 3, generator=drawn).numpy() for n in (5, 4))
    arrays = data, np.array(places), rows
    theirs, found = (torch.from_numpy(compiled(m, QUICK)(*arrays)) for m in (given, ours))
    torch.testing.assert_close(found, theirs)


def test_a_kernel_without_threads_is_refused():
    """TVM would run it on the processor, with addresses of the GPU's memory."""
    with refused("target", match="no GPU kernel for take_backward", hint="-libs=blas"):
        built([(5, 3), (4, 3)], lambda x, y: _to_rows(x, relax.const([0, 1, 4, 0]), y))
