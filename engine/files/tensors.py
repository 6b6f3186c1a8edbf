"""Saved tensors (`.npy`, `.npz`, `.safetensors`, `.pt`): untrusted files, read only as numbers.

A file's first bytes tell its format. Declared sizes are checked before anything is read, no objects
are unpickled, and torch's reader of plain tensors makes only tensors, lists and dicts from a `.pt`.
"""

import math
import os
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from relascope.core.errors import EngineError, reporting
from relascope.engine.files.archive import MIB, Archive, plainly

Saved = tuple[tuple[str, torch.Tensor], ...]
_COUNT, _HEADER = 1000, 4 * MIB
_PACKED = 256 * MIB
"""Bytes by which the tensors of a file may exceed the size of the file."""
_DTYPES = "float16 float32 float64 bfloat16 int8 uint8 int16 int32 int64 bool"
_KNOWN = frozenset(getattr(torch, name) for name in _DTYPES.split())
_HINT = "Save numeric tensors or arrays: one, a list, or a dict by the names of inputs."


def read_tensors(path: Path) -> Saved:
    """The tensors of a file with their names, or "". Refuses (kind "file") another format, anything
    but plain tensors, and more data than a file of its size should hold."""
    with path.open("rb") as file:
        head = file.read(9)
    read = next((r for begins, r in _FORMATS if re.match(begins, head, re.DOTALL)), None)
    if read is None:
        message = f"{path.name} is not a .npy, .npz, .safetensors or .pt file."
        raise EngineError("file", message, path.name, _HINT)
    with reporting(lambda wrong: _refused(path, f"cannot be parsed: {_said(wrong)}")):
        found = read(path)
    if not found or not all(t.numel() for _, t in found):
        raise _refused(path, "holds a tensor without elements" if found else "holds no tensor")
    return found


def _said(wrong: BaseException) -> str:
    named = re.search(r"Unsupported (?:global: GLOBAL|class) ([\w.]+)", str(wrong))
    return f"it names {named[1]}, which is not a tensor" if named else plainly(wrong)


def _refused(path: Path, why: str) -> EngineError:
    return EngineError("file", f"Cannot read {path.name}: it {why}.", path.name, _HINT)


def _check_sizes(path: Path, sizes: list[int]) -> None:
    """Refuse more tensors, or more bytes of them, than a file of this size should hold."""
    if len(sizes) > _COUNT:
        raise _refused(path, f"holds more than {_COUNT:,} tensors")
    if sum(sizes) > os.path.getsize(path) + _PACKED:
        raise _refused(path, f"declares {sum(sizes) / MIB:,.0f} MiB of tensors in a smaller file")


def _array(path: Path, stream: IO[bytes], size: int) -> torch.Tensor:
    """An array in numpy's format, which must have all its bytes."""
    version = np.lib.format.read_magic(stream)
    if version > (2, 0):
        raise _refused(path, "holds an array with fields")
    first, second = np.lib.format.read_array_header_1_0, np.lib.format.read_array_header_2_0
    try:
        shape, by_column, dtype = (first if version == (1, 0) else second)(stream)
    except Exception as wrong:  # the parser raises anything
        raise _refused(path, "has an invalid array header") from wrong
    if dtype.hasobject:
        raise _refused(path, "holds an array of objects, which are pickled")
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise _refused(path, f"holds an array of {str(dtype)[:40]}, which no input can be")
    bytes_ = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or bytes_ != size - stream.tell():
        raise _refused(path, f"holds an array of shape {list(shape)} in {size} bytes")
    array = np.frombuffer(stream.read(bytes_), dtype)
    array = array.reshape(shape, order="F" if by_column else "C")
    if dtype.kind == "u" and dtype.itemsize > 1:  # which torch barely supports
        if array.size and int(array.max()) >= 2**63:
            raise _refused(path, "holds integers too large for int64")
        return torch.from_numpy(array.astype(np.int64))
    return torch.from_numpy(np.ascontiguousarray(array.astype(dtype.newbyteorder("="))))


def _npy(path: Path) -> Saved:
    with path.open("rb") as file:
        return (("", _array(path, file, os.path.getsize(path))),)


def _zip(path: Path) -> Saved:
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        names = [e.filename.removesuffix(".npy") for e in entries]
        if not all(e.filename.endswith(".npy") for e in entries):
            return _torch(path)
        _check_sizes(path, [e.file_size for e in entries])
        known = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        if len({*names}) < len(names) or any(e.compress_type not in known for e in entries):
            raise _refused(path, "is not an archive as numpy writes it")
        found = []
        for name, entry in zip(names, entries, strict=True):
            with archive.open(entry) as stream:
                found.append((name, _array(path, stream, entry.file_size)))
    # numpy.savez gives these names to arrays without one.
    plain = all(re.fullmatch(r"arr_\d+", n) for n, _ in found)
    return tuple(("" if plain else n, t) for n, t in found)


def _safetensors(path: Path) -> Saved:
    from safetensors import safe_open

    with path.open("rb") as file:
        if int.from_bytes(file.read(8), "little") > _HEADER:
            raise _refused(path, f"has a header of more than {_HEADER // MIB} MiB")
    with safe_open(str(path), "pt") as file:
        names = [*file.keys()]
        _check_sizes(path, [0] * len(names))  # each byte belongs to one of them
        return tuple((n, _plain(path, n, file.get_tensor(n)).clone()) for n in names)


def _torch(path: Path) -> Saved:
    archive = Archive(path)
    if any(name.lower() == "constants.pkl" for name in archive.sizes):
        raise _refused(path, "is a TorchScript model, not saved tensors")
    value: Any = torch.load(path, map_location="cpu", weights_only=True)
    if isinstance(value, dict):
        found = [*value.items()]
    else:
        found = [("", one) for one in (value if isinstance(value, list | tuple) else [value])]
    if strange := [n for n, _ in found if not isinstance(n, str)]:
        raise _refused(path, f"has a {type(strange[0]).__name__} as a tensor's name")
    _check_sizes(path, [0] * len(found))
    tensors = [(n, _plain(path, n, one)) for n, one in found]
    _check_sizes(path, [t.numel() * t.element_size() for _, t in tensors])
    return tuple((n, t.contiguous()) for n, t in tensors)


def _plain(path: Path, name: str, value: Any) -> torch.Tensor:
    what = f"{name[:80]!r}, " if name else ""
    if not isinstance(value, torch.Tensor):
        raise _refused(path, f"holds {what}a {type(value).__name__}, which is not a tensor")
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout != torch.strided:
        raise _refused(path, f"holds {what}a tensor that is not plain")
    if value.is_quantized or value.device.type != "cpu" or value.dtype not in _KNOWN:
        raise _refused(path, f"holds {what}a tensor of {value.dtype}, which no input can be")
    return value.detach()


_FORMATS: tuple[tuple[bytes, Callable[[Path], Saved]], ...] = (
    (rb"\x93NUMPY", _npy),
    (rb"PK\x03\x04", _zip),
    (rb".{8}\{", _safetensors),
)
