"""The targets that the Relay engine can compile for on this machine, the best first."""

import functools
from typing import Any

import numpy as np
import tvm
from tvm import relay
from tvm.contrib import graph_executor

from relascope.engine.building.cuda_graphs import GRAPHS, ON_GPU
from relascope.engine.building.devices import Tvm
from relascope.engine.cpu_kernels.openblas import ON_CPU, OPENBLAS, cpu_ways
from relascope.engine.cpu_kernels.schedules import FLAGS, SCHEDULES
from relascope.engine.protocol import target_text
from relascope.engine.protocol.tuning import RECORDS
from relascope.engine.relay.kernels import blas
from relascope.engine.relay.tvm.boot import cuda_missing

BLAS = "-libs=mkl"
"""A CPU target's option for matmuls by PyTorch's BLAS; see `kernels.blas`."""

CUBLAS = "-libs=cublas"
"""The same for one of NVIDIA's GPUs, with PyTorch's cuBLAS."""

LIBRARIES = (BLAS, OPENBLAS, CUBLAS)
"""The options of a target that name a library of ours."""


def parse(target: str) -> Any:
    """A target's text as TVM's target. Raises EngineError of kind "target" if TVM refuses it, LLVM
    has no such architecture, or OpenBLAS or CUDA graphs are not for this kind."""
    target_text.parse_target(target)
    target_text.refuse_elsewhere(target, {OPENBLAS: ON_CPU, GRAPHS: ON_GPU})
    # TVM's rules know MKL; the second library's name tells `engine.relay.kernels.blas` whom to
    # call.
    named = " ".join(f"{BLAS},openblas" if w == OPENBLAS else w for w in target.split())
    words = target_text.without(named, (target_text.GPU, RECORDS, SCHEDULES, GRAPHS))
    if SCHEDULES in target.split():
        words = " ".join([words, *(f"-{flag}" for flag in FLAGS)])
    return _TVM.new_target(target, lambda: tvm.target.Target(words))


def _run(target: str, device: Any, given: np.ndarray) -> np.ndarray:
    x = relay.var("x", shape=(1, given.size), dtype="float32")
    made = x * relay.const(2.0) + relay.const(1.0)
    if target_text.library(target, (BLAS, CUBLAS)):  # a product with 1, by the library
        blas.register()
        made = relay.nn.dense(made, relay.const(np.eye(given.size, dtype="float32")))
    built = relay.build(tvm.IRModule.from_expr(relay.Function([x], made)), parse(target))
    running = graph_executor.GraphModule(built["default"](device))
    running.run(x=tvm.nd.array(given[None], device))
    return np.asarray(running.get_output(0).numpy()[0])


_TVM = Tvm(
    tvm,
    parse,
    _run,
    cuda_missing,
    functools.partial(cpu_ways, BLAS),
    {
        f"{CUBLAS} {GRAPHS}": "PyTorch's cuBLAS, TVM's default schedules, CUDA graphs",
        CUBLAS: "PyTorch's cuBLAS, TVM's default schedules",
        "": "TVM's default schedules",
    },
)
targets, target, processor = _TVM.targets, _TVM.target, _TVM.processor
compiler_for = _TVM.compiler_for
