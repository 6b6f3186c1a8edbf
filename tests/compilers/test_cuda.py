"""CUDA's libraries, compilers and graphs on machines with and without them; no GPU is needed."""

import contextlib
import ctypes
import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from answers import answer, refused
from relascope.core.graph import TensorType
from relascope.engine.building import cuda_compiler, cuda_graphs
from relascope.engine.building.executables import OwnMemory
from relascope.engine.protocol.session import silent
from relascope.engine.protocol.source import ModelSource
from relascope.engine.protocol.target_text import refuse_elsewhere
from relascope.engine.pytorch.model import load_model
from relascope.engine.relay.tvm.cuda_stubs import read_needs, stub_library

TANH = """
#include <math_constants.h>
extern "C" __global__ void __launch_bounds__(64) k(float* a) {
  a[threadIdx.x] = tanhf(a[threadIdx.x]) - CUDART_INF_F;
}
"""
NVRTC = r"""
#include <stdlib.h>
#include <string.h>
static char told[100000];
int nvrtcCreateProgram(void** program, const char* source, const char* name, int count,
                       const char** headers, const char** names) {
  strcpy(told, source);
  for (int i = 0; i < count; i++) strcat(strcat(told, " header:"), names[i]);
  *program = told;
  return 0;
}
int nvrtcCompileProgram(void* program, int count, const char** options) {
  for (int i = 0; i < count; i++) strcat(strcat(told, " "), options[i]);
  return strstr(told, "wrong") ? 6 : 0;
}
int nvrtcGetPTXSize(void* program, size_t* size) { *size = strlen(told) + 1; return 0; }
int nvrtcGetPTX(void* program, char* room) { strcpy(room, told); return 0; }
int nvrtcGetProgramLogSize(void* program, size_t* size) { *size = 5; return 0; }
int nvrtcGetProgramLog(void* program, char* room) { strcpy(room, "oops"); return 0; }
int nvrtcDestroyProgram(void** program) { return 0; }
"""
RELAX = """
import json, tvm
before = tvm.get_global_func("device_api.cuda", allow_missing=True) is not None
from relascope.engine.relax.building.cuda_runtime import missing
said = missing()
from tvm import relax
from relascope.engine.building.options import BuildOptions
from relascope.engine.relax.building import libraries, runtime
asked = []
def compile_cuda(source, arch, form):
    asked.append([arch, form, "__global__" in source])
    return b"\x7fELF"
libraries.compile_cuda = compile_cuda
x = relax.Var("x", relax.TensorType((64,), "float32"))
builder = relax.BlockBuilder()
with builder.function("main", [x]):
    with builder.dataflow():
        y = builder.emit_output(relax.op.add(x, x))
    builder.emit_func_output(y)
runtime.make(builder.get(), BuildOptions("cuda -arch=sm_90"))
after = tvm.get_global_func("device_api.cuda", allow_missing=True) is not None
print(json.dumps([before, said, after, asked]))
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    (tmp_path / "lib64").mkdir()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    found = cuda_compiler._nvrtc
    found.cache_clear()
    yield tmp_path / "lib64"
    found.cache_clear()


def test_numbers_are_computed_as_they_are_written():
    if not cuda_compiler.compiler():  # then there is that to see alone
        with pytest.raises(RuntimeError, match="Neither nvcc nor nvrtc"):
            cuda_compiler.compile_cuda(TANH, "sm_90", "ptx")
        return
    made = cuda_compiler.compile_cuda(TANH, "sm_90", "ptx").decode()
    assert ".entry k" in made and "sm_90" in made
    assert "tanh.approx" not in made  # which is off by 5e-4
    assert cuda_compiler.compile_cuda(TANH, "sm_80", "cubin")[:4] == b"\x7fELF"
    with pytest.raises(RuntimeError, match="bogus"):
        cuda_compiler.compile_cuda(TANH.replace("tanhf", "bogus"), "sm_90", "ptx")


def test_without_a_compiler_it_says_what_to_install(home, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(cuda_compiler, "_NVRTC", ("libnvrtc.so.0",))
    assert cuda_compiler.compiler() == ""
    with pytest.raises(RuntimeError, match="nvidia-cuda-nvrtc"):
        cuda_compiler.compile_cuda(TANH, "sm_90", "ptx")


def test_nvrtc_is_told_the_architecture_and_given_what_it_lacks(home, tmp_path, monkeypatch):
    source = tmp_path / "nvrtc.c"
    source.write_text(NVRTC)
    made = home / "libnvrtc.so.0"
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", made, source], check=True)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(cuda_compiler, "_NVRTC", (made.name,))
    assert cuda_compiler.compiler() == str(made)
    told = cuda_compiler.compile_cuda("void k() {}", "sm_90", "ptx").decode()
    assert "--gpu-architecture=compute_90" in told and "header:math_constants.h" in told
    assert "fast" not in told and "\0" not in told
    monkeypatch.setattr(cuda_compiler, "_nvrtc", lambda: (ctypes.CDLL(str(made)), made.name))
    assert cuda_compiler.compile_cuda("void k() {}", "sm_90", "ptx")  # which was loaded by name
    with pytest.raises(RuntimeError, match="oops"):
        cuda_compiler.compile_cuda("wrong", "sm_90", "ptx")


def test_relax_finds_cudas_runtime_where_the_loader_does_not_and_compiles_by_ours(home):
    spec = importlib.util.find_spec("tvm")
    assert spec is not None and spec.origin is not None
    needs = read_needs(Path(spec.origin).parent / "lib/libtvm_runtime_cuda.so")
    names = [n for n in needs.libraries if n.startswith("libcud")]
    assert names == ["libcudart.so.13", "libcuda.so.1"]
    for name in names:
        symbols = tuple(s for s in needs.wanted if s.library in ("", name))
        (home / name).write_bytes(stub_library(name, symbols))
    before, said, after, asked = answer(RELAX)
    assert said == "" and after
    assert asked == [["sm_90", "cubin", True]]
    if shutil.which("nvidia-smi") is None:
        assert not before


def test_gradients_are_taken_where_the_model_is_and_in_full_float32(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    model = load_model(ModelSource("mlp", training=True), silent)
    found = model.on("meta").gradients()
    assert found and {t.device.type for t in found.values()} == {"meta"}
    assert torch.backends.cudnn.allow_tf32
    with contextlib.suppress(AssertionError, RuntimeError):  # there is no GPU
        model.on("cuda")
    assert not torch.backends.cudnn.allow_tf32 and not torch.backends.cuda.matmul.allow_tf32


WITH_GRAPHS = "cuda -arch=sm_90 -libs=blas -graphs=cuda"
KIND = TensorType((2, 3), "float32")


class Function:
    """`x + w`, where it is run; `used` leaves an argument out."""

    used = ("x", "w")

    def __init__(self):
        self.arguments = {"x": KIND, "w": KIND, "unused": KIND}

    def run(self, values, keep=()):
        return (values["x"] + values["w"],)

    def own_memory(self, values):
        return OwnMemory(10, 4)


@pytest.fixture
def recorded(monkeypatch):
    """How often a graph was recorded. It reads and writes the memory that it was recorded with."""
    count = []

    def record(run):
        count.append(run)
        results = run()

        def replay():
            for result, again in zip(results, run(), strict=True):
                result.copy_(again)

        return replay, results

    monkeypatch.setattr(cuda_graphs, "record", record)
    return count


def test_a_graph_is_recorded_once_and_its_results_are_the_callers(recorded):
    function = cuda_graphs.as_target_says(Function(), WITH_GRAPHS)
    w, inputs = torch.randn(2, 3), [torch.randn(2, 3), torch.randn(3, 2).t(), torch.randn(2, 3)]

    def run(x, w):
        (result,) = function.run({"x": x, "w": w}, ["w"])
        return result

    results = [run(x, w) for x in inputs]
    assert all(torch.equal(result, x + w) for x, result in zip(inputs, results, strict=True))
    x, moved = inputs[-1], w + 1
    w += 1  # in place, as an optimizer does
    assert torch.equal(run(x, w), x + w) and len(recorded) == 1
    assert torch.equal(run(x, moved), x + w) and len(recorded) == 2
    function.function.arguments["x"] = TensorType(("n", 3), "float32")
    assert torch.equal(run(x[:1], moved), x[:1] + w) and len(recorded) == 3
    assert (function.used, function.own_memory({}).kept) == (("x", "w"), 10)


def test_graphs_are_refused_or_left_out_in_words(recorded, monkeypatch):
    function = cuda_graphs.as_target_says(Function(), WITH_GRAPHS)
    with refused("input", "x is float64"):
        function.run({"x": torch.randn(2, 3).double(), "w": torch.randn(2, 3)}, ["w"])

    def record(run):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(cuda_graphs, "record", record)
    with refused("target", r"a CUDA graph: operation not .* capturing\n", hint="Leave out"):
        function.run({"x": torch.randn(2, 3), "w": torch.randn(2, 3)}, ["w"])
    function = Function()
    assert cuda_graphs.as_target_says(function, "cuda -libs=blas") is function
    with refused("target", "CUDA graphs need an NVIDIA GPU"):
        refuse_elsewhere("llvm -graphs=cuda", {cuda_graphs.GRAPHS: cuda_graphs.ON_GPU})
