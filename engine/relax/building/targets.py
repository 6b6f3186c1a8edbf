"""The targets that the Relax engine can compile for on this machine, the best first."""

import functools
from typing import Any

import numpy as np
import tvm
from tvm import relax

from relascope.engine.building.cuda_graphs import GRAPHS, ON_GPU
from relascope.engine.building.devices import Tvm
from relascope.engine.cpu_kernels.openblas import ON_CPU, OPENBLAS, cpu_ways
from relascope.engine.cpu_kernels.schedules import FLAGS, SCHEDULES
from relascope.engine.protocol import target_text
from relascope.engine.protocol.tuning import RECORDS
from relascope.engine.relax.building.cuda_runtime import missing
from relascope.engine.relax.kernels import blas

BLAS = "-libs=blas"
"""A target's option for matmuls by PyTorch's library; see `kernels.blas`."""

LIBRARIES = (BLAS, OPENBLAS)
"""The options of a target that name a library of ours."""

DLIGHT = "-schedules=dlight"
"""An option that a GPU target may have and that changes nothing: kernels scheduled by DLight."""

_OURS = (BLAS, OPENBLAS, SCHEDULES, RECORDS, DLIGHT, GRAPHS)
_GPUS = ("cuda", "metal", "opencl", "vulkan")
_KINDS = {
    OPENBLAS: ON_CPU,
    GRAPHS: ON_GPU,
    SCHEDULES: (("llvm",), "relascope's schedules are for CPUs; GPU kernels have DLight's."),
    DLIGHT: (_GPUS, "DLight's schedules are for GPUs."),
}
_UNROLL = "-unroll-threshold-aggressive:uint=60"
"""Keeps LLVM from unrolling whole loops over small tensors, which makes nothing faster but took
most of the build time: ten times as long for a layer norm over 8x256 elements."""


def parse(target: str) -> Any:
    """A target's text as this TVM's target, which accepts only dictionaries. LLVM unrolls less than
    by default, unless the target has `-cl-opt`. Raises EngineError of kind "target" if an option is
    not written as `-name=value`, TVM or LLVM refuses it, or an option of ours is not for this
    kind."""
    kind, options = target_text.parse_target(target)
    target_text.refuse_elsewhere(target, _KINDS)
    ours = [n for n in options if n == target_text.GPU or f"-{n}={options[n]}" in _OURS]
    found: dict[str, Any] = {"kind": kind}
    found |= target_text.typed({n: t for n, t in options.items() if n not in ours})
    if kind == "llvm":
        found.setdefault("cl-opt", [_UNROLL])
        if SCHEDULES in target.split():
            found.update(dict.fromkeys(FLAGS, True))
    return _TVM.new_target(target, lambda: tvm.target.Target(found))


_DLIGHTS = "DLight's schedules"
_BY_LIBRARIES = f"PyTorch's cuBLAS and cuDNN, {_DLIGHTS}"
_CUDA_WAYS = {
    f"{BLAS} {GRAPHS}": f"{_BY_LIBRARIES}, CUDA graphs",
    BLAS: _BY_LIBRARIES,
    "": _DLIGHTS,
    GRAPHS: f"{_DLIGHTS}, CUDA graphs",
}


def _run(target: str, device: Any, given: np.ndarray) -> np.ndarray:
    x = relax.Var("x", relax.TensorType(given.shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            doubled = builder.emit(relax.op.multiply(x, relax.const(2.0)))
            made = builder.emit(relax.op.add(doubled, relax.const(1.0)))
            if BLAS in target.split():  # a product with 1, by the library
                one = relax.const(np.eye(given.size, dtype="float32"))
                row = builder.emit(relax.op.matmul(relax.op.expand_dims(made, 0), one))
                made = builder.emit(relax.op.squeeze(row, [0]))
            y = builder.emit_output(made)
        builder.emit_func_output(y)
    chosen, mod = parse(target), builder.get()
    if BLAS in target.split():
        blas.register()
        mod = blas.dispatch(mod)
    with chosen:  # the compiler of CUDA source asks for its architecture
        built = tvm.compile(mod, chosen, relax_pipeline=relax.get_default_pipeline(chosen))
    result = relax.VirtualMachine(built, device)["main"](tvm.runtime.tensor(given, device))
    return np.asarray(result.numpy())


_TVM = Tvm(tvm, parse, _run, missing, functools.partial(cpu_ways, BLAS), _CUDA_WAYS)
targets, target, processor = _TVM.targets, _TVM.target, _TVM.processor
compiler_for = _TVM.compiler_for
