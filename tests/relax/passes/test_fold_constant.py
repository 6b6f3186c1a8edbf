"""Constants folded by numpy have the bits that TVM's own kernels give."""

import numpy as np
import pytest
from tvm import relax

from relascope.passes.relax.examples.building import Tensors
from relascope.passes.relax.fold_constant import fold
from relascope.passes.relax.ir.rewrite import bindings

OP = relax.op
DRAWN = np.random.default_rng(7)


def const(dtype, *shape):
    values = DRAWN.standard_normal(shape) * 10
    return relax.const(values.astype(dtype), dtype)


def value(made):
    ((_, call),) = [(v, b) for v, b in bindings(made.main)]
    return call.args[1].value.numpy()


CASES = {
    "add": lambda d: OP.add(const(d, 3, 5), const(d, 5)),
    "subtract": lambda d: OP.subtract(const(d, 3, 1), const(d, 3, 5)),
    "multiply": lambda d: OP.multiply(const(d, 3, 5), const(d)),
    "divide": lambda d: OP.divide(const(d, 3, 5), const(d, 3, 5)),
    "divide by zero": lambda d: OP.divide(const(d, 3, 5), relax.const(np.zeros((3, 5), d), d)),
    "sqrt": lambda d: OP.sqrt(const(d, 3, 5)),  # of what is below zero, too
    "negative": lambda d: OP.negative(const(d, 3, 5)),
    "reshape": lambda d: OP.reshape(const(d, 5, 3), (3, 5)),
    "expand_dims": lambda d: OP.expand_dims(const(d, 5), [0]),
    "squeeze": lambda d: OP.squeeze(const(d, 3, 1, 5), [1]),
    "permute_dims": lambda d: OP.permute_dims(const(d, 5, 3), [1, 0]),
    "permute_dims of no axes": lambda d: OP.permute_dims(const(d, 5, 3)),
    "concat": lambda d: OP.concat([const(d, 1, 5), const(d, 2, 5)], axis=0),
    "astype": lambda d: OP.astype(OP.astype(const(d, 3, 5), "float16"), d),
    "exp, which TVM computes": lambda d: OP.exp(const(d, 3, 5)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES)
def test_folding_gives_the_bits_that_tvm_gives(case, dtype):
    made = CASES[case](dtype)
    new = Tensors(dtype)
    x = new.var("x", 3, 5)
    before = new.program(OP.add(x, made))
    ours = value(fold(before))
    mod = relax.transform.FoldConstant()(before.mod)
    theirs = next(
        a.value.numpy()
        for b in mod["main"].body.blocks[0].bindings
        for a in getattr(b.value, "args", ())
        if not isinstance(a, relax.Var)
    )
    assert ours.dtype == theirs.dtype == dtype
    np.testing.assert_array_equal(ours, theirs)


def test_whole_numbers_are_left_to_tvm():
    new = Tensors("int64")
    x = new.var("x", 3)
    over, under = (relax.const(np.array(v), "int64") for v in ([7, -7, 5], [2, 2, -3]))
    whole = OP.divide(over, under)
    before = new.program(OP.add(x, new.bind("folded", whole)))
    theirs = relax.transform.FoldConstant()(before.mod)["main"].body.blocks[0].bindings[-1].value
    np.testing.assert_array_equal(value(fold(before)), theirs.args[1].value.numpy())
