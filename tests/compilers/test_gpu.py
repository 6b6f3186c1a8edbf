"""What is said of GPUs that are not here: their faults, compilers' notes."""

import pytest
import torch

from answers import assembled
from relascope.engine.building import elf, gpu_faults, launches
from relascope.engine.building.explain import explain
from relascope.engine.measure.memory import waited
from relascope.engine.protocol.artefact import KernelCode, Launch

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
