"""What taking the gradient of a program shares, whatever its IR."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import numpy as np

from relascope.core.errors import EngineError
from relascope.passes.program import Program

T = TypeVar("T")


def rooted(
    program: Program,
    outputs: Sequence[Any],
    types: Sequence[Any],
    taken: Collection[str],
    variable: Callable[[str, Any], Any],
) -> list[tuple[Any, Any]]:
    """The floating outputs, each with a new argument `grad_out_<index>` of its type. `outputs` and
    `types` are of "main"; the new values of buffers, which come last, have no gradient. Raises
    EngineError of kind "pass" where no output is floating, and "operator" where the gradient of an
    operator would not be PyTorch's."""
    if program.no_gradient is not None:
        raise program.no_gradient
    count, pairs = len(outputs) - len(program.updates), []
    for index, (output, kind) in enumerate(zip(outputs[:count], types[:count], strict=True)):
        if "float" in str(kind.dtype):
            name = f"grad_out_{index}"
            while name in taken:
                name += "_"
            pairs.append((output, variable(name, kind)))
    if not pairs:
        message = "no output of the model is of a floating type, so there is no gradient to take"
        where = ", ".join(f"output {i}: {t.dtype}" for i, t in enumerate(types))
        raise EngineError("pass", message, where, "choose a module with a floating output")
    return pairs


def reached_windows(
    sizes: Sequence[int],
    counts: Sequence[int],
    window: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
) -> tuple[list[int], list[int]]:
    """Padding with which TVM's gradient of a max pool reads no window that does not exist.

    For each element it goes down from the last window that may hold it, without asking whether
    there are that many: where a window exceeds half the image, it reads the next row's. With more
    padding at the ends they exist, and their gradient is zero. Returns the padding, at all begins
    and then at all ends, and how many windows each axis gains.

    `sizes` are the data's along the axes that are pooled, `counts` of windows along these;
    `padding` is at all begins, and what stands at the ends follows from `counts`."""
    begins = [int(p) for p in padding[: len(sizes)]]
    ends, gained = [], []
    for size, count, reach, step, begin in zip(sizes, counts, window, strides, begins, strict=True):
        needed = max(count, (begin + size - 1) // step + 1)
        ends.append(max(0, (needed - 1) * step + reach - size - begin))
        gained.append((size + begin + ends[-1] - reach) // step + 1 - count)
    return [*begins, *ends], gained


def widest(dtypes: Iterable[Any]) -> str:
    """The dtype in which products of outputs add up to one root: no 16 bits, which overflow."""
    return "float64" if "float64" in map(str, dtypes) else "float32"


def without_gradient(program: Program) -> set[str]:
    return {*program.grad_outs, *program.buffers, *(m.name for m in program.masks)}


def kept_results(
    program: Program, results: Sequence[Any], wanted: Collection[str]
) -> tuple[list[Any], tuple[str, ...]]:
    """The results of a joint program without some gradients, and the names of those that stay."""
    pairs = zip(program.gradients, results[program.outputs :], strict=True)
    stay = {name: gradient for name, gradient in pairs if name in wanted}
    return [*results[: program.outputs], *stay.values()], tuple(stay)


def named(operator: str, scope: str, source: str) -> str:
    """An operator for an error: what it came from, and in which module."""
    parts = [operator, source and f"from {source}", scope and f"in {scope}"]
    return " ".join(p for p in parts if p)


def unknown(ir: str, operator: str, where: str) -> EngineError:
    """That an operator has no gradient; "" is a call of a function."""
    hint = "Take the gradient of a part of the model without it, or register one with "
    hint += f"tvm.{ir}.op.register_gradient."
    message = f"{ir.capitalize()} has no gradient for {operator or 'a call of a function'}."
    return EngineError("pass", message, where, hint)


def adaptive_share(extent: int, count: int) -> Any:
    """(count, extent): each element's part of each mean of an adaptive pooling along an axis."""
    places = np.arange(count)[:, None]
    begin, end = places * extent // count, -(-(places + 1) * extent // count)
    inside = (np.arange(extent) >= begin) & (np.arange(extent) < end)
    return inside / (end - begin)


def windows_of(share: Any) -> Iterator[tuple[Any, Any]]:
    """Of means over windows: for each element, one after another, a window that has it, and its
    part. A product with the matrix of parts would spread a NaN to windows without it. `share` is
    (windows, elements), the part of each element. Yields for each element the number of a window,
    and its part of it; 0 where none is left."""
    order = np.argsort(share == 0, axis=0, kind="stable")  # those that have it, first
    for window in order[: (share != 0).sum(0).max()]:
        yield window, share[window, np.arange(share.shape[1])]


class Active(Generic[T]):
    """What is at work inside a block, for gradients, which TVM calls with arguments of its own."""

    current: T | None = None

    @contextmanager
    def inside(self, value: T) -> Iterator[None]:
        """Let it be at work inside the block."""
        self.current = value
        try:
            yield
        finally:
            self.current = None
