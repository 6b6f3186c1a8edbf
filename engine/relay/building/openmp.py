"""This TVM's parallel loops on PyTorch's threads (`engine.building.threads.TEAM`)."""

import ctypes
import mmap

import tvm
from elftools.elf.elffile import ELFFile
from tvm import te
from tvm._ffi.base import _LIB

from relascope.engine.building.threads import ADDRESS, ENTRY, LAUNCH, TEAM
from relascope.engine.relay.building.targets import parse, processor

_ENTRY = f"""
define i32 @{ENTRY}(i64 %values, i64 %types, i32 %count, %word %result, %count %type, i64 %self) {{
  store {ADDRESS}, %word %result
  store i32 0, %count %type ; an integer
  ret i32 0
}}
"""


def hand_over() -> None:
    """Make libraries that are loaded from now on launch their loops there.

    TVM takes the launcher's address from its library's global offset table; ours replaces it there.
    """
    one = te.placeholder((1,))
    made = te.create_prim_func([one, te.compute((1,), lambda i: one[i])])
    target = tvm.build(tvm.IRModule({"main": made}), target=parse(processor())).get_source("ll")
    launch = TEAM.launcher(tvm.runtime.load_module, target, _ENTRY)
    if launch is None:
        return
    with open(_LIB._name, "rb") as file:
        (table,) = (s for s in ELFFile(file).iter_sections() if s.name == ".got")
    # The loader's record of the library (link_map) begins with the address where it is loaded.
    begin = ctypes.c_size_t.from_address(_LIB._handle).value + table["sh_addr"]
    slots = (ctypes.c_size_t * (table["sh_size"] // 8)).from_address(begin)
    theirs = ctypes.cast(getattr(_LIB, LAUNCH), ctypes.c_void_p).value
    protect = ctypes.CDLL(None).mprotect
    for index in (i for i, address in enumerate(slots) if address == theirs):
        page = ctypes.c_void_p((begin + 8 * index) // mmap.PAGESIZE * mmap.PAGESIZE)
        size = ctypes.c_size_t(mmap.PAGESIZE)
        if not protect(page, size, mmap.PROT_READ | mmap.PROT_WRITE):
            slots[index] = launch
            protect(page, size, mmap.PROT_READ)
