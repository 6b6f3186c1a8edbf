"""Compile CUDA source, for both TVMs: by nvrtc if there is one, else by nvcc.

Relay's nvrtc asks a GPU what to compile for, and Relax passes `--use_fast_math`, with which tanh is
off by 5e-4.
"""

import ctypes
import functools
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from relascope.engine.building.cuda_libraries import places

_NVRTC = ("libnvrtc.so.13", "libnvrtc.so.12")
_HALF = "cuda_fp16.h"
_STUB = "relascope_stub"  # a function of every stub of a CUDA library, and of no real one
_NUMBERS = """
#define CUDART_INF_F __int_as_float(0x7f800000)
#define CUDART_NAN_F __int_as_float(0x7fffffff)
#define CUDART_INF __longlong_as_double(0x7ff0000000000000LL)
#define CUDART_NAN __longlong_as_double(0xfff8000000000000LL)
#ifndef INFINITY
#define INFINITY CUDART_INF_F
#endif
"""
_TRAITS = """
namespace cuda { namespace std {
template <bool V> struct truth { static constexpr bool value = V; };
template <class A, class B> struct is_same : truth<false> {};
template <class A> struct is_same<A, A> : truth<true> {};
template <class A, class B> inline constexpr bool is_same_v = is_same<A, B>::value;
template <class A> struct is_floating_point
    : truth<is_same_v<A, float> || is_same_v<A, double>> {};
template <class A> struct is_integral : truth<false> {};
template <class A> struct is_signed : truth<(A(-1) < A(0))> {};
template <class A> struct is_unsigned : truth<!(A(-1) < A(0))> {};
template <bool V, class A = void> struct enable_if {};
template <class A> struct enable_if<true, A> { using type = A; };
template <bool V, class A, class B> struct conditional { using type = A; };
template <class A, class B> struct conditional<false, A, B> { using type = B; };
%s
}}
"""
_INTEGERS = "".join(
    f"typedef signed {name} int{bits}_t; typedef unsigned {name} uint{bits}_t;\n"
    for name, bits in (("char", 8), ("short", 16), ("int", 32), ("long long", 64))
)
_INTEGRAL = "".join(
    f"template <> struct is_integral<{sign}{name}> : truth<true> {{}};\n"
    for name in ("char", "short", "int", "long", "long long")
    for sign in ("signed ", "unsigned ")
)
_HEADERS = {
    "cuda/std/cstdint": f"namespace cuda {{ namespace std {{\n{_INTEGERS}}}}}\n{_NUMBERS}",
    "cuda/std/type_traits": _TRAITS % _INTEGRAL,
    "math_constants.h": _NUMBERS,
}
"""The parts that kernels use of headers that TVM includes and nvrtc lacks."""


def compile_cuda(source: str, arch: str, form: str) -> bytes:
    """Compile CUDA source by NVIDIA's compiler; the GPU need not be here. `arch` is, for example,
    "sm_90", `form` "cubin" or "ptx". Raises RuntimeError, with the compiler's message, if there is
    no compiler or it refuses the source."""
    nvrtc, nvcc = _nvrtc(), shutil.which("nvcc")
    if nvrtc is not None:
        try:
            return _by_nvrtc(*nvrtc, source, arch, form)
        except RuntimeError as error:
            # Half precision's headers are not nvrtc's.
            if nvcc is None or not re.search(r"(?:could not|cannot) open source file", str(error)):
                raise
    if nvcc is None:
        raise RuntimeError(
            "Neither nvcc nor nvrtc is here: install the CUDA toolkit or the Python package "
            "nvidia-cuda-nvrtc"
        )
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder, "kernels.cu"), Path(folder, f"kernels.{form}")
        given.write_text(source, encoding="utf-8")
        command = [nvcc, f"--{form}", "-O3", "-arch", arch, "-o", str(made), str(given)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)
        return made.read_bytes()


def compiler() -> str:
    """The path of the compiler that would be used; "" if there is none."""
    nvrtc = _nvrtc()
    return (nvrtc[1] if nvrtc is not None else shutil.which("nvcc")) or ""


@functools.cache
def _nvrtc() -> tuple[Any, str] | None:
    for name in _NVRTC:
        for place in places(name):
            try:
                # nvrtc opens these by name; loaded here, they are found in any folder.
                for beside in sorted(Path(place).parent.glob("libnvrtc-builtins.so*")):
                    ctypes.CDLL(str(beside))
                found = ctypes.CDLL(place)
            except OSError:
                continue
            if not hasattr(found, _STUB):
                return found, place
    return None


def _by_nvrtc(nvrtc: Any, place: str, source: str, arch: str, form: str) -> bytes:
    real = arch.replace("compute_", "sm_") if form == "cubin" else arch.replace("sm_", "compute_")
    options = [f"--gpu-architecture={real}", "--std=c++17", "-default-device", "--device-int128"]
    # If the loader knew it by its name, its folder is still to be found.
    beside = [Path(p).parent.parent / "include" for p in (place, *places(Path(place).name))]
    found = [f for f in (*beside, Path("/usr/local/cuda/include")) if f.joinpath(_HALF).exists()]
    options += [f"-I{f}" for f in found[:1]]
    if "#include <cuda.h>" in source:  # the driver's, which kernels do not use
        source = re.sub(r"^\s*#include <cuda\.h>\s*$", "", source, flags=re.MULTILINE)
    program = ctypes.c_void_p()
    headers, names = _strings(_HEADERS.values()), _strings(_HEADERS)
    given = ctypes.byref(program), source.encode(), b"kernels.cu", len(_HEADERS), headers, names
    _check(nvrtc, nvrtc.nvrtcCreateProgram(*given))
    try:
        status = nvrtc.nvrtcCompileProgram(program, len(options), _strings(options))
        if status:
            raise RuntimeError(_read(nvrtc, program, "ProgramLog").decode("utf-8", "replace"))
        return _read(nvrtc, program, "CUBIN" if form == "cubin" else "PTX")
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _strings(texts: Any) -> Any:
    encoded = [t.encode() for t in texts]
    return (ctypes.c_char_p * len(encoded))(*encoded)


def _read(nvrtc: Any, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    room = ctypes.create_string_buffer(size.value)
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}")(program, room))
    return room.raw if what == "CUBIN" else room.raw.rstrip(b"\0")


def _check(nvrtc: Any, status: int) -> None:
    if status:
        nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise RuntimeError(f"nvrtc: {nvrtc.nvrtcGetErrorString(status).decode()}")
