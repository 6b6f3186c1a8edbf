"""What taking the gradient of a program shares, whatever its IR."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
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
        message = "no output of the model is floating-point, so there is no gradient to take"
        where = ", ".join(f"output {i}: {t.dtype}" for i, t in enumerate(types))
        raise EngineError("pass", message, where, "choose a module with a floating-point output")
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
    hint = "Take the gradient of a submodule without it, or register one with "
    hint += f"tvm.{ir}.op.register_gradient."
    message = f"{ir.capitalize()} has no gradient for {operator or 'a call of a function'}."
    return EngineError("pass", message, where, hint)


def adaptive_share(extent: int, count: int) -> Any:
    """(count, extent): each element's part of each mean of an adaptive pooling along an axis."""
    places = np.arange(count)[:, None]
    begin, end = places * extent // count, -(-(places + 1) * extent // count)
    inside = (np.arange(extent) >= begin) & (np.arange(extent) < end)
    return inside / (end - begin)


def of_means(
    op: Any, const: Callable[..., Any], grad: Any, shares: Sequence[Any], dtype: str
) -> Any:
    """The gradient of means over windows along each axis from the third on: what an element has of
    one window after another. A product with a matrix would spread a NaN to windows without it. `op`
    has the IR's operators and `const` makes its constants; `shares` are (windows, elements) of each
    axis, the part that each element has."""
    zero = const(0.0, dtype)
    for axis, share in enumerate(shares, 2):
        along, parts = [-1] + [1] * (len(shares) + 1 - axis), []
        order = np.argsort(share == 0, axis=0, kind="stable")  # windows that have it, first
        for window in order[: (share != 0).sum(0).max()]:
            part = share[window, np.arange(share.shape[1])].reshape(along)
            taken = op.take(grad, const(window), axis, mode="clip")
            taken = op.multiply(taken, const(part, dtype))
            parts.append(taken if part.all() else op.where(const(part != 0), taken, zero))
        grad = reduce(op.add, parts)
    return grad


def of_tile(op: Any, grad: Any, size: Sequence[int], repeats: Sequence[int]) -> Any:
    """The gradient of copies of a tensor of some size: their sum."""
    rank = max(len(size), len(repeats))
    sizes, times = ([1] * (rank - len(v)) + [*v] for v in (size, repeats))
    apart = [d for pair in zip(times, sizes, strict=True) for d in pair]
    return op.reshape(op.sum(op.reshape(grad, apart), list(range(0, 2 * rank, 2))), [*size])


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
