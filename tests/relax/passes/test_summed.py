"""Products, and sums, that are added up are one, where they are many and alike."""

import torch
from tvm import relax

from limits import close, rounding
from relascope.engine.relax.kernels.summed import FEW, merged
from relax_modules import compiled, program

OP = relax.op
STEPS = FEW + 1


def added(terms):
    total, *rest = terms
    for term in rest:
        total = OP.add(total, term)
    return total


def operators(mod, *names):
    return [str(mod).count(f"R.{name}(") for name in names]


def step(*parts):
    """Of gradients, then states: products, sums over rows, and something else."""
    grads, states = parts[:STEPS], parts[STEPS:]
    products = [OP.matmul(OP.permute_dims(g), h) for g, h in zip(grads, states, strict=True)]
    return (
        products,
        [OP.sum(g, [0]) for g in grads],
        OP.tanh(OP.matmul(OP.permute_dims(grads[0]), states[0])),
    )


def check(results, wanted, counts):
    kinds = [([3, 5], "float32")] * STEPS + [([3, 2], "float32")] * STEPS
    before = program(lambda *parts: results(*step(*parts)), *kinds)
    after = merged(before)
    assert operators(after, "matmul", "sum", "concat") == counts
    torch.manual_seed(0)
    values = [torch.randn(shape) for shape, _ in kinds]
    grads, states = values[:STEPS], values[STEPS:]
    products = [g.T @ h for g, h in zip(grads, states, strict=True)]
    exact = wanted(products, [g.sum(0) for g in grads], products[0].tanh())
    for target in ("llvm", "llvm -libs=blas -schedules=relascope"):
        found = compiled(before, target)(*(v.numpy() for v in values))
        torch.testing.assert_close(
            torch.as_tensor(found), exact, **close(rounding("float32", 3 * STEPS, 20))
        )


def test_many_are_one_and_few_or_of_another_shape_stay_apart():
    check(lambda p, s, more: added([*p, more]), lambda p, s, more: sum(p) + more, [2, 0, 2])
    check(lambda p, s, more: added(s), lambda p, s, more: sum(s), [0, 1, 1])
    few = FEW - 1
    check(lambda p, s, more: added(p[:few]), lambda p, s, more: sum(p[:few]), [few, 0, 0])

    def read(products, sums, more):
        pairs = [(p.args[0].args[0], p.args[1]) for p in products]
        narrow = [(OP.strided_slice(g, [1], [0], [1]), h) for g, h in pairs]
        rows = [OP.matmul(OP.permute_dims(g), h) for g, h in narrow]
        return OP.add(added(products), added(rows))

    check(read, lambda p, s, more: sum(p) + sum(x[:1] for x in p), [2, 0, 4])
