"""The example inputs that `torch.jit.trace` leaves in a saved trace.

torch writes them into the archive and gives no way to read them back. They are a pickle; what is
read here is its skeleton of lists, numbers and names, through an unpickler that knows two harmless
functions and refuses all else, so that a file from a stranger can run nothing.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import torch

_STORAGES = {
    "FloatStorage": torch.float32, "DoubleStorage": torch.float64, "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16, "LongStorage": torch.int64, "IntStorage": torch.int32,
    "ShortStorage": torch.int16, "CharStorage": torch.int8, "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}  # fmt: skip


class _Storage(NamedTuple):
    dtype: torch.dtype
    key: str


class _Tensor(NamedTuple):
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def recorded_inputs(path: Path) -> tuple[torch.Tensor, ...]:
    """The inputs that a trace was taken with; empty where the file does not hold them as tensors.

    Args:
        path: of a TorchScript archive.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            pickled = [n for n in archive.namelist() if n.endswith("/traced_inputs.pkl")]
            if len(pickled) != 1:
                return ()
            folder = pickled[0].removesuffix(".pkl")
            skeleton = _Skeleton(io.BytesIO(archive.read(pickled[0]))).load()
            found = skeleton.get("forward", []) if isinstance(skeleton, dict) else []
            if not all(isinstance(t, _Tensor) for t in found):
                return ()
            return tuple(_tensor(t, archive.read(f"{folder}/{t.storage.key}")) for t in found)
    except (zipfile.BadZipFile, pickle.UnpicklingError, KeyError, EOFError):
        return ()


def _tensor(recorded: _Tensor, data: bytes) -> torch.Tensor:
    if not data:
        return torch.empty(recorded.shape, dtype=recorded.storage.dtype)
    flat = torch.frombuffer(bytearray(data), dtype=recorded.storage.dtype)
    strided = flat.as_strided(recorded.shape, recorded.strides, recorded.offset)
    return strided.contiguous().clone()


class _Skeleton(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        known = {
            "torch.jit._pickle.restore_type_tag": lambda value, tag: value,
            "torch._utils._rebuild_tensor_v2": lambda storage, offset, shape, strides, *rest: (
                _Tensor(storage, offset, shape, strides)
            ),
            "collections.OrderedDict": dict,
        }
        if f"{module}.{name}" in known:
            return known[f"{module}.{name}"]
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        raise pickle.UnpicklingError(f"{module}.{name} has no place among recorded inputs")

    def persistent_load(self, pid: Any) -> _Storage:
        _, dtype, key, *_ = pid
        return _Storage(dtype, key)
