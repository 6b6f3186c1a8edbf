"""Generated code is taken apart kernel by kernel, and object files are measured."""

import tarfile
from dataclasses import replace

from answers import assembled
from relascope.engine.building import elf, kernel_code
from relascope.engine.building.disassemble import Library, take_apart
from relascope.engine.protocol.artefact import Artefact, KernelCode
from relascope.engine.protocol.targets import Target

LLVM = """; ModuleID = 'm'
define dllexport i32 @__tvm_ffi_add(ptr %0) #0 {
  %1 = call fastcc i32 @add_compute_(ptr %0)
  call void @raise()
  ret i32 %1
}
define internal fastcc i32 @add_compute_(ptr %0) #1 {
  call void @"lambda.1"(ptr %0)
  ret i32 0
}
define internal void @"lambda.1"(ptr %0) {
  ret void
}
define dllexport i32 @__tvm_ffi_mul(ptr %0) #0 {
  call void @raise()
  ret i32 0
}
define internal void @raise() {
  ret void
}
define weak i16 @__truncsfhf2(float %0) {
  ret i16 0
}
declare void @outside()
"""

ASSEMBLY = """\t.text
\t.globl\t__tvm_ffi_add
__tvm_ffi_add:
\tpushq\t%rbp
.LBB0_1:
\tretq
.Lfunc_end0:
\t.size\t__tvm_ffi_add, .Lfunc_end0-__tvm_ffi_add
\t.section\t.rodata
nothing:
\t.quad\t1
__tvm_ffi_mul:
\timulq\t%rax
"""

CUDA = """#include <x>
extern "C" __global__ void __launch_bounds__(256) add_kernel(float* __restrict__ a);
extern "C" __global__ void __launch_bounds__(256) add_kernel(float* __restrict__ a) {
  if (a) {
    a[0] = 1;
  }
}
extern "C" __global__ void add_kernel_1(float* a) {
  a[1] = 2;
}
"""

PTX = """.version 9.0
.visible .entry add_kernel(
    .param .u64 p
)
{
    ret;
}
"""

OPENCL = """// Function: mul_kernel
__kernel void mul_kernel(__global float* restrict a) {
  a[0] = 1;
}
"""


def test_kernels_are_found_in_each_language_with_what_they_alone_call():
    assert kernel_code.llvm_kernels(LLVM) == {
        "__tvm_ffi_add": ("__tvm_ffi_add", "add_compute_", "lambda.1"),
        "__tvm_ffi_mul": ("__tvm_ffi_mul",),
    }
    bodies = kernel_code.llvm_functions(LLVM)
    assert bodies["lambda.1"].splitlines()[-2:] == ["  ret void", "}"]
    assert "outside" not in bodies
    found = kernel_code.assembly_functions(ASSEMBLY, ["__tvm_ffi_add", "__tvm_ffi_mul"])
    assert found["__tvm_ffi_add"].rstrip() == "__tvm_ffi_add:\n\tpushq\t%rbp\n.LBB0_1:\n\tretq"
    assert "imulq" in found["__tvm_ffi_mul"] and "quad" not in found["__tvm_ffi_mul"]
    for label in ("_f", ".Lf"):  # as macOS has it, and a private function
        assert list(kernel_code.assembly_functions(f"{label}:\n\tret\n", ["f"])) == ["f"]
    found = kernel_code.device_functions(CUDA)
    assert list(found) == ["add_kernel", "add_kernel_1"]
    assert found["add_kernel"].endswith("  }\n}") and "a[1]" not in found["add_kernel"]
    assert list(kernel_code.device_functions(PTX)) == ["add_kernel"]
    assert list(kernel_code.device_functions(OPENCL)) == ["mul_kernel"]
    assert kernel_code.owner("add_kernel_1", ["add"]) == "add"
    assert kernel_code.owner("other_kernel", ["add"]) == "other_kernel"


def object_file(functions, bits=64):
    """Functions of these sizes, and a kernel's section of 77 bytes."""
    of = ".globl {0}\n.type {0},@function\n{0}: .zero {1}\n.size {0},{1}\n"
    text = "".join(of.format(name, size) for name, size in functions.items())
    return assembled(text + '.section .text.add_kernel,"ax"\n.zero 77\n', bits)


def test_sizes_are_those_of_the_object_file():
    for bits in (64, 32):
        found = elf.sizes(object_file({"one": 12, "two": 345}, bits))
        assert found is not None
        assert found.functions == {"one": 12, "two": 345}
        assert found.sections[".text.add_kernel"] == 77
    assert elf.sizes(b"MZ" + bytes(100)) is None
    assert elf.sizes(object_file({"one": 12})[:120]) is None


def library(tmp_path, devices=()):
    sizes = {"__tvm_ffi_add": 10, "add_compute_": 20, "lambda.1": 5, "__tvm_ffi_mul": 7}
    place = tmp_path / "lib0.o"
    place.write_bytes(object_file(sizes))

    def export(file):
        with tarfile.open(file, "w") as archive:
            archive.add(place, "lib0.o")

    return Library("forward", (LLVM, ASSEMBLY), tuple(devices), export, "A note.")


def refuse(source, form):
    raise RuntimeError("Compilation error:\nnvcc fatal   : no such architecture\nmore")


def test_a_library_for_a_cpu(tmp_path):
    taken = take_apart(library(tmp_path), refuse, tmp_path / "out")
    add, mul = taken.kernels
    assert (add.name, add.bytes, [n for n, _ in add.code]) == ("add", 35, ["LLVM IR", "assembly"])
    assert (mul.name, mul.bytes) == ("mul", 7)
    assert taken.library_bytes == (tmp_path / "lib0.o").stat().st_size
    assert taken.notes == ("A note.",)
    names = {f.name for f in (tmp_path / "out" / "forward").iterdir()}
    assert names == {"add.ll", "add.s", "mul.ll", "mul.s"}
    assert "lambda.1" in (tmp_path / "out" / "forward" / "add.ll").read_text()


def test_a_library_that_tvm_cannot_write_out_has_no_size(tmp_path):
    def export(file):
        raise AssertionError

    taken = take_apart(replace(library(tmp_path), export=export), refuse, None)
    assert taken.library_bytes is None and "cannot export the library" in taken.notes[-1]
    assert [k.bytes for k in taken.kernels] == [None, None]


def test_a_library_for_a_gpu_has_the_gpus_code_and_says_why_it_is_not_compiled(tmp_path):
    taken = take_apart(library(tmp_path, [("cuda", CUDA)]), refuse, None)
    add, mul = taken.kernels
    assert add.bytes is None and [n for n, _ in add.code] == ["CUDA"]
    assert "add_kernel_1" in add.code[0][1]
    assert mul.bytes == 7  # it launches nothing
    assert "nvcc fatal   : no such architecture." in taken.notes[1]

    def compile_cuda(source, form):
        return object_file({}) if form == "cubin" else PTX.encode()

    add = take_apart(library(tmp_path, [("cuda", CUDA)]), compile_cuda, None).kernels[0]
    assert add.bytes == 77 and [n for n, _ in add.code] == ["CUDA", "PTX"]


def test_the_code_of_a_whole_has_a_size_where_every_kernel_has():
    target = Target("llvm", "a CPU", True)
    known = KernelCode("a", "forward", 3, ())
    assert Artefact(target, (known, known), 9, 0.1).code_bytes == 6
    unknown = KernelCode("b", "forward", None, ())
    assert Artefact(target, (known, unknown), 9, 0.1).code_bytes is None
