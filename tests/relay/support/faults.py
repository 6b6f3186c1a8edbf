"""Relay passes that are wrong, for bisection to find."""

import itertools
import math
import time

from tvm import relay

from relascope.passes.relay.ir.rewrite import op_name, rewrite, shape

IR = "relay"
_RUNS, _KEPT = itertools.count(), []


def _each(program, name, make):
    """A program with each call of an operator made anew; `None` leaves it."""
    return rewrite(program, lambda *at: make(*at) if op_name(at[0]) == name else None)


def gelu_tanh(program):
    """Writes gelu's erf in its tanh form, which is only near it."""

    def visit(call, args):
        (u,) = args
        dtype = call.checked_type.dtype
        cube = u * u * u * relay.const(2 * 0.044715, dtype)
        return relay.tanh((u + cube) * relay.const(2 / math.sqrt(math.pi), dtype))

    return _each(program, "erf", visit)


def eps_outside(program):
    """Writes sqrt(variance + eps) as sqrt(variance) + eps."""

    def visit(call, args):
        if op_name(args[0]) != "add":
            return None
        variance, eps = args[0].args
        return relay.sqrt(variance) + eps

    return _each(program, "sqrt", visit)


def in_float16(program):
    """Rounds what each dense layer reads to float16."""

    def visit(call, args):
        rounded = relay.cast(relay.cast(args[0], "float16"), call.checked_type.dtype)
        return relay.nn.dense(rounded, args[1])

    return _each(program, "nn.dense", visit)


def weight_transposed(program):
    """Transposes the weight of each square layer."""

    def visit(call, args):
        return relay.nn.dense(args[0], relay.transpose(args[1]))

    return _each(program, "nn.dense", visit)


def residual_dropped(program):
    """Leaves out the first addend where it is the function's argument."""

    def visit(call, args):
        return args[1] if isinstance(args[0], relay.Var) else None

    return _each(program, "add", visit)


def softmax_axis(program):
    """Takes each softmax over the axis before the last."""
    return _each(program, "nn.softmax", lambda _, args: relay.nn.softmax(args[0], axis=-2))


def gradient_dropped(program):
    """Rounds what erf reads to so small a fraction that it stays as it is; floor has no slope."""

    def visit(call, args):
        large = relay.const(2.0**60, call.checked_type.dtype)
        return relay.erf(relay.floor(args[0] * large) / large)

    return _each(program, "erf", visit)


def slow(program):
    """Computes each dense layer for sixteen copies of what it reads, and keeps one."""

    def visit(call, args):
        copies = relay.nn.dense(relay.concatenate([args[0]] * 16, axis=0), args[1])
        return relay.strided_slice(copies, begin=[0, 0], end=shape(call))

    return _each(program, "nn.dense", visit)


def breaks_every_second_run(program):
    """Transposes weights in its second run, its fourth, and so on."""
    return weight_transposed(program) if next(_RUNS) % 2 else program


def sleeps(program):
    time.sleep(0.3)
    return program


def leaks(program):
    """Keeps 256 MiB."""
    _KEPT.append(b"x" * (256 << 20))
    return program


def raises(program):
    raise ValueError(f"no good after {len(program.params)} parameters")
