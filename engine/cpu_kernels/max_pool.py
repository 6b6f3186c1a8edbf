"""The gradient of a maximum over windows, in stages that `schedules` and LLVM turn into vectors.

TVM's finds the largest of a window and its place at once, element by element.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

STAGES = frozenset(f"max_pool_{n}" for n in ["keys", "best", "place", "places", "grads", "phases"])
"""Names of the steps, none of which is inlined."""
_INFINITY = {"int32": 0x7F800000, "int64": 0x7FF << 52}  # its bits
_NONE = 1 << 20  # more than any number of an element
_MOST = 16


def kernel(te: Any, tir: Any, attrs: Any, dtype: str) -> Callable[[Any, Any], Any] | None:
    """`gradient` for the attributes of an operator, as a function of `grad` and `data`; None if a
    window is too large for each of its elements to be written out."""
    given = attrs.pool_size, attrs.strides, attrs.padding
    window, strides, padding = ([int(n) for n in values] for values in given)
    if math.prod(window) > _MOST or dtype not in ("float32", "float64"):
        return None
    how = window, strides, (padding * 2)[:2], str(attrs.layout).index("H")
    return lambda grad, data: gradient(te, tir, grad, data, *how)


def gradient(
    te: Any,
    tir: Any,
    grad: Any,
    data: Any,
    window: Sequence[int],
    strides: Sequence[int],
    begins: Sequence[int],
    first: int,
) -> Any:
    """The gradient of `data`, in its shape, if maxima are taken over windows of the axis `first`
    and the next.

    `grad` is the gradient of the maxima, and `begins` counts the places of padding before the data.
    As in PyTorch, a window's gradient goes to its last NaN, else to its first largest element.
    """
    sizes, counts = (t.shape[first : first + 2] for t in (data, grad))
    reach = [-(-size // step) for size, step in zip(window, strides, strict=True)]
    row = reach[1] * strides[1]  # numbers of a window's elements from one row to the next
    offsets = [(down, across) for down in range(window[0]) for across in range(window[1])]
    bits = str(grad.dtype).replace("float", "int")
    infinity, largest = _INFINITY[bits], tir.max_value(bits)

    def stage(name: str, extents: Sequence[Any], value: Any) -> Any:
        """A step with these extents in place of the window's axes: `value`, at a place there, of a
        function that reads a tensor at another one, with the same place on other axes."""
        end = first + len(extents)

        def element(*place: Any) -> Any:
            def read(tensor: Any, *at: Any) -> Any:
                return tensor(*place[:first], *at, *place[end:])

            return value(read, *place[first:end])

        shape = (*grad.shape[:first], *extents, *grad.shape[first + 2 :])
        return te.compute(shape, element, f"max_pool_{name}")

    def inside(at: Sequence[Any], ends: Sequence[Any]) -> Any:
        return tir.all(*(c for y, end in zip(at, ends, strict=True) for c in (y >= 0, y < end)))

    def key(read: Any, y: Any, across: Any, x: Any) -> Any:
        """A whole number for a float, in the same order, larger than infinity's for NaN. Columns
        that a window's element takes are in a row: LLVM then need not gather them."""
        place = y - begins[0], x * strides[1] + across - begins[1]
        whole = tir.reinterpret(bits, read(data, *place))
        size, negative = whole & largest, whole >> (int(bits[3:]) - 1)  # -1, or 0
        number = tir.Select(size > infinity, largest, (size ^ negative) - negative)
        return tir.if_then_else(inside(place, sizes), number, tir.const(-infinity, bits))

    high = (counts[0] - 1) * strides[0] + window[0]
    keys = stage("keys", (high, strides[1], counts[1] + reach[1] - 1), key)

    def elements(read: Any, y: Any, x: Any) -> list[Any]:
        each = [(y * strides[0] + a, b % strides[1], x + b // strides[1]) for a, b in offsets]
        return [read(keys, *at) for at in each]

    best = stage("best", counts, lambda *at: functools.reduce(tir.max, elements(*at)))

    def chosen(read: Any, *at: Any) -> Any:
        begun = [tir.max(b - y * s, 0) for y, s, b in zip(at, strides, begins, strict=True)]
        each = [(a * row + b, v) for (a, b), v in zip(offsets, elements(read, *at), strict=True)]
        firsts = [tir.Select(value == read(best, *at), n, _NONE) for n, value in each]
        lasts = [tir.Select(value == largest, n, -1) for n, value in each]
        found = functools.reduce(tir.min, firsts) & (_NONE - 1)
        # In a window of minus infinity, the padding is equal, too.
        return functools.reduce(tir.max, [found, begun[0] * row + begun[1], *lasts])

    place = stage("place", counts, chosen)
    steps = [(n + b + s - 1) // s for n, b, s in zip(sizes, begins, strides, strict=True)]

    def widened(name: str, tensor: Any, rest: Any) -> Any:
        """A value of each window, with `rest` around."""

        def element(read: Any, *at: Any) -> Any:
            inner = [y - r + 1 for y, r in zip(at, reach, strict=True)]
            return tir.if_then_else(inside(inner, counts), read(tensor, *inner), rest)

        return stage(name, [n + r - 1 for n, r in zip(steps, reach, strict=True)], element)

    places = widened("places", place, -1)
    grads = widened("grads", grad, tir.const(0, grad.dtype))

    def summed(read: Any, y: Any, across: Any, x: Any) -> Any:
        """The gradient in row `y` at column `across` + `x` * stride of the padded data."""
        step, down = (y + begins[0]) // strides[0], (y + begins[0]) % strides[0]
        total = tir.const(0, grad.dtype)
        for a in reversed(range(reach[0])):
            for b in reversed(range(reach[1])):
                source = step - a + reach[0] - 1, x - b + reach[1] - 1
                number = (down + a * strides[0]) * row + across + b * strides[1]
                # TVM would branch, and not compute in vectors, for a Select of something read.
                mine = -(read(places, *source) == number).astype(bits)
                kept = tir.reinterpret(bits, read(grads, *source)) & mine
                total += tir.reinterpret(grad.dtype, kept)
        return total

    phases = stage("phases", (sizes[0], strides[1], steps[1]), summed)

    def joined(read: Any, y: Any, x: Any) -> Any:
        x += begins[1]
        return read(phases, y, x % strides[1], x // strides[1])

    return stage("gradient", sizes, joined)
