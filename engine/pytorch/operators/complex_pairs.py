"""Complex tensors as pairs of real and imaginary part, and Fourier transforms as products.

PyTorch decomposes operators down to those that have a rule here. A transform along an axis is a
product with a constant matrix of cosines and sines.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import register_pytree_node, tree_any, tree_map

from relascope.engine.pytorch.operators.along_axes import traced_constant

LONGEST = 2048
"""The most elements of a transformed axis: the matrix has as many rows and columns."""

_MAKERS = ("_fft_r2c", "_fft_c2c", "_fft_c2r", "view_as_complex", "complex", "polar")
_APART = (
    "alias clone detach "
    "diagonal expand flip gather index index_select mean neg new_zeros permute repeat "
    "roll select select_scatter slice slice_scatter split split_with_sizes squeeze sum t "
    "transpose unbind unsqueeze zeros zeros_like"
)
"""Linear operators with real factors, which are applied to each part."""
_PRODUCTS = ("mul", "mm", "bmm", "dot", "mv")


class ComplexPair(list[Any]):
    """The real and imaginary part of a complex tensor, as nodes or tensors; meta["val"] is the
    complex tensor without memory."""

    meta: dict[str, Any]


register_pytree_node(ComplexPair, lambda pair: ([*pair], None), lambda both, _: ComplexPair(both))


class _Complex(Tensor):
    """A pair as PyTorch sees it: a complex tensor."""

    re: Tensor
    im: Tensor

    @staticmethod
    def __new__(cls: "type[_Complex]", re: Tensor, im: Tensor) -> "_Complex":
        make: Any = Tensor._make_wrapper_subclass
        made: _Complex = make(cls, re.shape, dtype=re.dtype.to_complex(), device=re.device)
        made.re, made.im = re, im
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, *rest: Any) -> Any:
        raise NotImplementedError(f"{func} outside of pairs")


class _Pairs(TorchDispatchMode):
    """Inside it, operators on complex tensors compute with their parts."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        if name not in _MAKERS and not tree_any(_is_complex, (args, kwargs)):
            return func(*args, **kwargs)
        if rule := _RULES.get(name):
            return rule(*args, **kwargs)
        if name in _APART.split():
            return _apart(func, args, kwargs)
        raise NotImplementedError(f"{name} is not supported for complex tensors")


def _is_complex(value: Any) -> bool:
    dtype = value if isinstance(value, torch.dtype) else getattr(value, "dtype", None)
    return isinstance(value, complex) or (dtype is not None and dtype.is_complex)


def split(value: Any) -> tuple[Any, Any]:
    if isinstance(value, _Complex):
        return value.re, value.im
    if isinstance(value, Tensor):
        if value.is_complex():
            raise NotImplementedError("it reads a complex tensor that is not an argument")
        return value, None
    return (value.real, value.imag or None) if isinstance(value, complex) else (value, None)


def _joined(re: Any, im: Any) -> _Complex:
    """A pair; an imaginary part of None is zero."""
    return _Complex(re, torch.zeros_like(re) if im is None else im)


def _apart(func: Any, args: Any, kwargs: Any) -> Any:
    dtype, places = kwargs.get("dtype"), ("aten::index", "aten::gather", "aten::index_select")
    if dtype is not None and not dtype.is_complex:
        raise NotImplementedError(f"{func} drops the imaginary part")
    indexed = func._schema.name in places

    def part(value: Any, place: int) -> Any:
        if isinstance(value, torch.dtype):
            return value.to_real()
        if isinstance(value, _Complex):
            return (value.re, value.im)[place]
        real = isinstance(value, Tensor) and not (indexed and not value.is_floating_point())
        return torch.zeros_like(value) if place and real else value

    given = [tree_map(partial(part, place=place), (args, kwargs)) for place in (0, 1)]
    re, im = (func(*positional, **named) for positional, named in given)
    if isinstance(re, Tensor):
        return _Complex(re, im)
    return [_Complex(a, b) for a, b in zip(re, im, strict=True)]


def _cast(x: Any, *, dtype: torch.dtype | None = None, **options: Any) -> Any:
    if dtype is None:
        return x
    if not dtype.is_complex:
        raise NotImplementedError("the cast drops the imaginary part")
    z = _joined(*split(x))
    return _Complex(z.re.to(dtype.to_real()), z.im.to(dtype.to_real()))


def _reshaped(z: Any, size: list[int], strides: Any = None) -> _Complex:
    """Also for a view, because the parts have memory orders of their own."""
    return _Complex(z.re.reshape(size), z.im.reshape(size))


def _together(func: Any, parts: list[Any], axis: int = 0) -> _Complex:
    pairs = [_joined(*split(part)) for part in parts]
    return _Complex(func([p.re for p in pairs], axis), func([p.im for p in pairs], axis))


def _where(condition: Tensor, a: Any, b: Any) -> _Complex:
    a, b = (_joined(*split(v)) for v in (a, b))
    return _Complex(torch.where(condition, a.re, b.re), torch.where(condition, a.im, b.im))


def _sum(func: Any, a: Any, b: Any, alpha: Any = 1) -> _Complex:
    (x, y), (u, v) = split(a), split(b)
    if isinstance(alpha, complex):
        raise NotImplementedError("its alpha is complex")
    re = func(x, u, alpha=alpha)
    y = torch.zeros_like(x) if y is None else y
    im = y if v is None else func(y, v, alpha=alpha)
    return _Complex(re, im.expand(re.shape))


def _product(func: Any, a: Any, b: Any) -> _Complex:
    (x, y), (u, v) = split(a), split(b)
    if y is None or v is None:
        re = func(x, u)
        return _joined(re, func(x, v) if y is None and v is not None else func(y, u))
    return _Complex(func(x, u) - func(y, v), func(x, v) + func(y, u))


def _quotient(a: Any, b: Any) -> _Complex:
    (x, y), (u, v) = split(a), split(b)
    if v is not None:
        raise NotImplementedError("division by complex numbers is not supported")
    return _Complex(x / u, y / u)


def _padded(z: Any, widths: list[int], value: Any = 0) -> _Complex:
    re, im = split(value)
    pad = torch.constant_pad_nd
    return _Complex(pad(z.re, widths, re), pad(z.im, widths, im or 0))


def _filled(z: Any, mask: Tensor, value: Any) -> _Complex:
    re, im = split(value)
    return _Complex(z.re.masked_fill(mask, re), z.im.masked_fill(mask, 0 if im is None else im))


def _abs(z: Any) -> Tensor:
    """The magnitude, whose gradient at zero is zero."""
    size = z.re * z.re + z.im * z.im
    zero = size == 0
    return torch.where(zero, 0.0, torch.where(zero, 1.0, size).sqrt())


def _matrices(n: int, rows: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines of 2π j k / n, of shape (n, rows), exactly zero where they should be."""
    phase = np.outer(np.arange(n), np.arange(rows)) % n
    table = np.exp(2j * np.pi * np.arange(n) / n)
    table.real[np.abs(table.real) < 1e-15], table.imag[np.abs(table.imag) < 1e-15] = 0, 0
    dtype = str(like.dtype).removeprefix("torch.")
    parts = (getattr(table, p)[phase].astype(dtype) for p in ("real", "imag"))
    cosines, sines = map(traced_constant, parts)
    return cosines, sines


def _checked(n: int) -> int:
    if n > LONGEST:
        raise NotImplementedError(f"a transform of {n} elements is longer than {LONGEST}")
    return n


def _scale(n: int, normalization: int) -> float:
    return (1.0, n**-0.5, 1 / n)[normalization]


def _size(z: Tensor, axes: list[int]) -> int:
    return int(np.prod([z.shape[a] for a in axes]))


def _along(z: Any, axis: int, forward: bool) -> _Complex:
    """The transform along an axis, not scaled."""
    re, im = (p.movedim(axis, -1) for p in (z.re, z.im))
    n = _checked(re.shape[-1])
    cosines, sines = _matrices(n, n, re)
    sines = -sines if forward else sines
    made = re @ cosines - im @ sines, re @ sines + im @ cosines
    return _Complex(*(p.movedim(-1, axis) for p in made))


def _c2c(z: Any, axes: list[int], normalization: int, forward: bool) -> _Complex:
    scale = _scale(_size(z, axes), normalization)
    for axis in axes:
        z = _along(z, axis, forward)
    return _Complex(z.re * scale, z.im * scale)


def _r2c(x: Tensor, axes: list[int], normalization: int, onesided: bool) -> _Complex:
    *others, last = axes
    x = x.movedim(last, -1)
    n = _checked(x.shape[-1])
    cosines, sines = _matrices(n, n // 2 + 1 if onesided else n, x)
    re, im = x @ cosines, -(x @ sines)
    z = _Complex(re.movedim(-1, last), im.movedim(-1, last))
    for axis in others:
        z = _along(z, axis, True)
    scale = _scale(_size(x.movedim(-1, last), axes), normalization)
    return _Complex(z.re * scale, z.im * scale)


def _c2r(z: Any, axes: list[int], normalization: int, size: int) -> Tensor:
    *others, last = axes
    for axis in others:
        z = _along(z, axis, False)
    re, im = z.re.movedim(last, -1), z.im.movedim(last, -1)
    count, inner = size // 2 + 1, (size + 1) // 2  # some ends have no imaginary part
    cosines, sines = _matrices(_checked(size), count, re)
    twice = np.full(count, 2.0)  # each stands for its mirror image, too
    twice[[0, -1] if size % 2 == 0 else [0]] = 1
    weights = traced_constant(twice.astype(str(re.dtype).removeprefix("torch.")))
    made = (re[..., :count] * weights) @ cosines.T
    if inner > 1:
        made = made - (im[..., 1:inner] * 2) @ sines.T[1:inner]
    return made.movedim(-1, last) * _scale(size * _size(z, others), normalization)


_RULES: dict[str, Callable[..., Any]] = {
    "_fft_r2c": _r2c,
    "_fft_c2c": _c2c,
    "_fft_c2r": _c2r,
    "view_as_complex": lambda x: _Complex(x.select(-1, 0), x.select(-1, 1)),
    "view_as_real": lambda z: torch.stack([z.re, z.im], -1),
    "complex": _Complex,
    "polar": lambda r, angle: _Complex(r * angle.cos(), r * angle.sin()),
    "abs": _abs,
    "_to_copy": _cast,
    "cat": partial(_together, torch.cat),
    "stack": partial(_together, torch.stack),
    "where": _where,
    **dict.fromkeys(("view", "_unsafe_view", "_reshape_alias"), _reshaped),
    "constant_pad_nd": _padded,
    "masked_fill": _filled,
    "real": lambda z: z.re,
    "imag": lambda z: z.im,
    **dict.fromkeys(("_conj", "_conj_physical", "conj_physical"), lambda z: _Complex(z.re, -z.im)),
    **dict.fromkeys(("resolve_conj", "resolve_neg"), lambda z: z),
    "div": _quotient,
    "exp": lambda z: _Complex(z.re.exp() * z.im.cos(), z.re.exp() * z.im.sin()),
    "add": lambda a, b, alpha=1: _sum(torch.add, a, b, alpha),
    "rsub": lambda a, b, alpha=1: _sum(torch.add, _product(torch.mul, a, -alpha), b),
    "sub": lambda a, b, alpha=1: _sum(torch.sub, a, b, alpha),
    **{n: lambda a, b, n=n: _product(getattr(torch, n), a, b) for n in _PRODUCTS},
}


def makes_pairs(name: str, given: Any) -> bool:
    """Whether an operator, such as "fft_rfft.default", reads or makes complex tensors."""
    base = name.partition(".")[0]
    return (
        base in _MAKERS
        or base.startswith(("fft_r", "fft_f", "fft_i", "fft_h"))
        or tree_any(_is_complex, given)
    )


def in_pairs(op: Any, *args: Any, **kwargs: Any) -> Any:
    """An operator's results, complex ones as tuples of their parts; arguments have pairs of tensors
    in place of complex ones."""

    def inside(value: Any) -> Any:
        if isinstance(value, ComplexPair):
            return _Complex(*value)
        return type(value)(inside(v) for v in value) if isinstance(value, list | tuple) else value

    def outside(value: Any) -> Any:
        if isinstance(value, _Complex):
            return value.re, value.im
        return [outside(v) for v in value] if isinstance(value, list | tuple) else value

    with _Pairs():
        made = op(*map(inside, args), **{k: inside(v) for k, v in kwargs.items()})
    return outside(made)
