"""What can be compiled for on this machine; each engine says how its own TVM builds and runs.

A target counts as running here only after a small function built for it gave the right numbers.
"""

import difflib
import platform
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from relascope.core.errors import EngineError, lines_of
from relascope.engine.building import gpu_faults
from relascope.engine.building.cpu import cpu_info, cpu_target, lacking
from relascope.engine.building.cuda_compiler import compile_cuda
from relascope.engine.building.cuda_graphs import GRAPHS
from relascope.engine.protocol.target_text import GPU, gpu_index, parse_target, refused
from relascope.engine.protocol.targets import Target

# Other spellings of a triple's part before the first dash: LLVM lists one name of each.
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

_GPUS = {
    "cuda": "an NVIDIA GPU",
    "metal": "an Apple GPU",
    "vulkan": "a GPU through Vulkan",
    "opencl": "a device through OpenCL",
}
_MOST_GPUS = 64
TVMS_OWN = "TVM's own kernels"

_SYSTEMS = {
    "linux": "Linux",
    "darwin": "Darwin",
    "macos": "Darwin",
    "ios": "iOS",
    "windows": "Windows",
    "android": "Android",
    "freebsd": "FreeBSD",
}
"""Systems by their names in triples, and in Python."""


@dataclass(frozen=True)
class Tvm:
    """What differs between the TVMs. `parse` reads a target's text as this TVM's; `run` builds `y =
    2 x + 1` for one, runs it on a device, and returns the result. `cuda_missing` says in a sentence
    why it cannot drive a GPU, "" if it does not know. `cpu_ways` are further options of a CPU
    target, the best last, such as one that leaves matmuls to PyTorch's BLAS, each with a
    description; `cuda_ways` are those for each NVIDIA GPU, the default first, "" for TVM's own
    kernels. Each is tried."""

    module: Any
    parse: Callable[[str], Any]
    run: Callable[[str, Any, np.ndarray], np.ndarray]
    cuda_missing: Callable[[], str] = lambda: ""
    cpu_ways: Callable[[], Mapping[str, str]] = dict
    cuda_ways: Mapping[str, str] = field(default_factory=dict)
    _examined: dict[str, Target] = field(default_factory=dict, init=False)

    def targets(self) -> tuple[Target, ...]:
        """The targets, the best first; those that do not run here come last and say why.

        Builds and runs a kernel for each, once in a process: a few tens of milliseconds.
        """
        return self._targets

    @cached_property
    def _targets(self) -> tuple[Target, ...]:
        # TVM's own matmuls are slow on the CPU.
        return tuple(sorted((*self.gpus(), *reversed(self.cpu())), key=lambda t: not t.runs_here))

    def target(self, text: str) -> Target:
        """The device of a target's text, and whether the target runs here. Raises EngineError of
        kind "target" if TVM refuses it, or cannot generate code for it."""
        if text not in self._examined:
            listed = {t.name: t for t in self.targets()}
            self._examined[text] = listed.get(text) or self.examine(text)
        return self._examined[text]

    def compiler_for(self, target: str) -> Callable[[str, str], bytes]:
        """The compiler of a GPU's source code for a target."""
        arch = str(self.parse(target).attrs.get("arch", ""))
        return lambda source, form: compile_cuda(source, arch, form)

    def processor(self) -> str:
        """The target of this machine's processor, for code that every target needs."""
        return cpu_target(self.processors)[0]

    def attempt(self, target: str, device: Any) -> str:
        """Build and run the small function on 64 numbers. Returns what went wrong, or ""."""
        given = np.arange(64, dtype="float32")
        try:
            if not np.array_equal(self.run(target, device, given), given * 2 + 1):
                return "a small function returned wrong numbers."
        except Exception as error:  # whatever keeps it from running is the answer
            on_gpu = gpu_faults.gpu_fault(error)
            return f"{on_gpu.message} {on_gpu.hint}" if on_gpu else lines_of(error)[-1]
        return ""

    def processors(self, wanted: frozenset[str]) -> dict[str, frozenset[str]]:
        """Those of the wanted processors that LLVM knows, with its names of their features."""
        codegen = self.module.target.codegen
        if not hasattr(codegen, "llvm_get_cpu_archlist"):  # an older TVM, of the user's own
            return {}
        names = {str(n) for n in codegen.llvm_get_cpu_archlist(self.parse("llvm"))} & wanted
        features = {n: codegen.llvm_get_cpu_features(self.parse(f"llvm -mcpu={n}")) for n in names}
        return {n: frozenset(map(str, found)) for n, found in features.items()}

    def cpu(self) -> tuple[Target, ...]:
        """The CPU with TVM's own kernels, and with further options; or why it does not run."""
        best, device = cpu_target(self.processors)
        problem = ""
        for target in dict.fromkeys([best, "llvm"]):
            problem = self.attempt(target, self.module.cpu(0))
            if not problem:
                made = Target(target, device, True, kernels=TVMS_OWN)
                ways = self.cpu_ways().items()
                return made, *(replace(made, name=f"{target} {o}", kernels=w) for o, w in ways)
        return (Target("llvm", device, False, f"TVM cannot build for the CPU here: {problem}"),)

    def gpus(self) -> tuple[Target, ...]:
        """Every GPU that this TVM can generate code for and drive; why there is no NVIDIA GPU."""
        found: list[Target] = []
        for kind in _GPUS:
            if kind == "cuda" or (self._drives(kind) and self._writes(kind)):
                for one in self._of_kind(kind):
                    found += self._gpu_ways(one)
        return tuple(found)

    def _gpu_ways(self, gpu: Target) -> tuple[Target, ...]:
        if not gpu.runs_here or gpu.name.split()[0] != "cuda" or not self.cuda_ways:
            return (replace(gpu, kernels=self._kernels(gpu.name)),)
        device, found = self.module.device("cuda", gpu_index(gpu.name)), []
        for option, words in self.cuda_ways.items():
            name = f"{gpu.name} {option}".rstrip()
            problem = self.attempt(name, device) if option else ""
            missing = f"TVM sees it but cannot use it this way: {problem}" if problem else ""
            about = {"name": name, "kernels": words, "missing": missing}
            found.append(replace(gpu, **about, runs_here=not problem))
        return tuple(found)

    def _of_kind(self, kind: str) -> list[Target]:
        found: list[Target] = []
        for index in range(_MOST_GPUS):
            device = self.module.device(kind, index)
            if not (self._drives(kind) and device.exist):
                break
            name = kind
            if kind == "cuda":
                name += f" -arch=sm_{str(device.compute_version).replace('.', '')}"
            name += f" -{GPU}={index}" if index else ""
            problem = self.attempt(name, device)
            missing = f"TVM sees it but cannot use it: {problem}" if problem else ""
            found.append(Target(name, _gpu_words(kind, device), not problem, missing))
        return found or [Target(kind, _GPUS[kind], False, self._absent(kind))]

    def _drives(self, kind: str) -> bool:
        return self.module.get_global_func(f"device_api.{kind}", allow_missing=True) is not None

    def _writes(self, kind: str) -> bool:
        return self.module.get_global_func(f"target.build.{kind}", allow_missing=True) is not None

    def _absent(self, kind: str) -> str:
        """Why there is no device of a kind, in a sentence."""
        if not self._writes(kind):
            return f"This TVM was built without {kind}, so it cannot generate code for it."
        if kind == "cuda":
            none = "There is no NVIDIA GPU here, or the driver hides it from this process."
            return self.cuda_missing() or none
        if not self._drives(kind):
            return f"This TVM generates code for {kind}, but was built without its runtime."
        return f"{kind} finds no device here."

    def examine(self, target: str) -> Target:
        kind = str(self.parse(target).kind)
        if kind == "llvm":
            words = self._cpu_words(target)
            missing = _foreign(target) or self._lacks(target)
            if missing:
                return Target(target, words, False, missing)
            return self._tried(target, words, self.module.cpu(0))
        if not self._writes(kind):
            hint = "Choose another kind, such as llvm or cuda."
            raise EngineError("target", self._absent(kind), target, hint)
        index = gpu_index(target)
        words, kernels = _GPUS.get(kind, f"a device through {kind}"), self._kernels(target)
        if kind not in _GPUS or not self._drives(kind) or not self.module.device(kind, 0).exist:
            return Target(target, words, False, self._absent(kind), kernels)
        device = self.module.device(kind, index)
        if not device.exist:
            missing = f"There is no GPU number {index} here."
            return Target(target, words, False, missing, kernels)
        return replace(self._tried(target, _gpu_words(kind, device), device), kernels=kernels)

    def _kernels(self, target: str) -> str:
        """Whose kernels a GPU's target takes, in a few words."""
        given = set(target.split())
        ways = sorted(self.cuda_ways, key=len, reverse=True)
        return next((self.cuda_ways[w] for w in ways if given.issuperset(w.split())), TVMS_OWN)

    def _tried(self, target: str, words: str, device: Any) -> Target:
        problem = self.attempt(target, device)
        return Target(target, words, not problem, problem and f"It does not run: {problem}")

    def _cpu_words(self, target: str) -> str:
        options = parse_target(target)[1]
        if "mtriple" in options or "mcpu" in options:
            named = [options.get("mcpu", ""), options.get("mtriple", "")]
            return "a CPU (" + ", ".join(n for n in named if n) + ")"
        return cpu_target(self.processors)[1]

    def _lacks(self, target: str) -> str:
        """A sentence on features that code for a target may use and this machine lacks, or ""."""
        if platform.machine() not in ("x86_64", "AMD64"):
            return ""  # features have known names only on x86; running the target tells
        options = parse_target(target)[1]
        name = options.get("mcpu", "")
        used = set(self.processors(frozenset({name})).get(name, ()))
        for word in options.get("mattr", "").split(","):
            if word[:1] == "-":
                used.discard(word[1:])
            elif word:
                used.add(word.lstrip("+"))
        wanting = lacking(frozenset(used), cpu_info())
        if not wanting:
            return ""
        return f"Its code may use features that this processor lacks: {', '.join(wanting)}."

    def new_target(self, target: str, make: Callable[[], Any]) -> Any:
        """A target of this TVM, checked against LLVM.

        TVM crashes on an architecture that LLVM lacks, and silently replaces an unknown processor
        or feature. Raises EngineError of kind "target" if TVM refuses it, it is for AMD's GPUs,
        or LLVM has no such architecture, processor or feature.
        """
        kind, options = parse_target(target)
        if kind == "rocm":
            message = "relascope does not build for AMD's GPUs: no packaged TVM supports them."
            hint = "`relascope engines` lists what runs here."
            raise EngineError("target", message, target, hint)
        codegen = self.module.target.codegen
        asked = hasattr(codegen, "llvm_get_targets")  # an older TVM cannot say what its LLVM has
        if asked:
            _check_triple(target, re.findall(r"[\w.]+", str(codegen.llvm_get_targets())))
        try:
            found = make()
        except Exception as wrong:
            raise refused(wrong, target) from wrong
        if not asked or kind != "llvm":
            return found
        if name := options.get("mcpu"):
            known = {str(n) for n in codegen.llvm_get_cpu_archlist(found)}
            if name not in known:
                close = difflib.get_close_matches(name, known, 5, 0.4) or sorted(known)[:8]
                message = f"LLVM knows no processor {name!r} of this architecture."
                hint = f"Name another, such as {', '.join(close)}; or leave out -mcpu."
                raise EngineError("target", message, target, hint)
        if features := options.get("mattr"):
            has = {str(f) for f in codegen.llvm_get_cpu_features(found)}
            for feature in features.split(","):
                if feature[:1] == "+" and feature[1:] not in has:
                    message = f"LLVM knows no feature {feature[1:]!r} of this architecture."
                    hint = "Write, for example, -mattr=+avx2,+fma, or leave it out."
                    raise EngineError("target", message, target, hint)
        return found


def _check_triple(target: str, known: Collection[str]) -> None:
    for triple in re.findall(r"(?:^|\s)--?mtriple[=\s]+(\S+)", target):
        part = triple.partition("-")[0]
        if _architecture(part) not in known:
            message, names = f"LLVM has no architecture {part!r}.", ", ".join(sorted(known))
            hint = f"Begin -mtriple with one of {names}, or leave it out to build for this machine."
            raise EngineError("target", message, target, hint)


def _architecture(name: str) -> str:
    """LLVM's name of an architecture, from the way that it is written."""
    return next((n for p, n in _SPELLINGS if re.fullmatch(p, name)), name)


def _foreign(target: str) -> str:
    triple = parse_target(target)[1].get("mtriple", "")
    if not triple:
        return ""
    architecture, *parts = triple.lower().split("-")
    here = platform.machine()
    if _architecture(architecture) != _architecture(here):
        return f"It is for {architecture}, and this machine is {here}."
    systems = [s for p in parts for word, s in _SYSTEMS.items() if p.startswith(word)]
    if systems and platform.system() not in systems:
        return f"It is for {systems[0]}, and this machine runs {platform.system()}."
    return ""


def _gpu_words(kind: str, device: Any) -> str:
    """A GPU's name, its memory, and an NVIDIA GPU's compute capability."""
    size = getattr(device, "total_global_memory", None)
    facts = [f"{size / 2**30:.1f} GiB"] if size else []
    facts += [f"compute capability {device.compute_version}"] if kind == "cuda" else []
    return f"{device.device_name} ({', '.join(facts)})" if facts else str(device.device_name)


def torch_device(target: str) -> str:
    """PyTorch's device for a target: "cuda", with the GPU's number, or "cpu"."""
    if target.split()[0] != "cuda":
        return "cpu"
    index = gpu_index(target)
    return f"cuda:{index}" if index else "cuda"


def default_target(targets: tuple[Target, ...], device: torch.device) -> str:
    """The target that functions in training code are built for: on the CPU with PyTorch's BLAS, on
    a GPU without CUDA graphs, which would be recorded anew whenever a parameter moves. Raises
    EngineError of kind "target" if TVM cannot run on that device here."""
    kind = "cuda" if device.type == "cuda" else "llvm"
    index = device.index or 0
    fitting = [
        t
        for t in targets
        if t.name.startswith(kind) and gpu_index(t.name) == index and GRAPHS not in t.name
    ]
    if kind == "llvm":
        fitting.sort(key=lambda t: "-libs=" not in t.name)
    if fitting and fitting[0].runs_here:
        return fitting[0].name
    missing = fitting[0].missing if fitting else f"TVM has no target for {device}."
    raise EngineError("target", missing, str(device))
