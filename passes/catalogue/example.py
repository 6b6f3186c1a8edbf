"""A program small enough to read on which a pass shows what it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from relascope.passes.catalogue import info, read_pipeline
from relascope.passes.program import Program


@dataclass(frozen=True)
class Example:
    """What a pass is shown on.

    Args:
        program: typed; what the pass needs to have run before it has run.
        params: of the pass, as a pipeline's text has them.
        differs: why the program computes something else after the pass, on purpose; "" where it
            computes the same.
    """

    program: Program
    params: tuple[tuple[str, str], ...] = ()
    differs: str = ""


Make = Callable[[str], Example]
"""Builds an example whose floating tensors have a dtype: "float32" or "float64"."""


def draw(name: str, *shape: int, dtype: str) -> np.ndarray:
    """Values between 0.5 and 1.5, the same for the same name; no variance is below 0 so."""
    seed = int.from_bytes(name.encode(), "little") % 2**32
    return np.random.default_rng(seed).uniform(0.5, 1.5, shape).astype(dtype)


def by_name(tensors: Callable[[str], Any], *modules: ModuleType) -> Mapping[str, Make]:
    """The examples in some modules by their passes' names, which their functions have.

    Args:
        tensors: makes what the functions take, from a dtype.
    """

    def made(function: FunctionType) -> Make:
        return lambda dtype: function(tensors(dtype))

    return {
        name: made(value)
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, FunctionType)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    }


def stepped(ir: str, pipeline: str, program: Any) -> Any:
    """A program after a pipeline's passes."""
    for step in read_pipeline(ir, pipeline):
        entry = info(ir, step)
        program = entry.load()(program, **entry.arguments(step))
    return program
