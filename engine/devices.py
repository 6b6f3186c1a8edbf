"""What can be compiled for on this machine; each engine says how its own TVM builds and runs.

A target is said to run here only after a small function was built for it, run, and gave the right
numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from engine.cpu import cpu_target
from engine.session import EngineError, Target

# How else the part before the first dash of a triple may be written: LLVM lists one name of each.
_SPELLINGS = (
    (r"i[3-9]86", "i386"),
    (r"amd64", "x86_64"),
    (r"arm64e?", "aarch64"),
    (r"armv(4t?|5te?|6(k|m|t2)?|7(a|l|m|em|r|s|k)?|8(\.\d)?a?|8l)", "arm"),
    (r"thumbv(4t|5te?|6(k|m|t2)?|7(a|m|em|r|s|k)?|8(\.\d)?a?)", "thumb"),
    (r"ppc", "powerpc"),
    (r"ppc64", "powerpc64"),
    (r"ppc64le", "powerpc64le"),
    (r"sparc64", "sparcv9"),
)


@dataclass(frozen=True)
class Tvm:
    """What differs between the TVMs.

    Args:
        module: the module `tvm`.
        parse: a target's text as this TVM's target.
        run: build `y = 2 x + 1` for a target's text, run it on a device, and give its result.
        cuda_missing: why it cannot drive a GPU, in a sentence; "" where it does not know.
    """

    module: Any
    parse: Callable[[str], Any]
    run: Callable[[str, Any, np.ndarray], np.ndarray]
    cuda_missing: Callable[[], str] = lambda: ""

    def attempt(self, target: str, device: Any) -> str:
        """Build and run the small function on 64 numbers; what went wrong, or ""."""
        given = np.arange(64, dtype="float32")
        try:
            if not np.array_equal(self.run(target, device, given), given * 2 + 1):
                return "a small function gave wrong numbers."
        except Exception as error:  # whatever keeps it from running is the answer to the question
            lines = str(error).strip().splitlines()
            return lines[-1] if lines else type(error).__name__
        return ""

    def known(self, wanted: frozenset[str]) -> dict[str, frozenset[str]]:
        """Those of some processors that LLVM knows, with its names of their features."""
        codegen = self.module.target.codegen
        if not hasattr(codegen, "llvm_get_cpu_archlist"):  # an older TVM, of the user's own
            return {}
        names = {str(n) for n in codegen.llvm_get_cpu_archlist(self.parse("llvm"))} & wanted
        return {
            n: frozenset(
                str(f) for f in codegen.llvm_get_cpu_features(self.parse(f"llvm -mcpu={n}"))
            )
            for n in names
        }

    def cpu(self, ways: Mapping[str, str]) -> tuple[Target, ...]:
        """The CPU by TVM's own kernels, and in other ways; or why it does not run.

        Args:
            ways: a target's further options, such as one that leaves matmuls to PyTorch's BLAS;
                and in words, what they do.
        """
        best, device = cpu_target(self.known)
        problem = ""
        for target in dict.fromkeys([best, "llvm"]):
            problem = self.attempt(target, self.module.cpu(0))
            if not problem:
                others = (
                    Target(f"{target} {o}", f"{device}, {words}", True) for o, words in ways.items()
                )
                return Target(target, device, True), *others
        return (Target("llvm", device, False, f"TVM cannot build for the CPU here: {problem}"),)

    def cuda(self) -> Target:
        """The first NVIDIA GPU, or what stands in its way."""
        device = self.module.cuda(0)
        if self.module.get_global_func("device_api.cuda", allow_missing=True) is None:
            return Target("cuda", "an NVIDIA GPU", False, "This TVM was built without CUDA.")
        if not device.exist:
            why = self.cuda_missing() or (
                "There is no NVIDIA GPU here, or its driver shows none to this process."
            )
            return Target("cuda", "an NVIDIA GPU", False, why)
        version = str(device.compute_version)
        name = f"cuda -arch=sm_{version.replace('.', '')}"
        words = f"{device.device_name} (compute capability {version})"
        problem = self.attempt(name, device)
        if problem:
            return Target(name, words, False, f"TVM sees it but cannot use it: {problem}")
        return Target(name, words, True)

    def check(self, target: str) -> None:
        """Hold a target's `-mtriple` against the architectures that LLVM has: TVM dies of others.

        Raises:
            EngineError: kind "target"; there is no such architecture.
        """
        codegen = self.module.target.codegen
        if not hasattr(codegen, "llvm_get_targets"):
            return
        for triple in re.findall(r"(?:^|\s)--?mtriple[=\s]+(\S+)", target):
            part = triple.partition("-")[0]
            name = next((n for p, n in _SPELLINGS if re.fullmatch(p, part)), part)
            known = re.findall(r"[\w.]+", str(codegen.llvm_get_targets()))
            if name not in known:
                raise EngineError(
                    "target", f"LLVM has no architecture {part!r}.", target,
                    f"Begin -mtriple with one of {', '.join(sorted(known))}, or leave it out to "
                    "build for this machine.",
                )  # fmt: skip


def default_target(found: tuple[Target, ...], device: torch.device) -> str:
    """The target that functions in training code are built for: with PyTorch's BLAS on the CPU.

    Args:
        found: an engine's targets.

    Raises:
        EngineError: kind "target"; TVM cannot run on that device here.
    """
    kind = "cuda" if device.type == "cuda" else "llvm"
    fitting = [t for t in found if t.name.startswith(kind)]
    for target in sorted(fitting, key=lambda t: "-libs=" not in t.name):
        if not target.runs_here:
            raise EngineError("target", target.missing, str(device))
        return target.name
    raise EngineError("target", f"TVM has no target for {device}.", str(device))
