"""Exponentials and the like in float32 as arithmetic that LLVM can vectorise.

By itself TVM calls the C library for each element of `exp`, `erf`, `tanh` and `sigmoid`, so that
a loop with one of them runs an element at a time. Here they are polynomials, a few units in the
last place from the exact value. NaN stays NaN, and infinities give their limits. Other dtypes are
computed as before.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tvm
from tvm import tirx

_DTYPE = "float32"

_LOG2E = 1.0 / math.log(2.0)
_LN2_HIGH = 0.693359375
"""The first nine bits of ln 2: its product with a small whole number is exact."""
_LN2_LOW = math.log(2.0) - _LN2_HIGH

_EXP_FIRST, _EXP_LAST = -87.33654, 88.72283
"""Outside of these exp is below the normal numbers of float32, or above its largest."""

_ERF_END = 3.95
"""From here on erf is 1 in float32."""
_ERF_TOP = (
    1.1283791065216064, 0.19153116643428802, 0.052872929722070694, 0.003807354485616088,
    0.0002846718125510961, 2.026076117545017e-06,
)  # fmt: skip
_ERF_BOTTOM = (
    1.0, 0.5030727386474609, 0.11455172300338745, 0.01505345944315195, 0.0011705351062119007,
    3.783273132285103e-05,
)  # fmt: skip
"""erf(x) / x as a quotient of polynomials in x², fitted on [0, 3.95] by least squares, weighted
anew until the largest relative error is as small as it gets (Lawson's method): 2.1e-8."""

_TANH_SERIES = (1.0, -1 / 3, 2 / 15, -17 / 315, 62 / 2835)
_TANH_SMALL = 0.3
"""Below this the series is within 5e-8 of tanh; above, 1 - 2 / (exp(2x) + 1) loses no digits."""


_ATTRIBUTE = "llvm.FLowerIntrinsic"

_used = False


@contextmanager
def used(here: bool) -> Iterator[None]:
    """Build with these rules, or with TVM's own, inside: they hold for a whole process."""
    global _used
    _register()
    before, _used = _used, here
    try:
        yield
    finally:
        _used = before


@functools.cache
def _register() -> None:
    """Stand before TVM's own rules for LLVM."""
    for name, rule in {"exp": _exp, "erf": _erf, "tanh": _tanh, "sigmoid": _sigmoid}.items():
        theirs = tvm.ir.Op.get(f"tirx.{name}").get_attr(_ATTRIBUTE)
        lowered = functools.partial(_lowered, rule, theirs)
        tvm.ir.register_op_attr(f"tirx.{name}", _ATTRIBUTE, lowered, level=99)


def _lowered(rule: Callable[[Any], Any], theirs: Callable[[Any], Any] | None, call: Any) -> Any:
    if _used and str(call.ty.dtype) == _DTYPE:
        return _bound(call.args[0], rule)
    return call if theirs is None else theirs(call)


def _bound(value: Any, rule: Callable[[Any], Any]) -> Any:
    """A rule's result for a value that is computed once."""
    x = tirx.Var("x", _DTYPE)
    return tirx.Let(x, value, rule(x))


def _constant(value: float) -> Any:
    return tirx.const(value, _DTYPE)


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """Horner's rule; the constant term comes first."""
    result = _constant(coefficients[-1])
    for c in coefficients[-2::-1]:
        result = result * x + _constant(c)
    return result


def _joined(a: Any, b: Any, c: Any) -> Any:
    """a * b + c, which LLVM keeps together when it may sum in any order elsewhere."""
    return tirx.call_llvm_pure_intrin(_DTYPE, "llvm.fmuladd", a, b, c)


def _exp(x: Any) -> Any:
    """exp by range reduction (Cody and Waite): 2^n times the series of a rest below ln 2 / 2.

    n is added to the exponent in the series' bits. Results below the normal numbers are 0.
    """
    inside = tirx.max(tirx.min(x, _constant(_EXP_LAST)), _constant(_EXP_FIRST))
    whole = tirx.floor(inside * _constant(_LOG2E) + _constant(0.5))
    rest = _joined(whole, _constant(-_LN2_HIGH), inside)
    rest = _joined(whole, _constant(-_LN2_LOW), rest)
    series = _polynomial(rest, [1 / math.factorial(k) for k in range(8)])
    bits = tirx.reinterpret("int32", series) + (whole.astype("int32") << 23)
    result = tirx.reinterpret(_DTYPE, bits)
    result = tirx.Select(x < _constant(_EXP_FIRST), _constant(0.0), result)
    result = tirx.Select(x > _constant(_EXP_LAST), tirx.infinity(_DTYPE), result)
    return _unless_nan(x, result)


def _erf(x: Any) -> Any:
    inside = tirx.max(tirx.min(x, _constant(_ERF_END)), _constant(-_ERF_END))
    square = inside * inside
    result = inside * _polynomial(square, _ERF_TOP) / _polynomial(square, _ERF_BOTTOM)
    return _unless_nan(x, result)


def _tanh(x: Any) -> Any:
    square = x * x
    small = x * _polynomial(square, _TANH_SERIES)
    doubled = tirx.min(x + x, _constant(80.0))
    large = _constant(1.0) - _constant(2.0) / (_bound(doubled, _exp) + _constant(1.0))
    bound = _constant(_TANH_SMALL * _TANH_SMALL)
    return _unless_nan(x, tirx.Select(square < bound, small, large))


def _sigmoid(x: Any) -> Any:
    return _constant(1.0) / (_constant(1.0) + _bound(_constant(0.0) - x, _exp))


def _unless_nan(x: Any, result: Any) -> Any:
    return tirx.Select(tirx.isnan(x), x, result)
