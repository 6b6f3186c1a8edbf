"""What is said of GPUs that are not here: their faults, compilers' notes, AMD's tools."""

from __future__ import annotations

import struct

import pytest
import torch

from answers import refused
from relascope.core.errors import EngineError
from relascope.engine.building import amd, elf, gpu_faults, launches
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


def test_a_timing_says_what_it_waits_for():
    assert waited(torch.device("cpu")) == ""
    said = waited(torch.device("cuda", 1))
    assert "torch.cuda.synchronize" in said and "cuda:1" in said


def kernel(**facts):
    about = {"name": "k_kernel", "blocks": 8, "threads": 128, "shared_bytes": 0, **facts}
    return KernelCode("k", "forward", None, (), (Launch(**about),))


@pytest.mark.parametrize(
    ("facts", "part"),
    [
        ({"threads": 1}, "one thread in each block"),
        ({"threads": 8}, "fewer threads"),
        ({"schedule": "DLight's Fallback, each sum by one thread"}, "one thread computes each"),
        ({"threads": 2048}, "will not run"),
        ({"threads": 512, "most_threads": 256}, "will not run"),
        ({"shared_bytes": 50_000}, "share more than the 48 KiB"),
        ({"spilled_bytes": 4}, "in memory beside registers"),
    ],
)
def test_what_a_gpu_would_not_like_is_said(facts, part):
    (said,) = launches.notes([kernel(), kernel(**facts)], "cuda")
    assert said.startswith("1 of 2 functions") and part in said and said.endswith("k_kernel.")


def test_nothing_is_said_of_good_launches():
    assert not list(launches.notes([kernel(), kernel(threads=8, blocks=1)], "cuda"))


def cubin(pairs):
    """As small an ELF file as NVIDIA's compiler could write, with what it says of two kernels."""
    names = b"\0.shstrtab\0.strtab\0.symtab\0.nv.info\0"
    strings = b"\0one\0two\0"
    symbols = b"".join(struct.pack("<IBBHQQ", name, 0x12, 0, 1, 0, 8) for name in (0, 1, 5))
    info = b"\x03\x37\x82\x00" + b"".join(struct.pack("<BBHII", 4, w, 8, s, v) for w, s, v in pairs)
    parts, at, headers = [names, strings, symbols, info], 64, [b"\0" * 64]
    kinds = [(1, 3, 0, 0), (11, 3, 0, 0), (19, 2, 2, 24), (27, 0x70000000, 0, 0)]
    for part, (name, kind, link, entry) in zip(parts, kinds, strict=True):
        headers.append(
            struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, at, len(part), link, 0, 1, entry)
        )
        at += len(part)
    magic = b"\x7fELF\x02\x01\x01" + b"\0" * 9
    head = struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, at, 0, 64, 0, 0, 64, 5, 1)
    return magic + head + b"".join(parts) + b"".join(headers)


def test_registers_and_what_did_not_fit_are_read_from_nvidias_object_file():
    found = elf.registers(cubin([(0x2F, 1, 40), (0x2F, 2, 255), (0x12, 2, 800)]))
    assert found == {"one": elf.RegisterUse(40, 0), "two": elf.RegisterUse(255, 800)}
    assert elf.registers(b"no ELF file") == {}


AMDGPU = """	.amdgpu_metadata
---
amdhsa.kernels:
  - .agpr_count:     0
    .args:
      - .name:           x
        .size:           8
    .group_segment_fixed_size: 6912
    .max_flat_workgroup_size: 256
    .name:           add_kernel
    .private_segment_fixed_size: 16
    .vgpr_count:     96
  - .name:           mul_kernel
    .private_segment_fixed_size: 0
    .vgpr_count:     5
amdhsa.target:   amdgcn-amd-amdhsa--gfx90a
"""


def test_an_amd_gpus_registers_are_read_from_its_assembly():
    one, two = elf.RegisterUse(96, 16, 256), elf.RegisterUse(5, 0)
    assert amd.registers(AMDGPU) == {"add_kernel": one, "mul_kernel": two}


@pytest.fixture
def rocm(tmp_path, monkeypatch):
    """A ROCm with libraries for two processors; nothing else is found."""
    folder = tmp_path / "amdgcn" / "bitcode"
    folder.mkdir(parents=True)
    switches = ("correctly_rounded_sqrt_on", "daz_opt_off", "finite_only_off", "unsafe_math_off")
    names = [*switches, "wavefrontsize64_on", "wavefrontsize64_off", "abi_version_500"]
    for name in ("ocml", *(f"oclc_{n}" for n in (*names, "isa_version_906", "isa_version_1030"))):
        (folder / f"{name}.bc").write_bytes(b"BC")
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(amd.importlib.util, "find_spec", lambda name: None)
    return tmp_path


def test_the_device_libraries_are_those_of_the_gpu(rocm):
    older, newer = ([f.stem for f in amd.bitcode(p, 22)] for p in ("gfx906", "gfx1030"))
    assert older[0] == "ocml" and "oclc_isa_version_906" in older
    assert "oclc_wavefrontsize64_on" in older and "oclc_wavefrontsize64_off" in newer
    assert "oclc_isa_version_1030" in newer and "oclc_isa_version_906" not in newer
    assert amd.bitcode("gfx906", 10) == []  # which such an LLVM cannot read
    with pytest.raises(EngineError, match="isa_version_90a"):
        amd.bitcode("gfx90a", 22)


def test_what_is_missing_for_an_amd_gpu_is_named(rocm, tmp_path_factory, monkeypatch):
    with pytest.raises(EngineError, match=r"no ld\.lld here") as caught:
        amd.linked(b"", True, 22)
    assert "ziglang" in caught.value.hint
    monkeypatch.setenv("ROCM_PATH", str(tmp_path_factory.mktemp("none")))
    with refused(match="device libraries", hint="rocm-device-libs"):
        amd.bitcode("gfx906", 22)


def linker(rocm, name, script):
    path = rocm / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_a_linker_that_does_not_read_the_file_leaves_it_to_the_next(rocm):
    copies = 'while [ "$1" != -o ]; do shift; done; echo linked > "$2"'
    linker(rocm, "ld.lld-14", "echo unknown abi version >&2; exit 1")
    with pytest.raises(EngineError, match="unknown abi version"):
        amd.linked(b"", True, 22)
    linker(rocm, "ld.lld", copies)
    assert amd.linked(b"", True, 22) == b"linked\n"


def test_functions_that_the_libraries_would_have_are_named(rocm):
    linker(
        rocm, "ld.lld", 'echo "ld.lld: error: undefined hidden symbol: __ocml_exp_f32" >&2; exit 1'
    )
    with pytest.raises(EngineError, match=r"__ocml_exp_f32, which .* LLVM 10 reads"):
        amd.linked(b"", False, 10)
    with pytest.raises(EngineError, match="do not have"):
        amd.linked(b"", True, 22)


def test_sums_go_over_as_many_threads_as_a_gpu_runs_at_a_time():
    lanes = {p: amd.lanes(f"rocm -mcpu={p}") for p in ("gfx906", "gfx90a", "gfx1030", "gfx1100")}
    assert lanes == {"gfx906": None, "gfx90a": None, "gfx1030": 32, "gfx1100": 32}
    assert amd.lanes("rocm -mcpu=gfx1030 -thread_warp_size=64") is None
    assert amd.lanes("cuda -arch=sm_90") is None


def test_other_targets_are_built_as_they_are():
    with amd.building("llvm", 22, lambda name, function: pytest.fail(name)):
        pass
