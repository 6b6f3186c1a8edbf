"""An engine's build for a target, taken apart: sizes and code, kernel by kernel.

TVM's export writes object files; this needs no linker, so it works for other machines. Sizes of a
GPU's kernels are those of NVIDIA's compiler.
"""

import re
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from relascope.core.errors import lines_of
from relascope.engine.building import elf, gpu_faults, kernel_code, launches
from relascope.engine.protocol.artefact import KernelCode, Launch, extension

Compile = Callable[[str, str], bytes]
"""Compiles CUDA source to a format ("cubin", "ptx"); raises with the reason if there is no compiler
or it refuses the source."""

_LANGUAGES = {"cuda": "CUDA", "opencl": "OpenCL", "metal": "Metal"}
_NOT_WRITTEN = (
    "This TVM has no runtime for this GPU and cannot export the library: only the code of its "
    "kernels is here."
)


@dataclass(frozen=True)
class Library:
    """One built function. `llvm` is LLVM's text of the part that runs on the CPU, and the same as
    assembly; `devices` are (kind, source) of each part that runs on a GPU, and `launches` the
    launches of functions there, by name. `export` writes the library's object files into a tar
    file; `note` says in a sentence what it needs to run, or is ""."""

    phase: str
    llvm: tuple[str, str]
    devices: tuple[tuple[str, str], ...]
    export: Callable[[str], object]
    note: str = ""
    launches: Mapping[str, Launch] = field(default_factory=dict)


def library_of(
    built: Any,
    module: Any,
    phase: str,
    target: str,
    notes: Mapping[str, str],
    runs: Mapping[str, Launch],
) -> Library:
    """A TVM's build as a library to take apart. `module` is the first one, with those that it
    imports; the TVMs name these differently. `notes` say, by an option of the target, what the
    library needs to run."""
    host, devices = ("", ""), []
    todo = [module]
    while todo:
        module = todo.pop(0)
        new = hasattr(module, "imports")
        todo += list(module.imports if new else module.imported_modules)
        kind = str(module.kind if new else module.type_key)
        source = module.inspect_source if new else module.get_source
        if kind == "llvm":
            host = (str(source("ll")), str(source("asm")))
        elif not kind.startswith("relax"):
            devices.append((kind, str(source("" if new else kind))))
    export = partial(built.export_library, fcompile=pack)
    note = next((notes[option] for option in target.split() if option in notes), "")
    return Library(phase, host, tuple(devices), export, note, runs)


@dataclass(frozen=True)
class Disassembly:
    """A library's kernels, the bytes of its object files (None if TVM cannot export them), and
    notes about it."""

    kernels: tuple[KernelCode, ...]
    library_bytes: int | None
    notes: tuple[str, ...]


def take_apart(library: Library, compile_cuda: Compile, folder: Path | None) -> Disassembly:
    """The kernels of a library, with their code. The object files are left in `folder`, as one tar
    file per phase, with the code."""
    notes = [library.note] if library.note else []
    objects = _objects(library, folder, notes)
    on_device = _on_device(library.devices, compile_cuda, notes)
    kernels = _on_host(library, objects, on_device)
    if folder is not None:
        _write(folder / library.phase, kernels)
    size = sum(len(o) for o in objects) if objects else None
    return Disassembly(tuple(kernels), size, tuple(notes))


def pack(output: str, objects: Sequence[str], options: object = None, **more: object) -> None:
    """Put object files into a tar file: for TVM's export, in place of a linker."""
    with tarfile.open(output, "w") as archive:
        for name in [objects] if isinstance(objects, str) else objects:
            archive.add(name, Path(name).name)


def _objects(library: Library, folder: Path | None, notes: list[str]) -> list[bytes]:
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch if folder is None else folder)
        place.mkdir(parents=True, exist_ok=True)
        archive = place / f"{library.phase}.tar"
        try:
            library.export(str(archive))
        except AssertionError:  # an older TVM, which cannot export a part that it cannot run
            notes.append(_NOT_WRITTEN)
            return []
        with tarfile.open(archive) as opened:
            files = [opened.extractfile(m) for m in opened.getmembers() if m.isfile()]
            return [f.read() for f in files if f is not None]


@dataclass(frozen=True)
class _Device:
    """A GPU's functions: code by language, bytes and registers if compiled."""

    code: dict[str, dict[str, str]]
    sizes: dict[str, int] | None
    machine: dict[str, elf.RegisterUse]


def _on_device(
    devices: Sequence[tuple[str, str]], compile_cuda: Compile, notes: list[str]
) -> _Device | None:
    if not devices:
        return None
    texts: dict[str, dict[str, str]] = {}
    sizes: dict[str, int] | None = {}
    machine: dict[str, elf.RegisterUse] = {}
    for kind, source in devices:
        language = _LANGUAGES.get(kind, kind)
        functions = kernel_code.device_functions(source) or {kind: source}
        texts.setdefault(language, {}).update(functions)
        if kind != "cuda":
            sizes = None
            continue
        try:
            cubin = compile_cuda(source, "cubin")
            made = elf.sizes(cubin)
            machine |= elf.registers(cubin)
            ptx = compile_cuda(source, "ptx").decode("utf-8", "replace")
        except Exception as error:  # without a compiler there is still the source
            what = "The CUDA source was not compiled, so machine code and its size are missing."
            notes.append(f"{what} {_reason(error)}.")
            sizes = None
            continue
        texts.setdefault("PTX", {}).update(kernel_code.device_functions(ptx))
        if made is None or sizes is None:
            sizes = None
        else:
            sizes |= {s[6:]: n for s, n in made.sections.items() if s.startswith(".text.")}
    return _Device(texts, sizes, machine)


def _reason(error: Exception) -> str:
    on_gpu = gpu_faults.gpu_fault(error)
    if on_gpu is not None:
        return f"{on_gpu.message} {on_gpu.hint}".rstrip(".")
    lines = lines_of(error)
    wrong = [x for x in lines if re.search(r"fatal|error\b.*:\s*\S", x, re.IGNORECASE)]
    return (wrong or lines)[0].rstrip(".")


def _on_host(library: Library, objects: list[bytes], device: _Device | None) -> list[KernelCode]:
    text, assembly = library.llvm
    kernels, bodies = kernel_code.llvm_kernels(text), kernel_code.llvm_functions(text)
    lines = kernel_code.assembly_functions(assembly, bodies)
    read = [found for o in objects if (found := elf.sizes(o)) is not None]
    functions = {n: size for r in read for n, size in r.functions.items()}
    made: list[KernelCode] = []
    parts = _parts(device, [kernel_code.kernel_name(s) for s in kernels])
    for symbol, names in kernels.items():
        name = kernel_code.kernel_name(symbol)
        if device is not None and name in parts:
            made.append(_device_kernel(library, name, parts.pop(name), device))
            continue
        size = sum(functions.get(n, 0) for n in names) if symbol in functions else None
        # Loops first: the kernel's own function has some hundred lines that check the arguments.
        order = (*names[1:], symbol)
        texts = {"LLVM IR": bodies, "assembly": lines}
        made.append(KernelCode(name, library.phase, size, _code(texts, order)))
    if device is not None:
        made += [_device_kernel(library, n, p, device) for n, p in parts.items()]
    return made


def _parts(device: _Device | None, kernels: Sequence[str]) -> dict[str, list[str]]:
    parts: dict[str, list[str]] = {}
    names = dict.fromkeys(n for texts in device.code.values() for n in texts) if device else {}
    for name in names:
        parts.setdefault(kernel_code.owner(name, kernels), []).append(name)
    return parts


def _device_kernel(
    library: Library, name: str, parts: Sequence[str], device: _Device
) -> KernelCode:
    size = None if device.sizes is None else sum(device.sizes.get(p, 0) for p in parts)
    known = (library.launches[p] for p in parts if p in library.launches)
    runs = tuple(launches.compiled(launch, device.machine.get(launch.name)) for launch in known)
    return KernelCode(name, library.phase, size, _code(device.code, parts), runs)


def _code(
    texts: Mapping[str, Mapping[str, str]], names: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    code = {language: [found[n] for n in names if n in found] for language, found in texts.items()}
    return tuple((language, "\n\n".join(found)) for language, found in code.items() if found)


def _write(folder: Path, kernels: Sequence[KernelCode]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for kernel in kernels:
        for language, text in kernel.code:
            name = f"{kernel.name}.{extension(language)}"
            (folder / name).write_text(text + "\n", encoding="utf-8")
