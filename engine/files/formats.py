"""Tells a file's format from its first bytes, with a row for each format.

The reader of each format checks the rest of the file.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ANY = 4096
"""How many first bytes decide what a file is."""


@dataclass(frozen=True)
class Format:
    """A kind of file: the name that an engine's reader knows, its title after "This file is", a
    test of its first bytes, and whether it holds a compiler's program, without a PyTorch model."""

    name: str
    title: str
    is_it: Callable[[bytes], bool]
    program: bool = True


def _text(pattern: str) -> Callable[[bytes], bool]:
    """Whether a text begins with a pattern, after its comments and, in Python, its docstring."""
    docstring = rb'"""(?:[^"]|"(?!""))*"""'
    before = rb"\s*((?:(?:#(?!\[)|//)[^\n]*\n|" + docstring + rb")\s*)*"
    wanted = re.compile(before + pattern.encode())
    return lambda head: wanted.match(head) is not None


def is_onnx(head: bytes) -> bool:
    """Whether a file begins like an ONNX model: a protobuf message with a model's fields.

    The first is the version of its format; its producer, graph or operator sets follow.
    """
    if len(head) < 4 or head[0] != 0x08 or not 1 <= head[1] <= 40:
        return False
    return head[2] in (0x12, 0x1A, 0x22, 0x28, 0x32, 0x3A, 0x42, 0x72)


FORMATS = (
    Format("torch", "a torch file", lambda h: h.startswith(b"PK\x03\x04"), False),
    Format("tar", "a tar archive", lambda h: h[257:262] == b"ustar"),
    Format("library", "a compiled library", lambda h: h.startswith(b"\x7fELF")),
    Format("params", "TVM parameters", lambda h: h[:8] == bytes.fromhex("b79c04054f8de5f7")),
    Format("onnx", "an ONNX model", is_onnx),
    Format(
        "recording", "a recording of a compile", lambda h: h.startswith(b'{"relascope_recording"')
    ),
    Format("json", "TVM's JSON", _text(r"\{")),
    Format("relay", "a Relay module's text", _text(r"(#\[version|def @|fn\s*\(|type \w)")),
    Format(
        "script",
        "TVMScript",
        _text(r"(from tvm|import tvm|@\w*\.?(ir_module|function)|metadata\s*=|\w+ = TypeVar\()"),
    ),
)


def format_in(head: bytes) -> Format | None:
    """The format that begins with these bytes, `ANY` of them or the whole file; None if unknown."""
    return next((f for f in FORMATS if f.is_it(head)), None)


def format_of(path: Path) -> Format | None:
    with path.open("rb") as file:
        return format_in(file.read(ANY))


def is_recording(path: Path) -> bool:
    """Whether a file is a recording of a compile, or is named like one and has no known format: its
    reader reports that it is damaged."""
    found = format_of(path)
    return path.suffix == ".rsc" if found is None else found.name == "recording"


def is_relax_json(text: str) -> bool:
    """Whether TVM's JSON has the layout that TVM writes since it dropped Relay."""
    return '"root_index"' in text[:ANY] or '"root_index"' in text[-ANY:]


def only_relax(path: Path) -> bool:
    """Whether a file is a module that no TVM with Relay reads."""
    found = format_of(path)
    if found is None or found.name != "json":
        return found is not None and found.name == "script"
    with path.open("rb") as file:
        head = file.read(ANY)
        file.seek(max(file.tell(), path.stat().st_size - ANY))
        return is_relax_json((head + file.read()).decode(errors="replace"))


def is_program(path: Path) -> bool:
    """Whether a file holds a compiler's program, without a PyTorch model."""
    found = format_of(path)
    return found is not None and found.program
