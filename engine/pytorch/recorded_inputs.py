"""The types of the example inputs that `torch.jit.trace` leaves in a saved trace.

torch writes them into the archive (shapes and dtypes; the values are not kept) and gives no way to
read them back. They are a pickle; what is read here is its skeleton of lists, numbers and names,
through an unpickler that knows three harmless functions and refuses all else, so that a file from
a stranger can run nothing.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

from relascope.core.graph import TensorType

_DTYPES = (
    "Float=float32 Double=float64 Half=float16 BFloat16=bfloat16 Long=int64 Int=int32 "
    "Short=int16 Char=int8 Byte=uint8 Bool=bool"
)
_STORAGES = {f"{k}Storage": d for k, d in (pair.split("=") for pair in _DTYPES.split())}


def recorded_inputs(path: Path) -> tuple[TensorType, ...]:
    """Types of the inputs that a trace was taken with; empty where the file does not tell.

    Args:
        path: of a TorchScript archive.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            pickled = [n for n in archive.namelist() if n.endswith("/traced_inputs.pkl")]
            if len(pickled) != 1:
                return ()
            skeleton = _Skeleton(io.BytesIO(archive.read(pickled[0]))).load()
    except (zipfile.BadZipFile, pickle.UnpicklingError, ValueError, TypeError, EOFError):
        return ()
    found = skeleton.get("forward", []) if isinstance(skeleton, dict) else []
    return tuple(found) if all(isinstance(t, TensorType) for t in found) else ()


def _tensor(dtype: str, offset: int, shape: tuple[int, ...], *rest: Any) -> TensorType:
    return TensorType(tuple(shape), dtype)


class _Skeleton(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        known = {
            "torch.jit._pickle.restore_type_tag": lambda value, tag: value,
            "torch._utils._rebuild_tensor_v2": _tensor,
            "collections.OrderedDict": dict,
        }
        if f"{module}.{name}" in known:
            return known[f"{module}.{name}"]
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        raise pickle.UnpicklingError(f"{module}.{name} has no place among recorded inputs")

    def persistent_load(self, pid: Any) -> str:
        _, dtype, *_ = pid
        return str(dtype)
