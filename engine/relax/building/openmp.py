"""This TVM's parallel loops on PyTorch's threads (`engine.building.threads.TEAM`)."""

import ctypes

import tvm
import tvm_ffi
from tvm import te

from relascope.engine.building.threads import ADDRESS, ENTRY, LAUNCH, TEAM
from relascope.engine.relax.building.targets import parse, processor

_ENTRY = f"""
define i32 @__tvm_ffi_{ENTRY}(i64 %self, i64 %arguments, i32 %count, %word %result) {{
  store i64 1, %word %result ; its type is an integer
  %value = getelementptr i64, %word %result, i64 1
  store {ADDRESS}, %word %value
  ret i32 0
}}
"""


def hand_over() -> None:
    """Make libraries that are loaded from now on launch their loops there."""
    one = te.placeholder((1,))
    made = te.create_prim_func([one, te.compute((1,), lambda i: one[i])])
    target = tvm.compile(tvm.IRModule({"main": made}), parse(processor())).mod.inspect_source("ll")
    launch = TEAM.launcher(tvm.runtime.load_module, target, _ENTRY)
    if launch is not None:
        library = ctypes.CDLL(str(tvm_ffi.libinfo.find_libtvm_ffi()))
        register = library.TVMFFIEnvModRegisterContextSymbol
        register(f"__{LAUNCH}".encode(), ctypes.c_void_p(launch))
