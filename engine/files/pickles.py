"""The skeleton of a TorchScript pickle: lists, numbers, texts, and stand-ins for the rest.

In the end torch's C++ reader reads such a pickle. This one checks before, with harmless stand-ins
for the few allowed names, that it has no others.
"""

import io
import pickle
from typing import Any

import torch

from relascope.core.graph import TensorType
from relascope.engine.files.archive import Archive, plainly
from relascope.engine.files.operators import UNPACKED

_DTYPES = (
    "Float=float32 Double=float64 Half=float16 BFloat16=bfloat16 Long=int64 Int=int32 "
    "Short=int16 Char=int8 Byte=uint8 Bool=bool QInt8=qint8 "
    "ComplexHalf=complex32 ComplexFloat=complex64 ComplexDouble=complex128"
)
_STORAGES = {f"{k}Storage": d for k, d in (pair.split("=") for pair in _DTYPES.split())}
_ITEM = {d: getattr(torch, d).itemsize for d in _STORAGES.values()}
_LISTS = ("build_intlist", "build_tensorlist", "build_doublelist", "build_boollist")
_DEEPEST = 1000


class _Object:
    parts: list[Any]

    def __new__(cls, *parts: Any) -> "_Object":
        made = super().__new__(cls)
        made.parts = list(parts)
        return made

    def __setstate__(self, state: Any) -> None:
        self.parts.append(state)


class _Weight(tuple[int, ...]):
    """Stands for a quantized tensor, and is its shape."""


class LinearPackedParamsBase:
    """Stands for int8 weights and a bias, which PyTorch packs as it reads them."""

    def __setstate__(self, state: Any) -> None:
        match state:
            case (_Weight((rows, _)), None | TensorType((_,), "float32") as bias):
                if bias is None or bias.shape[0] == rows:
                    return
        raise pickle.UnpicklingError("its packed weights are not int8 weights of quantize_dynamic")


class CellParamsBase:
    """Stands for the packed weights of a recurrent cell, with a copy of their biases."""

    def __setstate__(self, state: Any) -> None:
        match state:
            case ("quantized_dynamic", [TensorType(), TensorType()], [], [0 | 1], [one, other]):
                if type(one) is type(other) is LinearPackedParamsBase:
                    return
        raise pickle.UnpicklingError("its packed cell has no int8 weights of quantize_dynamic")


def skeleton(archive: Archive, member: str) -> tuple[Any, list[Any]]:
    """The value of a pickle, and each list, tuple, dict and object in it. Refuses (kind "file")
    what is not a pickle, has a name that is not allowed, or a tensor larger than its member."""
    try:
        made = _Skeleton(archive, member).load()
    except (pickle.UnpicklingError, ArithmeticError, LookupError, MemoryError, RecursionError) as e:
        hint = UNPACKED if "quantize" in str(e) else ""
        raise archive.refused(member, f"cannot be read: {plainly(e)}", hint) from e
    except (ValueError, TypeError, EOFError, AttributeError, ImportError) as e:
        raise archive.refused(member, f"is not a TorchScript pickle: {plainly(e)}") from e
    if (parts := _nested(made)) is None:
        raise archive.refused(member, f"nests values more than {_DEEPEST} deep")
    if any(isinstance(p, _Weight) for p in parts):
        raise archive.refused(member, "has a quantized tensor outside packed weights", UNPACKED)
    return made, parts


class _Skeleton(pickle.Unpickler):
    def __init__(self, archive: Archive, member: str) -> None:
        super().__init__(io.BytesIO(archive.read(member)))
        self.archive, self.member = archive, member

    def find_class(self, module: str, name: str) -> Any:
        whole = f"{module}.{name}"  # torch joins the two, wherever a pickle splits them
        if whole in _KNOWN:
            return _KNOWN[whole]
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        if whole.startswith("__torch__.") and not whole.startswith("__torch__.torch.classes"):
            return type("_Object", (_Object,), {})  # a new one, so that a pickle changes no other
        raise self.archive.refused(self.member, f"names {module}.{name}, which is not allowed")

    def persistent_load(self, pid: Any) -> str:
        _, dtype, key, _, numel = pid
        folder = self.member.removesuffix(".pkl")
        # Recorded inputs have no values in the file; torch reads only shapes.
        if folder != "traced_inputs":
            has = self.archive.sizes.get(f"{folder}/{key}", 0)
            # torch also accepts a number as a dtype.
            if dtype not in _STORAGES.values() or not 0 <= numel * _ITEM.get(dtype, 2) <= has:
                said = f"has a tensor of {numel} values of {dtype} in a member of {has} bytes"
                raise self.archive.refused(self.member, said)
        return str(dtype)


def _tensor(dtype: str, offset: int, shape: tuple[int, ...], *rest: Any) -> TensorType:
    if not all(type(d) is int and d >= 0 for d in shape):
        raise pickle.UnpicklingError(f"a tensor has the sizes {list(shape)}")
    if dtype == "qint8":
        raise pickle.UnpicklingError("a tensor is quantized without saying how")
    return TensorType(tuple(shape), dtype)


def _weight(dtype: str, offset: int, shape: Any, strides: Any, form: Any, *rest: Any) -> _Weight:
    (rows, columns), known = shape, False
    match form:
        case ("per_tensor_affine", float(), int()):
            known = True
        case ("per_channel_affine", TensorType((count,)), TensorType((same,)), 0):
            known = count == same == rows
    if not (known and dtype == "qint8" and min(shape) > 0 and strides == (columns, 1)):
        raise pickle.UnpicklingError("a tensor is quantized, but not by quantize_dynamic")
    return _Weight(shape)


_NESTING = (list, tuple, dict, _Object)
PACKED = {
    "__torch__.torch.classes.quantized.LinearPackedParamsBase": LinearPackedParamsBase,
    "__torch__.torch.classes.rnn.CellParamsBase": CellParamsBase,
}
"""PyTorch's own classes whose objects a trace may contain."""
_KNOWN: dict[str, Any] = {
    "torch.jit._pickle.restore_type_tag": lambda value, tag: value,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_parameter": lambda tensor, *rest: tensor,
    "collections.OrderedDict": lambda *pairs: dict(*pairs),
    "torch._utils._rebuild_qtensor": _weight,
    "torch.per_tensor_affine": "per_tensor_affine",
    "torch.per_channel_affine": "per_channel_affine",
    **PACKED,
    "torch.device": lambda *named: _Object(*named),
    **{f"torch.jit._pickle.{n}": lambda values: values for n in _LISTS},
}


def _nested(value: Any) -> list[Any] | None:
    """Each list, tuple, dict and object in a value, once, the outermost first; None if they nest
    too deeply for recursive functions."""
    found: list[Any] = []
    level, seen = [value], set()
    for _ in range(_DEEPEST):
        inner: list[Any] = []
        for one in level:
            if id(one) not in seen and isinstance(one, _NESTING):
                seen.add(id(one))
                found.append(one)
                parts = one.parts if isinstance(one, _Object) else one
                inner += [*parts, *parts.values()] if isinstance(parts, dict) else parts
        if not inner:
            return found
        level = inner
    return None
