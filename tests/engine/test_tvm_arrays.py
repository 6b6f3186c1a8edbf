"""Parameters as TVM writes them, and bytes that only look so."""

import struct

import numpy as np
import pytest

from answers import refused
from relascope.engine.files.tvm_arrays import read_array, read_params

ARRAY, LIST = 0xDD5E40F096B4A13F, 0xF7E58D4F05049CB7
VALUES = np.arange(6, dtype="float32").reshape(2, 3)


def array(values=VALUES, code=2, bits=32, magic=ARRAY, rank=None, size=None):
    data = values.tobytes()
    about = magic, 0, 1, 0, values.ndim if rank is None else rank, code, bits, 1
    head = struct.pack("<QQiiiBBH", *about) + struct.pack(f"<{values.ndim}q", *values.shape)
    return head + struct.pack("<q", len(data) if size is None else size) + data


def params(*arrays, names=("a", "b"), magic=LIST, count=None, again=None):
    count = len(arrays) if count is None else count
    listed = [n if isinstance(n, bytes) else n.encode() for n in names[: len(arrays)]]
    named = b"".join(struct.pack("<Q", len(n)) + n for n in listed)
    again = count if again is None else again
    return (
        struct.pack("<QQQ", magic, 0, count) + named + struct.pack("<Q", again) + b"".join(arrays)
    )


def test_what_was_written_is_read():
    flags = np.array([0, 1, 2], np.uint8)  # as C has them, any number but 0 is true
    found = read_params(params(array(), array(flags, 1, 1)), "w.params")
    assert np.array_equal(found["a"], VALUES)
    assert found["b"].tolist() == [False, True, True]
    with pytest.raises(ValueError, match="more bytes follow"):
        read_array(array() + b"\0")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (params(array())[:-1], "it ends too early"),
        (params(magic=1), "does not begin like TVM parameters"),
        (params(count=10**9), "more than 100,000 arrays"),
        (params(array(), again=3), "not have as many arrays as names"),
        (params(array(), array(), names=("a", "a")), "the same name twice"),
        (params(array(), names=(b"\xff",)), "a name is not UTF-8"),
        (params(array(magic=1)), "does not begin like a TVM array"),
        (params(array(code=4)), "an unsupported dtype (code 4, 32 bits)"),
        (params(array(rank=99)), "has 99 dimensions"),
        (params(array(size=2**62)), "does not match its shape"),
    ],
)
def test_what_is_wrong_is_said(data, why):
    with refused(match="^w.params cannot be read: ", says=why):
        read_params(data, "w.params")
