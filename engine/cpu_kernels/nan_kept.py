"""Maxima, minima and comparisons of lowered kernels that treat NaN as PyTorch does.

TVM writes max(a, b) as `a > b ? a : b`, which loses NaN in a, and starts a maximum at the lowest
number instead of minus infinity. Some comparisons are true for NaN: the unordered ones, and all if
LLVM may assume that there is no NaN, as in Relay's TVM.
"""

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

from relascope.engine.cpu_kernels.vector_math import scalar_of, type_of

CHANGED = ("Max", "Min", "BufferStore", "Call")
"""The nodes that a rule changes, beside "NE"."""

NEGATED = ("Not",)
"""Nodes changed before TVM turns `not a < b` into `b <= a`, which is wrong for NaN."""

_OPPOSITE = {"EQ": "NE", "NE": "EQ", "LT": "GE", "LE": "GT", "GT": "LE", "GE": "LT"}

COMPARED = ("EQ", "LT", "LE", "GT", "GE", "Cast")
"""More nodes to change, if no comparison can be trusted with NaN."""

_BITS = {
    "float16": ("int16", 0x7FFF, 0x7C00),
    "float32": ("int32", 0x7FFFFFFF, 0x7F800000),
    "float64": ("int64", (1 << 63) - 1, 0x7FF << 52),
}
"""By dtype, the integer dtype, its bits without the sign, and infinity's: NaN's are larger."""


_LARGEST = {"float16": 65504.0, "float32": (2 - 2**-23) * 2.0**127, "float64": sys.float_info.max}

_LOADS = {"BufferLoad": "buffer", "TensorLoad": "source"}
"""The TVMs' nodes that read a buffer, and their attribute for the buffer."""

_UNSEEN = "T_softmax_maxelem"
"""The largest of a row in TVM's softmax: it may lose NaN, because the exponential keeps it."""

Rule = Callable[[Any], Any]
"""From a node to its replacement."""


def rule(
    tir: Any,
    walk: Callable[[Any, Callable[[Any], None]], Any],
    body: Any,
    call: Callable[..., Any] | None = None,
    names: dict[int, str] | None = None,
) -> Rule:
    """The rule for the nodes of a kernel. `walk` visits everything in a statement. `call` makes an
    LLVM intrinsic by dtype, name and arguments, if LLVM has maxima that keep NaN, which it also
    vectorises in reductions."""
    extremes: list[tuple[Any, str]] = []

    def visit(node: Any) -> None:
        if _name(node) != "BufferStore":  # asked first: attributes of TVM's nodes are slow
            return
        name = _name(node.value)
        if name in ("Max", "Min"):
            read = _read(node.value.a)
            if read is not None and read.same_as(node.buffer):
                extremes.append((node.buffer, name))

    walk(body, visit)

    def changed(node: Any) -> Any:
        name = _name(node)
        if name == "BufferStore":
            return _begun(tir, node, extremes)
        if name == "Call":
            node = _rounded(tir, names, node) if names else node
            return _padded(tir, node) if extremes and _name(node) == "Call" else node
        if name == "Cast":
            to_bool = str(type_of(node).dtype).startswith("bool") and _dtype(node.value)[0] in _BITS
            return (
                _kept(tir, walk, tir.NE(node.value, _like(tir, 0.0, node.value)))
                if to_bool
                else node
            )
        if name == "Not":
            opposite = _OPPOSITE.get(_name(node.a))
            return _kept(tir, walk, node.a, opposite=opposite) if opposite else node
        return _kept(tir, walk, node, call)

    return changed


def _begun(tir: Any, store: Any, extremes: Sequence[tuple[Any, str]]) -> Any:
    """A store, with infinity in place of the number that a maximum or minimum begins with."""
    number, (dtype, _) = scalar_of(store.value), _dtype(store.value)
    if number is None or abs(number) != _LARGEST.get(dtype):
        return store
    name = "Max" if number < 0 else "Min"
    if not any(n == name and store.buffer.same_as(b) for b, n in extremes):
        return store
    infinity = _like(tir, math.copysign(math.inf, number), store.value)
    return tir.BufferStore(store.buffer, infinity, store.indices)


def _padded(tir: Any, call: Any) -> Any:
    """A pad around a maximum's operand, of minus infinity in place of the lowest number."""
    if getattr(call.op, "name", "").rpartition(".")[2] != "if_then_else":
        return call
    condition, inside, around = call.args
    number = scalar_of(around)
    if number is None or -number != _LARGEST.get(_dtype(around)[0]):
        return call
    return tir.if_then_else(condition, inside, _like(tir, -math.inf, around))


def _kept(
    tir: Any,
    walk: Callable[[Any, Callable[[Any], None]], Any],
    node: Any,
    call: Callable[..., Any] | None = None,
    opposite: str = "",
) -> Any:
    """A comparison, maximum or minimum that treats NaN as PyTorch does; `opposite` is the
    comparison that holds for all other numbers, to negate instead."""
    dtype, lanes = _dtype(node.a)
    if dtype not in _BITS:
        return tir.Not(node) if opposite else node
    made = getattr(tir, opposite) if opposite else type(node)
    name = made.__name__
    true_of_nan = opposite != "EQ" if opposite else name == "NE"
    bound: list[tuple[Any, Any]] = []

    def held(value: Any) -> Any:
        if _name(value) in ("Var", *_LOADS) or scalar_of(value) is not None:
            return value
        halves: list[Any] = []  # TVM's lowering of bfloat16 skips values of variables
        walk(value, lambda n: halves.append(n) if _is_half(n) else None)
        if halves:
            return value
        bound.append((tir.Var("x", dtype + lanes), value))
        return bound[-1][0]

    if name in ("Max", "Min"):
        if scalar_of(node.b) is not None:  # TVM keeps a NaN in the second operand
            return made(node.b, node.a)
        if scalar_of(node.a) is not None:
            return node
        if call is not None and dtype != "float16":
            intrinsic = {"Max": "llvm.maximum", "Min": "llvm.minimum"}[name]
            return call(dtype + lanes, intrinsic, node.a, node.b)
        if str(getattr(_read(node.a), "name", "")).startswith(_UNSEEN):
            return node
        a = held(node.a)
        result = tir.Select(tir.isnan(a), a, made(a, node.b))
    else:
        sides = held(node.a), held(node.b)
        result = made(*sides)
        for value in sides:
            if scalar_of(value) is None:
                strange = _is_nan(tir, value)
                result = (
                    tir.Or(result, strange) if true_of_nan else tir.And(result, tir.Not(strange))
                )
    for variable, value in reversed(bound):
        result = tir.Let(variable, value, result)
    return result


def _is_half(node: Any) -> bool:
    return _name(node) == "Cast" and _dtype(node.value)[0] == "bfloat16"


def _is_nan(tir: Any, value: Any) -> Any:
    dtype, lanes = _dtype(value)
    whole, unsigned, infinity = _BITS[dtype]
    bits = tir.reinterpret(whole + lanes, value)
    return tir.GT(bits & tir.const(unsigned, whole + lanes), tir.const(infinity, whole + lanes))


def places(
    tir: Any,
    walk: Callable[[Any, Callable[[Any], None]], Any],
    equal: Callable[[Any, Any], bool],
    body: Any,
) -> Rule:
    """The rule for "Select", "EQ", "Sub" and "Call" nodes before a kernel is lowered.

    - argmax and argmin give the place of the first NaN, or the first place if all are infinite.
    - A remainder written as a - trunc(a / b) * b becomes LLVM's, because with infinity the
      difference is wrong.
    - Differences are computed, see `_difference`.
    - A logarithm of a sum with a number in a buffer gets the number, for `vector_math` to
      recognise.

    `equal` says whether two expressions are the same except for the buffers that they read."""
    kept: dict[str, list[Any]] = {"best": []}

    def read_by(expression: Any) -> list[Any]:
        found: list[Any] = []
        walk(expression, lambda node: found.append(_read(node)))
        return found

    def same(a: Any, b: Any) -> bool:
        pairs = zip(read_by(a), read_by(b), strict=True)
        return equal(a, b) and all(x is y or (x is not None and x.same_as(y)) for x, y in pairs)

    def stores(load: Any) -> list[Any]:
        """The kernel's stores to the buffer that an expression reads."""
        if "stores" not in kept:
            found = kept["stores"] = []
            walk(body, lambda n: found.append(n) if _name(n) == "BufferStore" else None)
        read = _read(load.value if _name(load) == "Cast" else load)
        return [s for s in kept["stores"] if read is not None and read.same_as(s.buffer)]

    def logarithm(call: Any) -> Any:
        total = call.args[0]
        alone = stores(total) if not len(getattr(total, "indices", [0])) else []
        total = alone[0].value if len(alone) == 1 else total  # a scalar is a stage of its own
        if call.op.name.partition(".")[2] != "log" or _name(total) != "Add":
            return call
        sides = [stores(s) for s in (total.a, total.b)]
        numbers = [scalar_of(s[0].value) if len(s) == 1 else None for s in sides]
        for number, rest in zip(numbers, (total.b, total.a), strict=True):
            if number is not None:
                return tir.log(rest + _like(tir, number, rest))
        return call

    def better(node: Any) -> Any:
        """The sides of a comparison of the best float so far with another; None for others."""
        compares = _name(node) in ("GT", "LT") and _dtype(node.a)[0] in _BITS
        return (node.a, node.b) if compares and stores(node.a) else None

    def changed(node: Any) -> Any:
        if _name(node) == "EQ":
            itself = _dtype(node.a)[0] in _BITS and same(node.a, node.b)
            return tir.Not(_is_nan(tir, node.a)) if itself else node
        if _name(node) == "Sub":
            return _difference(tir, same, _remainder(tir, same, node))
        if _name(node) == "Call":
            return logarithm(node)
        condition, index = node.condition, node.true_value
        found = better(condition.a if _name(condition) == "Or" else condition)
        if found is None:
            return node
        best, value = found
        lost = _is_nan(tir, best)
        if _name(condition) != "Or":
            if not (same(index, best) and same(node.false_value, value)) or not any(
                _read(best).same_as(b) for b in kept["best"]
            ):
                return node
            return tir.Select(tir.Or(condition, lost), best, value)
        tie = condition.b
        if _name(tie) != "And" or _name(tie.a) != "EQ" or not stores(index):
            return node
        kept["best"].append(_read(best))
        both = tir.Or(tie.a, tir.And(lost, _is_nan(tir, value)))
        first = tir.And(lost, tir.Not(_is_nan(tir, value)))
        wins = tir.Or(tir.Or(condition.a, first), tir.And(both, tie.b))
        begun = tir.GE(index, tir.const(0, str(type_of(index).dtype)))
        return tir.Select(tir.And(begun, wins), index, node.false_value)

    return changed


def _remainder(tir: Any, same: Callable[[Any, Any], bool], node: Any) -> Any:
    product = node.b
    if _dtype(node)[0] not in _BITS or _name(product) != "Mul":
        return node
    for whole, by in ((product.a, product.b), (product.b, product.a)):
        if _name(whole) == "Call" and whole.op.name == "tir.trunc":
            quotient = whole.args[0]
            if _name(quotient) == "Div" and same(quotient.a, node.a) and same(quotient.b, by):
                return tir.Mod(node.a, by)
    return node


def _difference(tir: Any, same: Callable[[Any, Any], bool], node: Any) -> Any:
    """Keep a difference that TVM or LLVM would fold to 0 (wrong for NaN and infinity) or to an
    operand of a sum (unrounded)."""
    dtype, lanes = _dtype(node)
    if dtype not in _BITS or _name(node) != "Sub":
        return node
    whole, unsigned, infinity = _BITS[dtype]

    def equal(a: Any, b: Any) -> bool:
        turned = _name(a) == _name(b) and _name(a) in ("Add", "Mul")
        return same(a, b) or (turned and same(a.a, b.b) and same(a.b, b.a))

    def apart(total: Any, term: Any) -> Any:
        """A sum, hidden from TVM if the term is one of its operands."""
        if _name(total) != "Add" or not (same(total.a, term) or same(total.b, term)):
            return total
        return tir.reinterpret(dtype + lanes, tir.reinterpret(whole + lanes, total))

    if equal(node.a, node.b):
        size = tir.reinterpret(whole + lanes, node.a) & tir.const(unsigned, whole + lanes)
        strange = tir.GE(size, tir.const(infinity, whole + lanes))
        nan, zero = (tir.const(bits, whole + lanes) for bits in (unsigned, 0))
        return tir.reinterpret(dtype + lanes, tir.Select(strange, nan, zero))
    a, b = apart(node.a, node.b), apart(node.b, node.a)
    return node if a.same_as(node.a) and b.same_as(node.b) else tir.Sub(a, b)


_ROUNDS = {"bfloat16": "llvm.canonicalize", "float16": "llvm.ssa.copy"}
"""By dtype, the mark of a number rounded to it, from before TVM's lowering until after it."""


def narrowed(
    tir: Any, call: Callable[..., Any], cast: Any, dtypes: Sequence[str] = ("bfloat16",)
) -> Any:
    """A cast with a marked operand, so that `_rounded` really rounds.

    TVM computes bfloat16 in float32 without rounding between operators of one kernel, and LLVM does
    the same to float16 if it may reorder arithmetic. A rounding statement would not survive
    lowering.
    """
    dtype, lanes = _dtype(cast)
    value, given = cast.value, _dtype(cast.value)[0]
    if dtype not in dtypes or given in _ROUNDS:
        return cast
    value = value if given == "float32" else tir.Cast("float32" + lanes, value)
    return tir.Cast(dtype + lanes, call("float32" + lanes, _ROUNDS[dtype], value))


def marks(tir: Any, call: Callable[..., Any]) -> dict[int, str]:
    """The dtype, by the number of the intrinsic that marks numbers rounded to it."""
    zero = tir.const(0.0, "float32")
    return {int(call("float32", n, zero).args[0].value): d for d, n in _ROUNDS.items()}


def _rounded(tir: Any, known: dict[int, str], call: Any) -> Any:
    named = getattr(call.op, "name", "").rpartition(".")[2] == "call_llvm_pure_intrin"
    dtype = known.get(int(getattr(call.args[0], "value", -1))) if named else None
    if dtype is None:
        return call
    value = call.args[-1]
    lanes = _dtype(value)[1]
    x, whole, kind = tir.Var("x", "float32" + lanes), "uint32" + lanes, "float32" + lanes
    digits, bits = {"bfloat16": 16, "float16": 13}[dtype], tir.reinterpret(whole, x)
    odd = tir.shift_right(bits, tir.const(digits, whole)) & tir.const(1, whole)
    half = tir.const((1 << digits - 1) - 1, whole)
    up = (bits + (odd + half)) & tir.const(0xFFFFFFFF >> digits << digits, whole)
    up = tir.reinterpret(kind, up)
    if dtype == "float16":  # its smallest numbers have fewer digits
        scale, small = tir.const(2.0**24, kind), tir.const(2.0**-14, kind)
        near = tir.nearbyint(x * scale) * tir.const(2.0**-24, kind)
        up = tir.Select(tir.abs(x) < small, near, up)
    return tir.Let(x, value, tir.Select(_is_nan(tir, x), x, up))


def _read(value: Any) -> Any:
    attribute = _LOADS.get(_name(value))
    return getattr(value, attribute, None) if attribute else None


def _name(node: Any) -> str:
    return type(node).__name__


def _dtype(value: Any) -> tuple[str, str]:
    """An expression's dtype, and its lanes, such as "x8", or ""."""
    dtype, times, lanes = str(type_of(value).dtype).partition("x")
    return dtype, times + lanes


def _like(tir: Any, number: float, value: Any) -> Any:
    """A constant in an expression's dtype, in each of its lanes."""
    dtype, lanes = _dtype(value)
    constant = tir.FloatImm(dtype, number)
    return tir.Broadcast(constant, int(lanes[1:])) if lanes else constant
