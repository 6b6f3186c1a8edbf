"""Short ways into a TVM that came without the compiled half of its Python, as bitblas's does.

There, each look at a Relay object goes through ctypes and much of TVM's Python. Fields and
elements of arrays, which passes read a million times, are read here with less. Results and errors
are TVM's.
"""

import ctypes
from typing import Any

import tvm
from tvm._ffi._ctypes import object as objects
from tvm._ffi._ctypes.types import RETURN_SWITCH, TVMValue
from tvm._ffi.base import _LIB, raise_last_ffi_error
from tvm._ffi.runtime_ctypes import ArgTypeCode
from tvm.runtime import Object, _ffi_api, _ffi_node_api
from tvm.runtime.container import getitem_helper

_call, _type_index, _free = _LIB.TVMFuncCall, _LIB.TVMObjectGetTypeIndex, _LIB.TVMObjectFree
_byref, _c_int, _c_uint, _c_void_p = ctypes.byref, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p
_Two = ctypes.c_void_p * 2
_names: dict[str, Any] = {}  # of fields, as C strings


def shorten() -> None:
    """Replace the parts of TVM's Python, if it is the one of ctypes."""
    if Object.__mro__[1] is not objects.ObjectBase:
        return
    RETURN_SWITCH[ArgTypeCode.OBJECT_HANDLE] = _returned
    objects.ObjectBase.__del__ = _freed
    Object.__getattr__ = _field
    tvm.ir.Array.__len__ = lambda array: _get_length(_byref(array.handle))
    tvm.ir.Array.__getitem__ = lambda array, i: getitem_helper(array, _element, len(array), i)


def _returned(value: TVMValue) -> Any:
    handle, index = _c_void_p(value.v_handle), _c_uint()
    _type_index(handle, _byref(index))
    kind = objects.OBJECT_TYPE.get(index.value, Object)
    native = issubclass(kind, objects.PyNativeObject)
    made = Object.__new__(Object if native else kind)
    made.handle = handle
    return kind.__from_tvm_object__(kind, made) if native else made


def _freed(owner: Any) -> None:
    handle = getattr(owner, "handle", None)
    if handle is not None and _LIB is not None:  # as at the interpreter's end
        _free(handle)


def _short(function: Any, *kinds: int) -> Any:
    """A function that calls one of TVM's with an array of arguments of these kinds."""
    codes, count, address = (_c_int * len(kinds))(*kinds), _c_int(len(kinds)), function.handle

    def called(values: Any) -> Any:
        value, code = TVMValue(), _c_int()
        if _call(address, values, codes, count, _byref(value), _byref(code)):
            raise_last_ffi_error()
        return RETURN_SWITCH[code.value](value)

    return called


_get_field = _short(_ffi_node_api.NodeGetAttr, ArgTypeCode.OBJECT_HANDLE, ArgTypeCode.STR)
_get_element = _short(_ffi_api.ArrayGetItem, ArgTypeCode.OBJECT_HANDLE, ArgTypeCode.INT)
_get_length = _short(_ffi_api.ArraySize, ArgTypeCode.OBJECT_HANDLE)


def _field(owner: Any, name: str) -> Any:
    if name == "handle":  # of an object that is still being made
        raise AttributeError("handle is not set")
    if name not in _names:
        buffer = ctypes.create_string_buffer(name.encode())
        _names[name] = ctypes.addressof(buffer), buffer
    try:
        return _get_field(_Two(owner.handle, _names[name][0]))
    except AttributeError:
        raise AttributeError(f"{type(owner)} has no attribute {name}") from None


def _element(array: Any, i: int) -> Any:
    return _get_element(_Two(array.handle, i))
