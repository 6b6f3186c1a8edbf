"""The processor of this machine: its name, and what to compile for. No TVM in here."""

import os
import platform
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from relascope.core.errors import EngineError

SETTING = "RELASCOPE_PROCESSOR"
"""The environment variable that caps what code for this machine's processor may use."""
_AVX2 = "avx2"

# Processors that LLVM can generate code for, the most capable first; the first whose features this
# machine has is taken. AMD's own come first on AMD: their code is scheduled for the machine.
_AMD = ("znver2", "znver1")
_X86 = ("cascadelake", "skylake-avx512", "haswell", "sandybridge", "nehalem", "x86-64")

# Features that a code generator uses unasked, by LLVM's name, with the kernel's name if it differs.
# Other features of a processor only serve programs that name them.
_SAME = (
    "ssse3 popcnt cx16 avx avx2 fma f16c bmi2 movbe gfni vaes vpclmulqdq "
    "avx512f avx512bw avx512cd avx512dq avx512vl avx512ifma avx512vbmi"
)
_OTHERS = (
    "sse3=pni sse4.1=sse4_1 sse4.2=sse4_2 bmi=bmi1 lzcnt=abm avx512vbmi2=avx512_vbmi2 "
    "avx512vnni=avx512_vnni avx512bitalg=avx512_bitalg avx512vpopcntdq=avx512_vpopcntdq "
    "avx512bf16=avx512_bf16"
)
_USED = {f: f for f in _SAME.split()} | dict(pair.split("=") for pair in _OTHERS.split())


def cpu_name(flags: frozenset[str], vendor: str, processors: dict[str, frozenset[str]]) -> str:
    """A name for `-mcpu`: a processor whose LLVM code uses nothing beyond `flags`; "" if none fits.

    `flags` are the machine's features by the Linux kernel's names, `processors` LLVM's, with their
    features by LLVM's names. The model's name does not decide, because a virtual machine may
    hide features, and an old LLVM lacks new names."""
    names = _X86 if vendor != "AuthenticAMD" or "avx512f" in flags else (*_AMD, *_X86)
    for name in names:
        if name in processors:
            used = {_USED[f] for f in processors[name] if f in _USED}
            if used <= flags:
                return name
    return ""


def lacking(features: frozenset[str], info: dict[str, str]) -> list[str]:
    """The features, by LLVM's names, that a processor lacks; none if `info` lists no flags."""
    flags = frozenset(info.get("flags", "").split())
    if not flags:
        return []
    return sorted(f for f in features if f in _USED and _USED[f] not in flags)


def cpu_target(llvm: Callable[[frozenset[str]], dict[str, frozenset[str]]]) -> tuple[str, str]:
    """The target for this machine's processor, such as "llvm -mcpu=znver2", and a description;
    `llvm` returns those of the given processors that LLVM knows, with its names of their
    features."""
    info = cpu_info()
    flags = frozenset(info.get("flags", "").split())
    name = ""
    if platform.machine() in ("x86_64", "AMD64"):
        name = cpu_name(flags, info.get("vendor_id", ""), llvm(frozenset({*_AMD, *_X86})))
    return f"llvm -mcpu={name}" if name else "llvm", cpu_words(info, flags)


def cpu_info(path: Path = Path("/proc/cpuinfo")) -> dict[str, str]:
    """The first processor of Linux's list; empty elsewhere.

    `RELASCOPE_PROCESSOR=avx2` in the environment removes AVX-512 from its flags. Raises EngineError
    of kind "target" if the variable has another value.
    """
    cap = os.environ.get(SETTING, "")
    if cap not in ("", _AVX2):
        message = f"{SETTING} is {cap!r}, an unknown cap on the processor."
        raise EngineError("target", message, SETTING, f"Unset it, or set it to {_AVX2}.")
    try:
        first = path.read_text().split("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    info = {key.strip(): value.strip() for key, _, value in pairs}
    if cap:
        flags = info.get("flags", "").split()
        info["flags"] = " ".join(f for f in flags if not f.startswith("avx512"))
    return info


def machine(info: Mapping[str, str] | None = None) -> str:
    """The processor's name; systems other than Linux may only give its architecture."""
    info = cpu_info() if info is None else info
    return info.get("model name") or platform.processor() or platform.machine()


def cpu_words(info: dict[str, str], flags: frozenset[str]) -> str:
    """The processor for people: its name, its vector instructions, its number of cores."""
    model = machine(info)
    model = re.sub(r"\((R|TM|r|tm)\)|\bCPU\b|@.*|\b\d+-Core\b|\bProcessor\b", " ", model)
    vectors = {"avx512f": "AVX-512", "avx2": "AVX2", "avx": "AVX"}
    vector = next((words for flag, words in vectors.items() if flag in flags), "")
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cores = f"{count} core" if count == 1 else f"{count} cores"
    parts = [" ".join(model.split()), vector, cores]
    return f"the CPU ({', '.join(p for p in parts if p)})"
