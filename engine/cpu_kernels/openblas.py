"""Matrix products by SciPy's OpenBLAS (`scipy_cblas_…`), called by TVM kernels.

A call of PyTorch's library goes through Python. OpenBLAS runs in the calling thread; the threads of
a parallel loop share the product.
"""

import ctypes
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from relascope.core.errors import EngineError
from relascope.engine.building.cpu import cpu_info
from relascope.engine.cpu_kernels.schedules import SCHEDULES
from relascope.engine.protocol.tuning import RECORDS

OPENBLAS = "-libs=openblas"
"""A CPU target's option for matmuls by OpenBLAS."""

ON_CPU = (("llvm",), "OpenBLAS is a library for CPUs.")
"""See `target_text.refuse_elsewhere`."""

FUNCTIONS = {"float32": "scipy_cblas_sgemm", "float64": "scipy_cblas_dgemm"}
"""The library's functions by dtype."""

NOTE = (
    "The library calls functions of the OpenBLAS in SciPy's wheels, such as scipy_cblas_sgemm: "
    "load that first, with RTLD_GLOBAL. Convolutions, and products of unknown shapes, call "
    "functions that relascope implements in Python with PyTorch."
)
"""The note of a library built with it."""

_FILE = "libscipy_openblas"
_ROW_MAJOR, _PLAIN, _TURNED = 101, 111, 112  # of CBLAS's interface
_STEP = 16
"""Threads share rows or columns in multiples of this number, which the library's tiles divide."""


def installed() -> bool:
    return _file() is not None


@functools.cache
def _file() -> Path | None:
    try:
        files = metadata.files("scipy") or ()
    except metadata.PackageNotFoundError:
        return None
    found = (Path(str(f.locate())) for f in files if f.name.startswith(_FILE))
    return next((f for f in found if f.exists()), None)


def preferred() -> bool:
    """Whether it is this machine's first choice, before PyTorch's library.

    On AMD's processors, `bert_layer` in training at 8 × 128 tokens takes 2 to 5 % less time with it
    than with MKL, and the same at small sizes (`bench/speed.py`); Intel's are not measured.
    """
    return installed() and cpu_info().get("vendor_id") != "GenuineIntel"


@functools.cache
def load() -> None:
    """Load the library so that code compiled later finds it, and limit it to one thread. Raises
    EngineError of kind "target" if it is not installed."""
    file = _file()
    if file is None:
        message = f"OpenBLAS is not here: the installed SciPy has no {_FILE}."
        hint = f"Install SciPy's wheel from requirements.txt, or leave out {OPENBLAS}."
        raise EngineError("target", message, OPENBLAS, hint)
    ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL).scipy_openblas_set_num_threads(1)


def cpu_ways(blas: str) -> dict[str, str]:
    """Options of CPU targets with their descriptions; the best last."""

    def ways(option: str, library: str) -> dict[str, str]:
        return {option: library, f"{option} {SCHEDULES}": f"{library}, our schedules"}

    theirs = ways(blas, "PyTorch's BLAS")
    ours = ways(OPENBLAS, "OpenBLAS") if installed() else {}
    found = {**theirs, **ours} if preferred() else {**ours, **theirs}
    best = list(found)[-1]
    return {**found, f"{best} {RECORDS}": f"{found[best]}, tuned"}


@dataclass(frozen=True)
class Product:
    """A product of two tensors of matrices, of known shapes. `left` and `right` are shapes in
    memory, whose axes before the last two broadcast to the result's; `turn_a` and `turn_b` say
    whether an operand's last two axes are swapped. All have `dtype`, a key of `FUNCTIONS`."""

    left: tuple[int, ...]
    right: tuple[int, ...]
    turn_a: bool
    turn_b: bool
    dtype: str

    @property
    def shape(self) -> tuple[int, ...]:
        """The result's shape."""
        rank = max(len(self.left), len(self.right))
        batches = [(1,) * (rank - len(s)) + s[:-2] for s in (self.left, self.right)]
        batch = tuple(max(a, b) for a, b in zip(*batches, strict=True))
        return (*batch, self.left[-1 if self.turn_a else -2], self.right[-2 if self.turn_b else -1])

    @property
    def inner(self) -> int:
        """The extent that is summed over."""
        return self.left[-2 if self.turn_a else -1]

    def kernel(self, te: Any, tir: Any, left: Any, right: Any) -> Any:
        """The product in TVM's tensor expressions, as a stage that nothing fuses with."""
        # The shapes must be the tensors' own objects.
        buffers = [tir.decl_buffer(s, self.dtype) for s in (left.shape, right.shape, self.shape)]
        told = {"name": "openblas", "in_buffers": buffers[:2], "out_buffers": buffers[2:]}

        def body(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
            return _Calls(self, tir, *ins, *outs).statement()

        return te.extern(self.shape, [left, right], body, **told)


@dataclass(frozen=True)
class _Calls:
    """The statements of a product: `a` times `b` into `c`, all buffers."""

    product: Product
    tir: Any
    a: Any
    b: Any
    c: Any

    def statement(self) -> Any:
        *batch, rows, columns = self.product.shape
        flat = len(self.product.right) == 2 and not self.product.turn_a
        if flat:  # the rows of all matrices follow each other
            rows, batch = rows * math.prod(batch), []
        if math.prod(batch) == 1:
            return self.shared(rows, columns)
        at = self.tir.Var("matrix", "int32")
        calls = self.call(rows, columns, _unfolded(at, batch))
        return self.tir.For(at, 0, math.prod(batch), self.tir.ForKind.PARALLEL, calls)

    def shared(self, rows: int, columns: int) -> Any:
        """One product, of which each of TVM's threads computes a part.

        Many threads split both sides, few the longer one: each thread packs what it reads.
        """
        tir = self.tir
        threads, part = tir.Var("threads", "int32"), tir.Var("part", "int32")
        few = tir.Select(threads % 16 == 0, 4, tir.Select(threads % 4 == 0, 2, 1))
        many = threads // few
        by_columns = columns >= rows
        down, across = (few, many) if by_columns else (many, few)
        high = (rows + down * _STEP - 1) // (down * _STEP) * _STEP
        wide = (columns + across * _STEP - 1) // (across * _STEP) * _STEP
        top, first = part // across * high, part % across * wide
        size = tir.min(high, rows - top), tir.min(wide, columns - first)
        call = self.call(*size, (), top, first)
        body = tir.IfThenElse(tir.all(top < rows, first < columns), call, None)
        loop = tir.For(part, 0, threads, tir.ForKind.PARALLEL, body)
        count = tir.Cast("int32", tir.call_packed("runtime.NumThreads"))
        return let(tir, threads, count, loop)

    def call(
        self, rows: Any, columns: Any, place: Sequence[Any], top: Any = 0, first: Any = 0
    ) -> Any:
        """A call for some rows and columns of one matrix. `place` is the matrix's place in the
        result, empty for a single one, whose rows may span several axes; the part begins at row
        `top` and column `first`."""
        one, tir = self.product, self.tir
        turns = [_TURNED if turn else _PLAIN for turn in (one.turn_a, one.turn_b)]
        alpha, beta = (tir.FloatImm(one.dtype, number) for number in (1.0, 0.0))
        left = _address(tir, self.a, place, (0, top) if one.turn_a else (top, 0)), one.left[-1]
        begin = (first, 0) if one.turn_b else (0, first)
        right = _address(tir, self.b, place, begin), one.right[-1]
        result = _address(tir, self.c, place, (top, first)), one.shape[-1]
        about = _ROW_MAJOR, *turns, rows, columns, one.inner, alpha, *left, *right, beta, *result
        return tir.Evaluate(tir.call_extern("int32", FUNCTIONS[one.dtype], *about))


def let(tir: Any, variable: Any, value: Any, body: Any) -> Any:
    if hasattr(tir, "Bind"):  # the newer TVM's, which holds for the statements after it
        return tir.SeqStmt([tir.Bind(variable, value), body])
    return tir.LetStmt(variable, value, body)


def _address(tir: Any, buffer: Any, place: Sequence[Any], at: tuple[Any, Any]) -> Any:
    *batch, last, _ = (int(d) for d in buffer.shape)
    row, column = at
    if place:
        mine = place[len(place) - len(batch) :]
        index = [0 if d == 1 else p for d, p in zip(batch, mine, strict=True)]
    else:
        index, row = _unfolded(row // last, batch), row % last
    return tir.address_of(buffer[tuple([*index, row, column])])


def _unfolded(number: Any, extents: Sequence[int]) -> list[Any]:
    """The place on several axes of an element that has a number on all of them in a row."""
    index: list[Any] = []
    for extent in extents[::-1]:
        index.insert(0, number % extent)
        number = number // extent
    return index
