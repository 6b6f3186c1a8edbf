"""What a tuner's processes do our way: building kernels, their arguments, threads."""

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm.s_tir.meta_schedule.builder.local_builder import default_export

from relascope.engine.relax.kernels import schedules


def build(ours: bool, on_cpu: bool, kernel: tuple[Any, Any]) -> str:
    """Build a scheduled kernel (a module with "main", and its target); returns its file's path.
    `ours` is for a target with our schedules, where exp and the like are our polynomials; `on_cpu`
    for this CPU, whose object files TVM links without a compiler."""
    mod, target = kernel
    plain = tvm.s_tir.transform.RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(mod)
    with schedules.ARITHMETIC.used(ours, target):
        library = tvm.tirx.build(plain, target=target)
    if not on_cpu:
        return str(default_export(library))
    path = Path(tempfile.mkdtemp()) / "kernel.o"
    library.write_to_file(str(path), "o")
    return str(path)


def arguments(*given: Any) -> list[list[Any]]:
    """The arguments of a kernel: TVM's `f_alloc_argument`."""
    *_, device, kinds, _ = given
    return [values(((shape, dtype) for _, dtype, shape in kinds), device)]


def values(kinds: Iterable[tuple[Sequence[int], str]], device: Any) -> list[Any]:
    """TVM tensors of these shapes and dtypes: random floats, and integers 0, a valid index."""
    numbers = np.random.default_rng(0)
    drawn = (
        numbers.random(shape).astype(dtype) if "float" in dtype else np.zeros(shape, dtype)
        for shape, dtype in kinds
    )
    return [tvm.runtime.tensor(array, device) for array in drawn]


def start(threads: int) -> None:
    """Make kernels use this many threads, on any kind of core."""
    tvm.get_global_func("runtime.config_threadpool")(0, threads)
