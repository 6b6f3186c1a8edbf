"""What the processes of a tuner do in our way: building kernels, their arguments, threads."""

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm.s_tir.meta_schedule.builder.local_builder import default_export

from relascope.engine.relax.kernels import schedules


def build(ours: bool, on_cpu: bool, kernel: tuple[Any, Any]) -> str:
    """Build a scheduled kernel (a module with "main", and its target); the path of its file. `ours`
    is for a target with our schedules, where exp and the like are our polynomials; `on_cpu` for
    this CPU, which TVM links by itself: its archives take a compiler."""
    mod, target = kernel
    plain = tvm.s_tir.transform.RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(mod)
    with schedules.ARITHMETIC.used(ours):
        library = tvm.tirx.build(plain, target=target)
    if not on_cpu:
        return str(default_export(library))
    path = Path(tempfile.mkdtemp()) / "kernel.o"
    library.write_to_file(str(path), "o")
    return str(path)


def arguments(*given: Any) -> list[list[Any]]:
    """What a kernel is called with; TVM's `f_alloc_argument`."""
    *_, device, kinds, _ = given
    return [values(((shape, dtype) for _, dtype, shape in kinds), device)]


def values(kinds: Iterable[tuple[Sequence[int], str]], device: Any) -> list[Any]:
    """TVM's tensors of such shapes and dtypes: random floats, and for integers 0, a valid index."""
    numbers = np.random.default_rng(0)
    drawn = (
        numbers.random(shape).astype(dtype) if "float" in dtype else np.zeros(shape, dtype)
        for shape, dtype in kinds
    )
    return [tvm.runtime.tensor(array, device) for array in drawn]


def start(threads: int) -> None:
    """Have kernels use so many threads, tied to no kind of core."""
    tvm.get_global_func("runtime.config_threadpool")(0, threads)
