"""Relay on a GPU without tuning: tiles of templates, and products by PyTorch's cuBLAS."""

import json

import pytest
from tvm import relay

from relascope.core.errors import EngineError
from relascope.engine.building.launches import Launches
from relascope.engine.building.options import BuildOptions
from relascope.engine.protocol import records
from relascope.engine.protocol.target_text import library
from relascope.engine.relay.building import libraries, runtime
from relascope.engine.relay.building.libraries import launches
from relascope.engine.relay.building.targets import LIBRARIES, parse, target
from relascope.engine.relay.kernels import blas
from relascope.engine.relay.kernels.schedules import bits_of_numbers
from relay_functions import module_of, var

import tvm  # isort: skip
from tvm import autotvm, te  # isort: skip

CUDA = "cuda -arch=sm_80"


@pytest.mark.parametrize("template", ["conv2d_nchw.cuda", "conv2d_nchw_winograd.cuda"])
def test_records_of_templates_on_a_gpu_are_such_as_are_read(template):
    tensors = [("TENSOR", size, "float32") for size in ((1, 64, 32, 32), (64, 64, 3, 3))]
    given = [*tensors, (1, 1), (1, 1, 1, 1), (1, 1), "float32"]
    task = autotvm.task.create(template, given, target=parse(CUDA))
    space, result = task.config_space, autotvm.MeasureResult((1e-3,), 0, 1.0, 1.0)
    for index in range(0, len(space), len(space) // 20):
        asked = autotvm.MeasureInput(task.target, task, space.get(index))
        line = json.loads(autotvm.record.encode(asked, result))
        records.check(records.AUTOTVM, line)
        line["config"]["entity"][0][1] = "os.system"
        with pytest.raises(ValueError, match="entity says"):
            records.check(records.AUTOTVM, line)


def built(body, options: str) -> tuple[Launches, str]:
    watch, kinds = launches(), []

    @tvm.instrument.pass_instrument
    class Kinds:
        def run_after_pass(self, mod, info):
            if info.name.endswith(".MakePackedAPI"):
                kinds.append(str(mod))

    mod = module_of(body)
    if library(options, LIBRARIES):
        blas.register()
    watching = [watch.instrument(tvm.instrument.pass_instrument), Kinds()]
    with libraries._source_alone():
        runtime.make(mod["main"], BuildOptions(options), watching)
    return watch, "\n".join(kinds)


def conv2d(groups=1, transposed=False, image=(2, 16, 8, 8), channels=16, size=3):
    x, w = var("x", *image), var("w", channels, image[1] // groups, size, size)
    make = relay.nn.conv2d_transpose if transposed else relay.nn.conv2d
    kernel = {"channels": channels, "kernel_size": (size, size)}
    return make(x, w, padding=(size // 2, size // 2), groups=groups, **kernel)


def product(rows, columns, dtype="float32"):
    x, y = var("x", 6, rows, 64, dtype=dtype), var("y", 6, columns, 64, dtype=dtype)
    return relay.nn.batch_matmul(x, y)


@pytest.mark.parametrize(
    "body",
    [
        *(conv2d(), conv2d(groups=16), conv2d(groups=4), conv2d(transposed=True)),
        conv2d(image=(4, 160, 2, 2), channels=960, size=1),
        conv2d(image=(2, 64, 28, 28), channels=3, size=7),
        product(65, 65),
    ],
    ids=["conv2d", "depthwise", "grouped", "transposed", "pointwise", "to few", "product"],
)
def test_no_template_is_left_with_one_thread(body):
    watch, _ = built(body, CUDA)
    assert watch.launches
    for launch in watch.launches.values():
        assert 32 <= launch.threads <= 1024, launch
        assert launch.blocks > 1 and launch.shared_bytes <= 48 * 1024


def test_products_go_to_cublas_where_it_has_them():
    for body in (relay.nn.dense(var("x", 8, 64), var("w", 16, 64)), product(16, 16)):
        watch, loops = built(body, f"{CUDA} -libs=cublas")
        assert not watch.launches and "tvm.contrib.cublas." in loops
    watch, loops = built(product(16, 16, "float16"), f"{CUDA} -libs=cublas")
    assert watch.launches and "tvm.contrib.cublas." not in loops


def test_a_gpus_memory_is_handed_to_pytorch_as_it_lies(monkeypatch):
    seen = []
    monkeypatch.setattr(blas.torch, "as_tensor", lambda view, device: seen.append((view, device)))
    blas._on.cache_clear()
    blas._on(1, 4096, (2, 3), 64)
    ((view, device),) = seen
    blas._on.cache_clear()
    assert str(device) == "cuda:1"
    facts = {"data": (4096, False), "shape": (2, 3), "typestr": "<f8"}
    assert view.__cuda_array_interface__.items() >= facts.items()


def test_a_library_is_tried_with_a_product_and_amds_gpus_are_refused():
    found = target("llvm -libs=mkl")
    assert found.runs_here and not found.missing
    wanted = target(f"{CUDA} -libs=cublas")
    assert wanted.kernels == "PyTorch's cuBLAS, TVM's default schedules"
    with pytest.raises(EngineError, match="AMD's GPUs"):
        target("rocm -mcpu=gfx906")


def test_bits_of_a_number_are_a_number():
    """CUDA's source cannot read them."""
    x = te.placeholder((2,), "int32", name="x")
    half = tvm.tir.const(0.5, "float32")
    y = te.compute((2,), lambda i: x[i] + tvm.tir.reinterpret("int32", half))
    with parse(CUDA):
        mod = bits_of_numbers(tvm.IRModule({"main": te.create_prim_func([x, y])}))
    assert "reinterpret" not in str(mod) and str(0x3F000000) in str(mod)
