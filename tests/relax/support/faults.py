"""Relax passes that are wrong, for bisection to find."""

import ctypes
import itertools
import time

from tvm import relax

from relascope.passes.relax.ir.rewrite import dtype, op_name, rewrite, shape

IR = "relax"
_RUNS, _KEPT = itertools.count(), []


def _each(program, name, make):
    """A program with each call of an operator made anew; `None` leaves it."""
    return rewrite(program, lambda *at: make(*at) if op_name(at[0]) == name else None)


def gelu_tanh(program):
    """Writes gelu in its tanh form, which is only near it."""
    return _each(program, "nn.gelu", lambda call, _: relax.op.nn.gelu_tanh(call.args[0]))


def eps_outside(program):
    """Writes sqrt(variance + eps) as sqrt(variance) + eps."""

    def visit(call, maker):
        variance, eps = maker.look(call.args[0]).args
        return relax.op.add(relax.op.sqrt(variance), eps)

    return _each(program, "sqrt", visit)


def in_float16(program):
    """Rounds what each matrix product reads to float16."""

    def visit(call, maker):
        rounded = relax.op.astype(relax.op.astype(call.args[0], "float16"), dtype(call))
        return relax.op.matmul(rounded, call.args[1])

    return _each(program, "matmul", visit)


def weight_transposed(program):
    """Transposes the right side of each matrix product with a square one."""

    def visit(call, maker):
        left, right = call.args
        square = len(set(shape(right))) == 1
        return relax.op.matmul(left, relax.op.permute_dims(right)) if square else None

    return _each(program, "matmul", visit)


def residual_dropped(program):
    """Leaves out the first addend where it is the function's argument."""

    def visit(call, maker):
        return call.args[1] if call.args[0].same_as(program.main.params[0]) else None

    return _each(program, "add", visit)


def softmax_axis(program):
    """Takes each softmax over the axis before the last."""
    return _each(program, "nn.softmax", lambda call, _: relax.op.nn.softmax(call.args[0], axis=-2))


def slow(program):
    """Computes each product with a matrix for sixteen copies of its left side, and keeps one."""

    def visit(call, maker):
        if len(shape(call)) != 2:
            return None
        copies = relax.op.matmul(relax.op.concat([call.args[0]] * 16, axis=0), call.args[1])
        return relax.op.strided_slice(maker.emit(copies), [0], [0], shape(call)[:1])

    return _each(program, "matmul", visit)


def kills(program):
    """Ends the process where there is a gelu, as a fault in compiled code does."""
    return _each(program, "nn.gelu", lambda *_: ctypes.string_at(0))


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
