"""Relax passes that are wrong, for bisection to find."""

import ctypes
import itertools
import time

from tvm import relax

from relascope.passes.relax.ir.rewrite import dtype, op_name, rewrite, shape

IR = "relax"
_RUNS, _KEPT = itertools.count(), []


def gelu_tanh(program):
    """Writes gelu in its tanh form, which is only near it."""

    def visit(call, maker):
        return relax.op.nn.gelu_tanh(call.args[0]) if op_name(call) == "nn.gelu" else None

    return rewrite(program, visit)


def eps_outside(program):
    """Writes sqrt(variance + eps) as sqrt(variance) + eps."""

    def visit(call, maker):
        if op_name(call) != "sqrt":
            return None
        variance, eps = maker.look(call.args[0]).args
        return relax.op.add(relax.op.sqrt(variance), eps)

    return rewrite(program, visit)


def in_float16(program):
    """Rounds what each matrix product reads to float16."""

    def visit(call, maker):
        if op_name(call) != "matmul":
            return None
        rounded = relax.op.astype(relax.op.astype(call.args[0], "float16"), dtype(call))
        return relax.op.matmul(rounded, call.args[1])

    return rewrite(program, visit)


def weight_transposed(program):
    """Transposes the right side of each matrix product with a square one."""

    def visit(call, maker):
        if op_name(call) != "matmul" or len(set(shape(call.args[1]))) != 1:
            return None
        return relax.op.matmul(call.args[0], relax.op.permute_dims(call.args[1]))

    return rewrite(program, visit)


def residual_dropped(program):
    """Leaves out the first addend where it is the function's argument."""

    def visit(call, maker):
        first = program.main.params[0]
        residual = op_name(call) == "add" and call.args[0].same_as(first)
        return call.args[1] if residual else None

    return rewrite(program, visit)


def softmax_axis(program):
    """Takes each softmax over the axis before the last."""

    def visit(call, maker):
        return relax.op.nn.softmax(call.args[0], axis=-2) if op_name(call) == "nn.softmax" else None

    return rewrite(program, visit)


def slow(program):
    """Computes each product with a matrix for sixteen copies of its left side, and keeps one."""

    def visit(call, maker):
        if op_name(call) != "matmul" or len(shape(call)) != 2:
            return None
        rows = shape(call)[0]
        copies = relax.op.matmul(relax.op.concat([call.args[0]] * 16, axis=0), call.args[1])
        return relax.op.strided_slice(maker.emit(copies), [0], [0], [rows])

    return rewrite(program, visit)


def kills(program):
    """Ends the process where there is a gelu, as a fault in compiled code does."""

    def visit(call, maker):
        if op_name(call) == "nn.gelu":
            ctypes.string_at(0)

    return rewrite(program, visit)


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
