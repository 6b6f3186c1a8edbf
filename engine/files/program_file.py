"""A program's file, taken apart: its text or JSON, and the parameters that came with it.

A tar archive holds both: TVM's Model Library Format, or the two files in one.
"""

import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from relascope.core.errors import EngineError
from relascope.core.graph import TensorType
from relascope.engine.files.archive import MIB
from relascope.engine.files.formats import ANY, format_in, format_of
from relascope.engine.files.tvm_arrays import read_params

_TEXT, _MEMBERS = 256 * MIB, 10_000
_ORDER = ("relay", "script", "json")


@dataclass(frozen=True)
class Pieces:
    """What a file holds: a program in one of `engine.files.formats`, and the parameters by name
    that came with it."""

    format: str
    text: str
    params: Mapping[str, np.ndarray] = field(default_factory=dict)


def is_onnx_file(path: Path) -> bool:
    """Whether a file is an ONNX model, or an archive of one with its data, the model first."""
    kind = format_of(path)
    if kind is not None and kind.name == "tar":
        kind = format_in(next(_members(path), ("", b""))[1][:ANY])
    return kind is not None and kind.name == "onnx"


def onnx_parts(path: Path) -> tuple[bytes, dict[str, bytes]]:
    """An ONNX model's bytes, and those of the files packed with it, by name."""
    kind = format_of(path)
    if kind is None or kind.name != "tar":
        return path.read_bytes(), {}
    (_, model), *rest = _members(path)
    return model, {re.sub(r"^\d+-", "", name): data for name, data in rest}


def taken_apart(path: Path) -> Pieces:
    """The pieces of a program's file, unparsed. Refuses (kind "file") a file that has no program,
    or more than one, or is too large."""
    kind = format_of(path)
    if kind is None or kind.name in ("library", "params", "recording"):
        raise _no_program(path.name, kind.name if kind else "")
    if kind.name != "tar":
        return Pieces(kind.name, _decoded(path.name, path.read_bytes()))
    programs: dict[str, list[tuple[str, bytes]]] = {}
    params: dict[str, np.ndarray] = {}
    for name, data in _members(path):
        inner = format_in(data[:ANY])
        if inner is not None and inner.name == "params":
            params |= read_params(data, name)
        elif inner is not None and inner.name in _ORDER and Path(name).name != "metadata.json":
            programs.setdefault(inner.name, []).append((name, data))
    for kind_name in _ORDER:  # the Model Library Format also has kernels as TVMScript
        if found := programs.get(kind_name):
            if len(found) > 1:
                message = f"{path.name} holds {len(found)} programs."
                raise EngineError("file", message, found[1][0], "Keep only one.")
            return Pieces(kind_name, _decoded(*found[0]), params)
    raise _no_program(path.name, "params" if params else "")


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Plain files of an uncompressed archive, so that none is larger than the archive."""
    try:
        with tarfile.open(path, "r:") as archive:
            for index, member in enumerate(archive):
                if index >= _MEMBERS:
                    message = f"{path.name} has more than {_MEMBERS:,} members."
                    raise EngineError("file", message, path.name)
                if member.isreg() and not member.issparse():
                    content = archive.extractfile(member)
                    assert content is not None
                    yield member.name, content.read()
    except (tarfile.TarError, OSError, ValueError) as wrong:
        message = f"{path.name} cannot be read as an archive: {wrong}."
        raise EngineError("file", message, path.name, "Save it again.") from wrong


def _decoded(name: str, data: bytes) -> str:
    if len(data) > _TEXT:
        message = f"{name} has {len(data) / MIB:,.0f} MiB; the limit for a program's text is 256."
        hint = "Save its parameters to another file, with tvm.runtime.save_param_dict."
        raise EngineError("file", message, name, hint)
    try:
        return data.decode()
    except UnicodeDecodeError as wrong:
        raise EngineError("file", f"{name} is not UTF-8.", name, "Save it again.") from wrong


def _no_program(name: str, kind: str) -> EngineError:
    told: dict[str, str] = {
        "library": "is a compiled library, which has kernels but no program to show",
        "params": "holds parameters but no program",
    }
    if kind == "recording":
        hint = f"Open it with `relascope open {name}`, or choose it on the page."
        return EngineError("file", f"{name} is a recording of a compile, not a model.", name, hint)
    message = f"{name} {told.get(kind, 'holds no program in a known format')}."
    hint = "Open the module that it was built from: its text, or its JSON from tvm.ir.save_json."
    return EngineError("file", message, name, hint)


def check_params(
    params: Mapping[str, np.ndarray], arguments: Mapping[str, TensorType], name: str
) -> None:
    """Check (kind "file") the parameters that came with a program against its arguments."""
    hint = "Open it with the parameters of this program."
    for one, array in params.items():
        if one not in arguments:
            message = f"{name} has a parameter {one!r}, which is not an argument of its program."
            raise EngineError("file", message, one, hint)
        found = TensorType(array.shape, str(array.dtype))
        if found != arguments[one]:
            message = f"The parameter {one!r} is {found}; the program takes {arguments[one]}."
            raise EngineError("file", message, one, hint)


_PLAINLY = (
    (r"^.*?Check failed: (\(.*?\) is false: )?", ""),
    (r"^(\w+\.)*\w*(Error|Exception): ", ""),
    (r"^.*\bstd::.*?: ", ""),  # a condition of its code
    (r".*String index out of bounds.*", "a string in it does not end"),
    (r".*null pointer node while traversing.*", "it uses a variable that it does not define"),
    (r"JSONReader: cannot find field (\w+)", r"a node in it has no field \1"),
    (r", perhaps you forgot to register it\?", ""),
)
"""What TVM says, and what the file's owner should read instead."""


def reader_failed(name: str, how: str) -> EngineError:
    """The error for a file on which TVM's reader fails, perhaps by a fault of TVM's."""
    message = f"{name} cannot be read: TVM's own reader fails on it ({how})."
    hint = "If it is damaged, save it again. If not, the fault is TVM's: no pass has run yet."
    return EngineError("reader", message, name, hint)


def not_read(name: str, ir: str, lines: Sequence[str]) -> EngineError:
    """The error for a file that TVM refuses, from the lines of its message."""
    telling = [s for s in lines if re.search(r"rror|xpect|Check|annot|nvalid|fail", s)]
    last = (telling or list(lines) or ["it does not say why"])[-1]
    beyond = "IndexError: " in last  # of its own containers: no check of the file
    for pattern, plain in _PLAINLY:
        last = re.sub(pattern, plain, last.strip())
    if beyond:
        return reader_failed(name, last[:300].rstrip("."))
    message = f"TVM cannot read {name} as a {ir} module: {last[:300].rstrip('.')}."
    return EngineError("file", message, name, "Save it again with the TVM that is used here.")
