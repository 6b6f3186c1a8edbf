"""TVM's arrays as bytes, in a file of parameters or inside TVM's JSON.

They are read here because TVM trusts the sizes that such bytes declare.
"""

import struct
from math import prod
from typing import Any

import numpy as np

from relascope.core.errors import EngineError

_LIST, _ARRAY = 0xF7E58D4F05049CB7, 0xDD5E40F096B4A13F
_KINDS = {(0, 8): "i1", (0, 16): "i2", (0, 32): "i4", (0, 64): "i8", (1, 8): "u1", (1, 16): "u2"}
_KINDS |= {(1, 32): "u4", (1, 64): "u8", (2, 16): "f2", (2, 32): "f4", (2, 64): "f8"}
_KINDS |= {(1, 1): "?", (6, 8): "?"}
_MOST = 100_000


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = memoryview(data), 0

    def take(self, count: int) -> memoryview:
        if not 0 <= count <= len(self.data) - self.at:
            raise ValueError("it ends too early")
        self.at += count
        return self.data[self.at - count : self.at]

    def numbers(self, form: str) -> tuple[Any, ...]:
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))


def read_array(data: bytes) -> np.ndarray:
    """An array from its bytes; a ValueError says what is wrong with them."""
    source = _Bytes(data)
    array = _array(source)
    if source.at != len(source.data):
        raise ValueError("more bytes follow its array")
    return array


def read_params(data: bytes, name: str) -> dict[str, np.ndarray]:
    """Arrays by name, of the file `name`, as `tvm.runtime.save_param_dict` writes them. Raises an
    EngineError of kind "file" that says what is wrong."""
    try:
        source = _Bytes(data)
        magic, _, count = source.numbers("QQQ")
        if magic != _LIST:
            raise ValueError("it does not begin like TVM parameters")
        if count > _MOST:
            raise ValueError(f"it has more than {_MOST:,} arrays")
        names = [bytes(source.take(source.numbers("Q")[0])).decode() for _ in range(count)]
        if source.numbers("Q") != (count,):
            raise ValueError("it does not have as many arrays as names")
        if len(set(names)) != count:
            raise ValueError("it has the same name twice")
        found = {one: _array(source) for one in names}
    except (ValueError, struct.error) as wrong:  # UnicodeDecodeError is a ValueError
        what = "a name is not UTF-8" if isinstance(wrong, UnicodeDecodeError) else str(wrong)
        hint = "Save it with tvm.runtime.save_param_dict."
        raise EngineError("file", f"{name} cannot be read: {what}.", name, hint) from wrong
    return found


def _array(source: _Bytes) -> np.ndarray:
    magic, _, device, _, rank = source.numbers("QQiii")
    code, bits, lanes = source.numbers("BBH")
    if magic != _ARRAY:
        raise ValueError("an array in it does not begin like a TVM array")
    kind = _KINDS.get((code, bits))
    if kind is None or lanes != 1 or device != 1:
        raise ValueError(f"an array in it has an unsupported dtype (code {code}, {bits} bits)")
    if not 0 <= rank <= 32:
        raise ValueError(f"an array in it has {rank} dimensions")
    shape = source.numbers(f"{rank}q")
    (size,) = source.numbers("q")
    dtype = np.dtype(kind).newbyteorder("<") if kind != "?" else np.dtype("?")
    if any(d < 0 for d in shape) or prod(shape) * dtype.itemsize != size:
        raise ValueError("the size of an array in it does not match its shape")
    raw = source.take(size)
    if kind == "?":  # bytes other than 0 and 1 are not valid bools
        return (np.frombuffer(raw, np.uint8) != 0).reshape(shape)
    return np.frombuffer(raw, dtype).reshape(shape).copy()
