"""Building for AMD's GPUs: ROCm's device libraries, a linker, what its compiler says of kernels.

LLVM, which a TVM brings, compiles for these GPUs. It takes functions such as exp from libraries of
ROCm's, which are bitcode, and leaves an object file, which a linker makes a code object of. TVM
looks for both in one place, and gives every GPU the libraries' code for another. Here they are
looked for where Debian and Python's packages put them, too, and are those of the GPU asked for.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from relascope.core.errors import EngineError
from relascope.engine.building import elf
from relascope.engine.protocol.target_text import split

_OLD_LLVM = 11
"""Up to this LLVM reads the libraries of ROCm before 3.9 alone, which lie elsewhere."""
_PLACES = (
    "/opt/rocm",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/llvm-*/lib/clang/*",
    "/usr/lib/clang/*",
)
_UNDEFINED = re.compile(r"undefined (?:hidden |protected )?symbol: (\w+)")
_LANES = "thread_warp_size"
_DEFAULT = "gfx900"
"""What TVM builds for where a target names no processor."""


@contextlib.contextmanager
def building(
    target: str, llvm: int, register: Callable[[str, Callable[..., object]], object]
) -> Iterator[None]:
    """While this lasts, TVM asks us for the libraries and to link; nothing of other kinds.

    Args:
        target: the target's text.
        llvm: major version of TVM's.
        register: gives TVM a function by its name, in place of one that it has.

    Raises:
        EngineError: kind "target"; a library or a linker is missing, or no linker takes what
            TVM's compiler wrote.
    """
    kind, options = split(target)
    if kind != "rocm":
        yield
        return
    files = bitcode(options.get("mcpu", _DEFAULT), llvm)
    faults: list[EngineError] = []

    def link(data: bytes) -> bytearray:
        try:
            return bytearray(linked(bytes(data), bool(files), llvm))
        except EngineError as wrong:  # TVM raises an error without these words
            faults.append(wrong)
            raise

    register("tvm_callback_rocm_bitcode_path", lambda *_: [str(f) for f in files])
    register("tvm_callback_rocm_link", link)
    try:
        yield
    except Exception as wrong:
        if faults:
            raise faults[0] from wrong
        raise


def lanes(target: str) -> int | None:
    """Threads that an AMD GPU runs at a time, where TVM takes more: it has 64 for all of them, and
    those from gfx10 on run 32, so that a sum across 64 would be wrong."""
    kind, options = split(target)
    narrow = kind == "rocm" and _is_narrow(options.get("mcpu", _DEFAULT))
    return 32 if narrow and _LANES not in options else None


def _is_narrow(processor: str) -> bool:
    return re.match(r"gfx1\d(\d\d|-)", processor) is not None


def bitcode(processor: str, llvm: int) -> list[Path]:
    """ROCm's device libraries for a GPU, in the order in which they are linked.

    Args:
        processor: "gfx90a".

    Returns:
        Nothing where they are there, but written by an LLVM that this one cannot read.

    Raises:
        EngineError: kind "target"; there are none.
    """
    wide = "off" if _is_narrow(processor) else "on"
    switches = ("correctly_rounded_sqrt_on", "daz_opt_off", "finite_only_off", "unsafe_math_off")
    names = ["ocml", *(f"oclc_{s}" for s in switches)]
    names += [f"oclc_wavefrontsize64_{wide}", f"oclc_isa_version_{processor.removeprefix('gfx')}"]
    newer = False
    for place in _places():
        folder, old = place / "amdgcn" / "bitcode", place / "lib"
        if (old / "ocml.amdgcn.bc").exists():
            files = [old / f"{n}.amdgcn.bc" for n in names]
        elif (folder / "ocml.bc").exists():
            if llvm <= _OLD_LLVM:
                newer = True
                continue
            files = [folder / f"{n}.bc" for n in (*names, "oclc_abi_version_500")]
        else:
            continue
        lacking = [f.name for f in files if not f.exists() and "abi_version" not in f.name]
        if lacking:
            message = f"ROCm's device libraries here have no {lacking[0]}: not for {processor}."
            hint = "Name another processor with -mcpu=gfx…, or install a newer ROCm."
            raise EngineError("target", message, str(files[0].parent), hint)
        return [f for f in files if f.exists()]
    if newer:
        return []
    message = "ROCm's device libraries (bitcode such as ocml.bc) are not here: kernels for AMD's "
    message += "GPUs take functions such as exp from them."
    hint = "Install the device libraries (Debian: rocm-device-libs), or say with ROCM_PATH where "
    hint += "ROCm lies."
    raise EngineError("target", message, f"rocm -mcpu={processor}", hint)


def _places() -> Iterator[Path]:
    if os.environ.get("ROCM_PATH"):
        yield Path(os.environ["ROCM_PATH"])
        return
    for pattern in _PLACES:
        yield from sorted(Path("/").glob(pattern.lstrip("/")), reverse=True)


def linked(data: bytes, served: bool, llvm: int) -> bytes:
    """The code object of an object file.

    Args:
        served: whether the compiler had the device libraries.

    Raises:
        EngineError: kind "target"; there is no linker, or none takes the file.
    """
    said = ""
    with tempfile.TemporaryDirectory() as scratch:
        given, made = Path(scratch, "kernels.o"), Path(scratch, "kernels.co")
        given.write_bytes(data)
        for command in linkers(llvm):
            asked = [*command, "--no-undefined", "-shared", str(given), "-o", str(made)]
            done = subprocess.run(asked, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return made.read_bytes()
            said = said or done.stderr.strip().partition("\n")[0].rstrip(":. ")
            missing = list(dict.fromkeys(_UNDEFINED.findall(done.stderr)))
            if missing:
                raise _undefined(missing, served, llvm)
    hint = "Install LLVM's linker of this version or newer (Debian: lld; Python: ziglang)."
    if not said:
        message = f"There is no ld.lld here, to link what TVM's LLVM {llvm} compiles for AMD."
        raise EngineError("target", message, "ld.lld", hint)
    message = f"No ld.lld here links what TVM's LLVM {llvm} compiled for AMD's GPU: {said}."
    raise EngineError("target", message, "ld.lld", hint)


def _undefined(missing: list[str], served: bool, llvm: int) -> EngineError:
    message = f"Kernels call {', '.join(missing[:3])}, which ROCm's device libraries"
    hint = "Take a part of the model without such functions, or the other engine."
    if served:
        return EngineError("target", f"{message} do not have.", missing[0], hint)
    message += f" have, and this TVM's LLVM {llvm} reads those of ROCm before 3.9 alone."
    return EngineError("target", message, missing[0], hint)


def linkers(llvm: int) -> Iterator[list[str]]:
    """Commands that link, those of TVM's own LLVM first."""
    found: list[Path] = []
    folders = [Path(p) for p in os.environ.get("PATH", "").split(os.pathsep) if p]
    folders += [p / "llvm" / "bin" for p in _places()]
    folders += sorted(Path("/usr/lib").glob("llvm-*/bin"), reverse=True)
    for folder in folders:
        found += [f for f in folder.glob("ld.lld*") if os.access(f, os.X_OK)]
    by_version = sorted(dict.fromkeys(found), key=lambda f: (_major(f) != llvm, -_major(f)))
    yield from ([str(f)] for f in by_version)
    spec = importlib.util.find_spec("ziglang")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if zig := shutil.which("zig", path=place):
            yield [zig, "ld.lld"]


def _major(linker: Path) -> int:
    match = re.search(r"-(\d+)", linker.name) or re.search(r"llvm-(\d+)", str(linker))
    return int(match[1]) if match else 0


def registers(assembly: str) -> dict[str, elf.RegisterUse]:
    """Of each kernel in an AMD GPU's assembly, by name, what its compiler says of it."""
    found = {}
    for text in re.split(r"^  - ", assembly.partition("amdhsa.kernels:")[2], flags=re.MULTILINE):
        facts = dict(re.findall(r"^    \.(\w+): +(\S+)$", f"    {text}", re.MULTILINE))
        if {"name", "vgpr_count", "private_segment_fixed_size"} <= facts.keys():
            count, spilled = facts["vgpr_count"], facts["private_segment_fixed_size"]
            most = facts.get("max_flat_workgroup_size")
            found[facts["name"]] = elf.RegisterUse(int(count), int(spilled), most and int(most))
    return found
