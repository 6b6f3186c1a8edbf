"""The gradient of a maximum over windows, in stages that `schedules` and LLVM turn into vectors.

TVM's finds the largest of a window and its place at once, element by element.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

STAGES = frozenset(f"max_pool_{n}" for n in ["keys", "best", "place", "places", "grads", "phases"])
"""Names of the steps, none of which is inlined."""
_INFINITY = {"int32": 0x7F800000, "int64": 0x7FF << 52}  # its bits
_NONE = 1 << 20  # more than any number of an element
_MOST = 16


def suits(window: Sequence[int], dtype: str) -> bool:
    """Whether a window is small enough for each of its elements to be written out."""
    return math.prod(window) <= _MOST and dtype in ("float32", "float64")


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

    def of(tensor: Any, place: Sequence[Any], *at: Any) -> Any:
        return tensor(*place[:first], *at, *place[first + 2 :])

    def stage(name: str, extents: Sequence[Any], value: Any) -> Any:
        shape = (*grad.shape[:first], *extents, *grad.shape[first + 2 :])
        return te.compute(shape, lambda *p: value(p, *p[first : first + 2]), f"max_pool_{name}")

    def inside(at: Sequence[Any], ends: Sequence[Any]) -> Any:
        return tir.all(*(c for y, end in zip(at, ends, strict=True) for c in (y >= 0, y < end)))

    def widened(
        tensor: Any, name: str, before: Sequence[int], extents: Sequence[Any], rest: Any
    ) -> Any:
        """A tensor in a larger shape, with `rest` around it."""

        def element(place: Any, *at: Any) -> Any:
            inner = [y - b for y, b in zip(at, before, strict=True)]
            there = inside(inner, tensor.shape[first : first + 2])
            return tir.if_then_else(there, of(tensor, place, *inner), rest)

        return stage(name, extents, element)

    bits = str(grad.dtype).replace("float", "int")
    infinity = _INFINITY[bits]

    def key(value: Any) -> Any:
        """A whole number for a float, in the same order, larger than infinity's for NaN."""
        whole = tir.reinterpret(bits, value)
        size = whole & tir.const(tir.max_value(bits).value, bits)
        negative = whole >> (int(bits[3:]) - 1)  # -1, or 0
        return tir.Select(size > infinity, tir.max_value(bits), (size ^ negative) - negative)

    # With the columns that a window's element takes in a row: LLVM then need not gather them.
    high = (counts[0] - 1) * strides[0] + window[0]
    shape = (*grad.shape[:first], high, strides[1], counts[1] + reach[1] - 1)

    def put(*at: Any) -> Any:
        *outer, y, across, x = at[: first + 3]
        place = y - begins[0], x * strides[1] + across - begins[1]
        value = key(data(*outer, *place, *at[first + 3 :]))
        return tir.if_then_else(inside(place, sizes), value, tir.const(-infinity, bits))

    keys = te.compute((*shape, *data.shape[first + 2 :]), put, "max_pool_keys")

    def elements(place: Any, y: Any, x: Any) -> list[Any]:
        each = [(y * strides[0] + a, b % strides[1], x + b // strides[1]) for a, b in offsets]
        return [of(keys, place, *at) for at in each]

    best = stage("best", counts, lambda *p: functools.reduce(tir.max, elements(*p)))

    def chosen(place: Any, *at: Any) -> Any:
        begun = [tir.max(b - y * s, 0) for y, s, b in zip(at, strides, begins, strict=True)]
        each = [
            (down * row + across, value)
            for (down, across), value in zip(offsets, elements(place, *at), strict=True)
        ]
        firsts = [tir.Select(value == best(*place), n, _NONE) for n, value in each]
        lasts = [tir.Select(value == tir.max_value(bits), n, -1) for n, value in each]
        found = functools.reduce(tir.min, firsts) & (_NONE - 1)
        # In a window of minus infinity, the padding is equal, too.
        return functools.reduce(tir.max, [found, begun[0] * row + begun[1], *lasts])

    place = stage("place", counts, chosen)
    steps = [(n + b + s - 1) // s for n, b, s in zip(sizes, begins, strides, strict=True)]
    before = [r - 1 for r in reach]
    extents = [n + b for n, b in zip(steps, before, strict=True)]
    places = widened(place, "places", before, extents, -1)
    grads = widened(grad, "grads", before, extents, tir.const(0, grad.dtype))

    def summed(*at: Any) -> Any:
        """The gradient in row `y` at column `across` + `x` * stride of the padded data."""
        *outer, y, across, x = at[: first + 3]
        step, down = (y + begins[0]) // strides[0], (y + begins[0]) % strides[0]
        rest = at[first + 3 :]
        total = tir.const(0, grad.dtype)
        for a in reversed(range(reach[0])):
            for b in reversed(range(reach[1])):
                source = (*outer, step - a + before[0], x - b + before[1], *rest)
                mine = places(*source) == (down + a * strides[0]) * row + across + b * strides[1]
                # TVM would branch, and not compute in vectors, for a Select of something read.
                kept = tir.reinterpret(bits, grads(*source)) & -mine.astype(bits)
                total += tir.reinterpret(grad.dtype, kept)
        return total

    shape = (*data.shape[: first + 1], strides[1], steps[1], *data.shape[first + 2 :])
    phases = te.compute(shape, summed, "max_pool_phases")

    def joined(*at: Any) -> Any:
        x = at[first + 1] + begins[1]
        return phases(*at[: first + 1], x % strides[1], x // strides[1], *at[first + 2 :])

    return te.compute(data.shape, joined, "max_pool_gradient")
