"""CUDA on machines with and without it: libraries, compilers, graphs, and what faults say."""

import contextlib
import ctypes
import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from answers import answer, assembled, refused
from relascope.core.graph import TensorType
from relascope.engine.building import cuda_compiler, cuda_graphs, elf, gpu_faults, launches
from relascope.engine.building.executables import OwnMemory
from relascope.engine.building.explain import explain
from relascope.engine.measure.memory import waited
from relascope.engine.protocol.artefact import KernelCode, Launch
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


TORCH_FULL = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB of "
    "which 1.21 GiB is free. Process 1 has 3.00 GiB memory in use."
)
TVM_FULL = (
    "Traceback (most recent call last):\n  3: tvm::runtime::CUDADeviceAPI::AllocDataSpace\n  File "
    '"/workspace/tvm/src/runtime/cuda/cuda_device_api.cc", line 129\nInternalError: Check failed: '
    "(e == cudaSuccess || e == cudaErrorCudartUnloading) is false: CUDA: out of memory"
)
TVM_NO_BINARY = (
    "CUDAError: cuModuleLoadData(&(module_[device_id]), data_.c_str()) failed with error: "
    "CUDA_ERROR_NO_BINARY_FOR_GPU"
)
FAULTS = {
    TORCH_FULL: "memory is full: 2.00 GiB more were asked for, and 1.21 GiB of 23.64 GiB are free",
    TVM_FULL: "memory is full",
    "CUDAError: cuModuleLoadData(...) failed with error: CUDA_ERROR_OUT_OF_MEMORY": "is full",
    "The NVIDIA driver on your system is too old (found version 11040). Please update": "11.4",
    "CUDA driver version is insufficient for CUDA runtime version": "driver is too old",
    "CUDA error: the provided PTX was compiled with an unsupported toolchain.": "too old",
    "CUDA error: no kernel image is available for execution on the device": "no code for this",
    TVM_NO_BINARY: "no code for this GPU's architecture",
    "nvcc fatal   : Unsupported gpu architecture 'compute_100'": "does not know",
    "ptxas fatal   : Value 'sm_100' is not defined for option 'gpu-name'": "sm_100",
    "nvrtc: error: invalid value for --gpu-architecture (-arch)": "architecture asked for",
    "CUDAError: cuModuleLoadData(...) failed with error: CUDA_ERROR_INVALID_PTX": "refuses",
    "CUDALaunch Error: CUDA_ERROR_INVALID_VALUE\n grid=(1,1,1),  block=(2048,1,1)": "launch",
    "CUDA error: too many resources requested for launch": "cannot launch",
    "CUDA error: an illegal memory access was encountered": "must not",
    "Found no NVIDIA driver on your system. Please check": "no driver",
    "Torch not compiled with CUDA enabled": "built without CUDA",
    "libnvrtc.so.12: cannot open shared object file: No such file": "libnvrtc.so.12 is missing",
    "Could not load library libcudnn_ops_infer.so.8. Error": "libcudnn_ops_infer.so.8",
}


@pytest.mark.parametrize(("text", "part"), FAULTS.items())
def test_a_gpus_fault_is_a_sentence_with_what_to_do(text, part):
    found = explain(RuntimeError(text), "time")
    assert found.kind == "target" and found.where == "time"
    assert part in found.message and found.message.endswith(".")
    assert "\n" not in found.message and found.hint.endswith(".")


def test_other_errors_are_none_of_a_gpus():
    for text in ("Check failed: shapes differ", "There was not enough memory", "out of bounds"):
        assert gpu_faults.gpu_fault(text) is None
    assert explain(RuntimeError("Check failed: x"), "step").kind == "pass"
    assert not list(launches.notes([kernel(), kernel(threads=8, blocks=1)], "cuda"))
    assert waited(torch.device("cpu")) == ""
    said = waited(torch.device("cuda", 1))
    assert "torch.cuda.synchronize" in said and "cuda:1" in said


def kernel(**facts):
    about = {"name": "k_kernel", "blocks": 8, "threads": 128, "shared_bytes": 0, **facts}
    return KernelCode("k", "forward", None, (), (Launch(**about),))


@pytest.mark.parametrize(
    ("facts", "part"),
    [
        ({"threads": 1}, "one thread per block"),
        ({"threads": 8}, "fewer threads"),
        ({"schedule": "DLight's Fallback, each sum by one thread"}, "one thread computes each"),
        ({"threads": 2048}, "will not run"),
        ({"shared_bytes": 50_000}, "share more than the 48 KiB"),
        ({"spilled_bytes": 4}, "spill registers to memory"),
    ],
)
def test_what_a_gpu_would_not_like_is_said(facts, part):
    (said,) = launches.notes([kernel(), kernel(**facts)], "cuda")
    assert said.startswith("1 of 2 functions") and part in said and said.endswith("k_kernel.")


def cubin(*pairs):
    """What NVIDIA's compiler could write of two kernels."""
    info = "".join(f".byte 4,{what}\n.short 8\n.long {of},{value}\n" for what, of, value in pairs)
    head = '.section .nv.info,"",@0x70000000\n.byte 3,0x37\n.short 0x82\n'
    return assembled(f".globl one,two\none:\ntwo:\n{head}{info}")


def test_registers_and_what_did_not_fit_are_read_from_nvidias_object_file():
    found = elf.registers(cubin((0x2F, 1, 40), (0x2F, 2, 255), (0x12, 2, 800)))
    assert found == {"one": elf.RegisterUse(40, 0), "two": elf.RegisterUse(255, 800)}
    assert elf.registers(b"no ELF file") == {}
