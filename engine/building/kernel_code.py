"""Generated code, which TVM hands out in one piece, taken apart kernel by kernel."""

import re
from collections import Counter
from collections.abc import Collection, Iterable

from relascope.core.graph import reached

_DEFINED = re.compile(r'^define\b([^@\n]*)@"?([^"(\s]+)"?\(', re.MULTILINE)
_REFERRED = re.compile(r'@"?([\w.$]+)"?')
_LABEL = re.compile(r'^"?([^\s":#]+)"?:')
_ENTRY = re.compile(
    r"^(?P<whole>[^\n;]*\b(?:__global__|__kernel|kernel)\b[^;{]*?"
    r"\b(?!__launch_bounds__|__attribute__|reqd_work_group_size)(?P<name>\w+)\s*\([^;]*?\)\s*\{.*?^\})",
    re.MULTILINE | re.DOTALL,
)
_PTX = re.compile(
    r"^(?P<whole>(?:\.visible )?\.entry (?P<name>\w+)\(.*?^\})", re.MULTILINE | re.DOTALL
)
_LOCAL = ("internal", "private", "weak", "linkonce", "available_externally")


def kernel_name(symbol: str) -> str:
    return symbol.removeprefix("__tvm_ffi_")


def llvm_functions(text: str) -> dict[str, str]:
    found = {}
    for match in _DEFINED.finditer(text):
        end = text.find("\n}", match.start())
        if end >= 0:
            found[match[2]] = text[match.start() : end + 2]
    return found


def llvm_kernels(text: str) -> dict[str, tuple[str, ...]]:
    """The symbols that each kernel of an LLVM module consists of, its own first.

    A kernel is a function that other modules can call, with the functions that it alone calls: its
    loops, and what each thread does.
    """
    bodies = llvm_functions(text)
    linkage = {m[2]: m[1] for m in _DEFINED.finditer(text)}
    heads = [n for n in bodies if not any(w in linkage[n].split() for w in _LOCAL)]
    inner = bodies.keys() - heads

    def called(name: str) -> list[str]:
        return [n for n in _REFERRED.findall(bodies[name]) if n in inner]

    parts = {head: reached([head], called) for head in heads}
    readers = Counter(name for names in parts.values() for name in names)
    return {head: tuple(n for n in names if readers[n] == 1) for head, names in parts.items()}


def assembly_functions(text: str, names: Collection[str]) -> dict[str, str]:
    # macOS writes a line before a name, and ELF ".L" before a private one, as of a parallel loop.
    wanted = {f"{before}{name}": name for name in names for before in ("", "_", ".L")}
    lines: dict[str, list[str]] = {}
    inside: list[str] | None = None
    for line in text.splitlines():
        label = _LABEL.match(line)
        if label and label[1] in wanted:
            inside = lines.setdefault(wanted[label[1]], [])
        elif (label and label[1].startswith((".Lfunc_end", "Lfunc_end"))) or line.startswith(
            ("\t.size\t", "\t.section\t.text")
        ):
            inside = None
        if inside is not None:
            inside.append(line)
    return {n: "\n".join(found) for n, found in lines.items()}


def device_functions(text: str) -> dict[str, str]:
    """The kernels in a GPU's source: CUDA, OpenCL, Metal or PTX; by name."""
    pattern = _PTX if ".entry " in text and "__global__" not in text else _ENTRY
    return {m["name"]: m["whole"] for m in pattern.finditer(text)}


def owner(device_function: str, kernels: Iterable[str]) -> str:
    """The kernel that a GPU function belongs to, else its own name: TVM appends "_kernel" and a
    number."""
    name = re.sub(r"_kernel(_\d+)?$", "", device_function)
    return name if name in set(kernels) else device_function
