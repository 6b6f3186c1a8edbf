"""Code that both IRs share for taking gradients."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any, Generic, TypeVar

import numpy as np

from relascope.core.errors import EngineError
from relascope.passes.program import Program

T = TypeVar("T")
Sizes = Sequence[int]
"""A number for each axis of images."""


def rooted(
    program: Program,
    outputs: Sequence[Any],
    types: Sequence[Any],
    taken: Collection[str],
    variable: Callable[[str, Any], Any],
) -> list[tuple[Any, Any]]:
    """The floating outputs, each with a new argument `grad_out_<index>` of its type. `outputs` and
    `types` are those of "main"; the new values of buffers, which come last, have no gradient.
    Raises EngineError of kind "pass" if no output is floating, and "operator" if the gradient of an
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


def beyond(
    sizes: Sizes, counts: Sizes, window: Sizes, strides: Sizes, padding: Sizes, dilation: Sizes
) -> list[int]:
    """Elements at the end of each axis that the kernel of a convolution did not reach. `sizes` are
    the data's, `counts` the result's and `window` the kernel's; `padding` is at all begins and then
    at all ends."""
    begins, ends = padding[: len(sizes)], padding[len(sizes) :]
    axes = zip(sizes, counts, window, strides, begins, ends, dilation, strict=True)
    return [
        size + before + after - (count - 1) * step - (reach - 1) * apart - 1
        for size, count, reach, step, before, after, apart in axes
    ]


def reached_windows(
    sizes: Sizes, counts: Sizes, window: Sizes, strides: Sizes, padding: Sizes
) -> tuple[list[int], list[int]]:
    """Padding with which TVM's gradient of a max pool reads only windows that exist.

    For each element, TVM goes down from the last window that may contain it, without checking that
    this window exists: if a window exceeds half the image, TVM reads the next row's. With more
    padding at the ends the windows exist, and their gradient is zero. Returns the padding, at all
    begins and then at all ends, and the number of windows that each axis gains. `sizes` are the
    data's along the pooled axes, `counts` the numbers of windows along them; `padding` is at all
    begins, and the padding at the ends follows from `counts`."""
    begins = [int(p) for p in padding[: len(sizes)]]
    ends, gained = [], []
    for size, count, reach, step, begin in zip(sizes, counts, window, strides, begins, strict=True):
        needed = max(count, (begin + size - 1) // step + 1)
        ends.append(max(0, (needed - 1) * step + reach - size - begin))
        gained.append((size + begin + ends[-1] - reach) // step + 1 - count)
    return [*begins, *ends], gained


def widest(dtypes: Iterable[Any]) -> str:
    """The dtype that sums products of outputs into one root: not of 16 bits, which overflow."""
    return "float64" if "float64" in map(str, dtypes) else "float32"


def without_gradient(program: Program) -> set[str]:
    return {*program.grad_outs, *program.buffers, *(m.name for m in program.masks)}


def kept_results(
    program: Program, results: Sequence[Any], wanted: Collection[str]
) -> tuple[list[Any], tuple[str, ...]]:
    """The results of a joint program with the `wanted` gradients only, and their names."""
    pairs = zip(program.gradients, results[program.outputs :], strict=True)
    stay = {name: gradient for name, gradient in pairs if name in wanted}
    return [*results[: program.outputs], *stay.values()], tuple(stay)


def unknown(ir: str, operator: str, where: str) -> EngineError:
    """The error that an operator has no gradient; "" stands for a call of a function."""
    hint = f"Open a submodule without it, or register one by tvm.{ir}.op.register_gradient."
    message = f"{ir.capitalize()} has no gradient for {operator or 'a call of a function'}."
    return EngineError("pass", message, where, hint)


def adaptive_share(extent: int, count: int) -> Any:
    """(count, extent): each element's weight in each mean of an adaptive pooling along an axis."""
    places = np.arange(count)[:, None]
    begin, end = places * extent // count, -(-(places + 1) * extent // count)
    inside = (np.arange(extent) >= begin) & (np.arange(extent) < end)
    return inside / (end - begin)


def of_means(op: Any, const: Callable[..., Any], grad: Any, shares: list[Any], dtype: str) -> Any:
    """The gradient of means over windows along each axis from the third on, summed window by
    window: a product with a matrix would spread a NaN to windows without it. `op` has the IR's
    operators and `const` makes its constants; `shares` are, for each axis, the weights (windows,
    elements)."""
    zero = const(0.0, dtype)
    for axis, share in enumerate(shares, 2):
        along, parts = [-1] + [1] * (len(shares) + 1 - axis), []
        order = np.argsort(share == 0, axis=0, kind="stable")  # windows with the element first
        for window in order[: (share != 0).sum(0).max()]:
            part = share[window, np.arange(share.shape[1])].reshape(along)
            taken = op.multiply(op.take(grad, const(window), axis, mode="clip"), const(part, dtype))
            parts.append(taken if part.all() else op.where(const(part != 0), taken, zero))
        grad = reduce(op.add, parts)
    return grad


def of_tile(op: Any, grad: Any, size: Sequence[int], repeats: Sequence[int]) -> Any:
    """The gradient of tile, for a tensor of shape `size`: the sum over the copies."""
    rank = max(len(size), len(repeats))
    sizes, times = ([1] * (rank - len(v)) + [*v] for v in (size, repeats))
    apart = [d for pair in zip(times, sizes, strict=True) for d in pair]
    return op.reshape(op.sum(op.reshape(grad, apart), list(range(0, 2 * rank, 2))), [*size])


class Active(Generic[T]):
    """A value set inside a block, for gradients: TVM calls them with its own arguments only."""

    current: T | None = None

    @contextmanager
    def inside(self, value: T) -> Iterator[None]:
        self.current = value
        try:
            yield
        finally:
            self.current = None

    def layer(self, gradient: Callable[..., Any], *given: Any) -> Any:
        """A gradient as TVM calls it, which the current value, if any, takes with its `use`."""
        recorder: Any = self.current
        return recorder.use(gradient, *given) if recorder else gradient(*given)
