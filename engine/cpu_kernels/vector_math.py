"""Exponentials and the like in float32 as arithmetic that LLVM can vectorise.

TVM calls the C library per element for `exp`, `erf`, `tanh` and `sigmoid`. Here they are
polynomials with errors of a few ulps; NaN and infinities give the right results. Other dtypes are
unchanged. `pow` with 2 or 3 is a product, and eight sines or cosines are a call of glibc's.

With or without schedules, `log(1 + y)` is computed as log1p, which TVM lacks, and tanh of a small y
by its series, because TVM subtracts exponentials.
"""

import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any

_DTYPE = "float32"

_LOG2E = 1.0 / math.log(2.0)
_LN2_HIGH = 0.693359375
"""The first nine bits of ln 2: its product with a small whole number is exact."""
_LN2_LOW = math.log(2.0) - _LN2_HIGH

_EXP_FIRST, _EXP_LAST = -87.33654, 88.72283
"""Outside of these bounds, exp is below float32's normal numbers or above its largest."""

_ERF_END = 3.95
"""From this x on, erf is 1 in float32."""
_ERF_TOP = (
    1.1283791065216064,
    0.19153116643428802,
    0.052872929722070694,
    0.003807354485616088,
    0.0002846718125510961,
    2.026076117545017e-06,
)
_ERF_BOTTOM = (
    1.0,
    0.5030727386474609,
    0.11455172300338745,
    0.01505345944315195,
    0.0011705351062119007,
    3.783273132285103e-05,
)
"""erf(x) / x as a quotient of polynomials in x², fitted on [0, 3.95] by least squares, reweighted
until the largest relative error is minimal (Lawson's method): 2.1e-8."""

_TANH_SERIES = (
    *(1.0, -1 / 3, 2 / 15, -17 / 315, 62 / 2835),
    *(-1382 / 155925, 21844 / 6081075, -929569 / 638512875),
)
_TANH_TERMS, _TANH_NEAR = 5, 0.1
"""How many terms a vector takes; below this all terms are exact in float64, too."""
_TANH_SMALL = 0.3
"""Below this the series is within 5e-8 of tanh; above, 1 - 2 / (exp(2x) + 1) loses no digits."""


_LOG1P_TERMS = {"float32": 9, "float64": 18}
"""Terms, by dtype, of the series of log(1 + y) in y / (2 + y), for y from -1/2 to 1."""

_WIDE = f"{_DTYPE}x8"
_FUNCTIONS = {"sin": "_ZGVdN8v_sinf", "cos": "_ZGVdN8v_cosf"}
"""glibc's for AVX2, at most 2 numbers of float32 from the nearest, whatever the argument."""
try:  # where code that is loaded later, kept builds too, looks for them
    ctypes.CDLL("libmvec.so.1", mode=ctypes.RTLD_GLOBAL)
except OSError:  # another C library
    _FUNCTIONS = {}

LOWERING = "llvm.FLowerIntrinsic"
"""An operator's attribute: its lowering for LLVM."""


class VectorMath:
    """These rules in one TVM; `prefix` is of TensorIR's operators, "tir" or "tirx", and `call`
    makes an LLVM intrinsic by dtype, name and arguments."""

    def __init__(
        self, tvm: ModuleType, tir: ModuleType, prefix: str, call: Callable[..., Any]
    ) -> None:
        self._tir, self._call = tir, call
        self._used = self._wide = False
        self._target_has = tvm.target.codegen.target_has_features
        rules = {"exp": self._exp, "erf": self._erf, "tanh": self._tanh, "sigmoid": self._sigmoid}
        first: dict[str, Callable[..., Any]] = {
            name: partial(self._lowered, rule) for name, rule in rules.items()
        }
        first |= {"pow": self._power, "log": self._log}
        first["tanh"] = partial(self._near_zero, first["tanh"])
        first |= {name: partial(self._called, name) for name in _FUNCTIONS}
        for name, rule in first.items():
            theirs = tvm.ir.Op.get(f"{prefix}.{name}").get_attr(LOWERING)
            # Take precedence over TVM's own rules for LLVM.
            tvm.ir.register_op_attr(f"{prefix}.{name}", LOWERING, partial(rule, theirs), level=99)

    @contextmanager
    def used(self, here: bool, target: Any) -> Iterator[None]:
        """A context in which the process builds for a target, with these rules if `here`, else with
        TVM's."""
        before = self._used, self._wide
        self._used, self._wide = here, here and self._target_has("avx2", target)
        try:
            yield
        finally:
            self._used, self._wide = before

    def _called(self, name: str, theirs: Callable[[Any], Any], call: Any) -> Any:
        ours = self._wide and str(type_of(call).dtype) == _WIDE
        given = _WIDE, _FUNCTIONS[name], *call.args
        return self._tir.call_pure_extern(*given) if ours else theirs(call)

    def _lowered(
        self, rule: Callable[[Any], Any], theirs: Callable[[Any], Any] | None, call: Any
    ) -> Any:
        if self._is_ours(str(type_of(call).dtype)):
            return self._bound(call.args[0], rule)
        return call if theirs is None else theirs(call)

    def _power(self, theirs: Callable[[Any], Any], call: Any) -> Any:
        base, exponent = call.args
        dtype = str(type_of(call).dtype)
        times = float(exponent.value) if isinstance(exponent, self._tir.FloatImm) else 0.0
        if not self._used or dtype not in ("float32", "float64") or times not in (2.0, 3.0):
            return theirs(call)
        x = self._tir.Var("x", dtype)
        return self._tir.Let(x, base, x * x if times == 2.0 else x * x * x)

    def _log(self, theirs: Callable[[Any], Any], call: Any) -> Any:
        """2 atanh(y / (2 + y)) is log(1 + y) with all of y's digits."""
        total, kind, tir = call.args[0], str(type_of(call).dtype), self._tir
        terms = _LOG1P_TERMS.get(kind.partition("x")[0])
        one = tir.const(1.0, kind)
        sides = (total.a, total.b) if type(total).__name__ == "Add" else ()
        rest = [s for s in sides if scalar_of(s) != 1.0]
        if terms is None or len(rest) != 1:
            return theirs(call)
        y, z = tir.Var("y", kind), tir.Var("z", kind)
        series = self._polynomial(z * z, [2 / (2 * term + 1) for term in range(terms)])
        small = tir.Let(z, y / (y + tir.const(2.0, kind)), z * series)
        near = tir.And(tir.GE(y, tir.const(-0.5, kind)), tir.LE(y, one))
        return tir.Let(y, rest[0], tir.Select(near, small, theirs(tir.log(y + one))))

    def _near_zero(self, others: Callable[..., Any], theirs: Any, call: Any) -> Any:
        """tanh in dtypes that `_tanh` is not for, by its series near 0."""
        kind, tir = str(type_of(call).dtype), self._tir
        bits = kind.partition("x")[0]
        if bits not in ("float32", "float64") or self._is_ours(kind):
            return others(theirs, call)
        x, square = tir.Var("x", kind), tir.Var("square", kind)
        series = self._polynomial(square, _TANH_SERIES)
        near = square < tir.const(_TANH_NEAR**2, kind)
        made = tir.Select(near, x * series, theirs(tir.tanh(x)))
        return tir.Let(x, call.args[0], tir.Let(square, x * x, made))

    def _is_ours(self, kind: str) -> bool:
        """Whether these rules apply to a type, of a number or a vector."""
        return self._used and kind.partition("x")[0] == _DTYPE

    def _bound(self, value: Any, rule: Callable[[Any], Any]) -> Any:
        x = self._tir.Var("x", str(type_of(value).dtype))
        return self._tir.Let(x, value, rule(x))

    def _constant(self, value: float, x: Any) -> Any:
        """A number in each lane of a vector as wide as x."""
        return self._tir.const(value, str(type_of(x).dtype))

    def _polynomial(self, x: Any, coefficients: Sequence[float]) -> Any:
        result = self._constant(coefficients[-1], x)
        for c in coefficients[-2::-1]:
            result = result * x + self._constant(c, x)
        return result

    def _joined(self, a: Any, b: float, c: Any) -> Any:
        """a * b + c, which LLVM keeps together when it may sum in any order elsewhere."""
        return self._call(str(type_of(a).dtype), "llvm.fmuladd", a, self._constant(b, a), c)

    def _exp(self, x: Any) -> Any:
        """exp by range reduction (Cody and Waite): 2^n times the series of a rest below ln 2 / 2.

        n is added to the exponent in the series' bits. Results below the normal numbers are 0.
        """
        tir, number = self._tir, partial(self._constant, x=x)
        inside = tir.max(tir.min(x, number(_EXP_LAST)), number(_EXP_FIRST))
        whole = tir.floor(inside * number(_LOG2E) + number(0.5))
        rest = self._joined(whole, -_LN2_LOW, self._joined(whole, -_LN2_HIGH, inside))
        series = self._polynomial(rest, [1 / math.factorial(k) for k in range(8)])
        whole_number = str(type_of(x).dtype).replace("float", "int")
        shift = tir.const(23, whole_number)
        bits = tir.reinterpret(whole_number, series) + (whole.astype(whole_number) << shift)
        result = tir.reinterpret(str(type_of(x).dtype), bits)
        result = tir.Select(x < number(_EXP_FIRST), number(0.0), result)
        result = tir.Select(x > number(_EXP_LAST), number(math.inf), result)
        return self._unless_nan(x, result)

    def _erf(self, x: Any) -> Any:
        tir, end = self._tir, self._constant(_ERF_END, x)
        inside = tir.max(tir.min(x, end), self._constant(-_ERF_END, x))
        square = inside * inside
        result = inside * self._polynomial(square, _ERF_TOP) / self._polynomial(square, _ERF_BOTTOM)
        return self._unless_nan(x, result)

    def _tanh(self, x: Any) -> Any:
        tir, number, square = self._tir, partial(self._constant, x=x), x * x
        small = x * self._polynomial(square, _TANH_SERIES[:_TANH_TERMS])
        doubled = tir.min(x + x, number(80.0))
        large = number(1.0) - number(2.0) / (self._bound(doubled, self._exp) + number(1.0))
        bound = number(_TANH_SMALL * _TANH_SMALL)
        return self._unless_nan(x, tir.Select(square < bound, small, large))

    def _sigmoid(self, x: Any) -> Any:
        one = self._constant(1.0, x)
        return one / (one + self._bound(self._constant(0.0, x) - x, self._exp))

    def _unless_nan(self, x: Any, result: Any) -> Any:
        # By bits: a comparison of x with itself is dropped if TVM lets LLVM assume no NaN.
        tir, kind = self._tir, str(type_of(x).dtype).replace("float", "int")
        size = tir.reinterpret(kind, x) & tir.const(0x7FFFFFFF, kind)
        return tir.Select(size > tir.const(0x7F800000, kind), x, result)


def type_of(call: Any) -> Any:
    """The object with an expression's dtype: itself, or its type in newer TVMs."""
    return call if hasattr(call, "dtype") else call.ty


def scalar_of(value: Any) -> float | None:
    """The number that an expression is, or is a vector of; None for others, and for NaN."""
    constant = value.value if type(value).__name__ == "Broadcast" else value
    known = type(constant).__name__ == "FloatImm" and not math.isnan(constant.value)
    return float(constant.value) if known else None
