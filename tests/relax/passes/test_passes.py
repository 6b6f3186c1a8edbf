"""Passes that rewrite training programs, and TVM's own, on small programs, beside PyTorch."""

from functools import partial, reduce
from operator import add

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from tvm import relax

from gradients import Fn, draw, imported, passes, runtime, to_graph
from limits import LIMITS, POINTWISE, close, rounding
from quick import QUICK, combinations
from relascope.core.errors import EngineError
from relascope.engine.building.options import BuildOptions
from relascope.engine.relax.kernels.summed import FEW, merged
from relascope.passes.cost import flops_of
from relascope.passes.relax.builtin import topological_sort
from relascope.passes.relax.examples.building import Tensors
from relascope.passes.relax.fold_constant import fold
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.ir.rewrite import bindings, op_name
from relax_modules import compiled, errors
from relax_modules import program as module_of

X = relax.Var("x", relax.TensorType((2, 3), "float64"))
W = relax.Var("w", relax.TensorType((3, 3), "float64"))
ROW = relax.Var("row", relax.TensorType((1, 3), "float64"))
OP = relax.op


def number(value):
    return relax.const(value, "float64")


def program(*results):
    builder = relax.BlockBuilder()
    with builder.function("main", [X, W, ROW]):
        with builder.dataflow():
            out = builder.emit_output(relax.Tuple([builder.normalize(r) for r in results]))
        builder.emit_func_output(out)
    return RelaxProgram(builder.get(), {}, ("x", "w", "row"), len(results))


def run(made):
    values = {"x": draw(2, 3), "w": draw(3, 3), "row": draw(1, 3)}
    return runtime.assemble(made, None, BuildOptions(QUICK)).forward(values)[0]


def operators(made):
    return [n for n in (op_name(value) for _, value in bindings(made.main)) if n]


def same(before, after):
    for a, b in zip(run(before), run(after), strict=True):
        assert a.shape == b.shape
        assert float(a.abs().max()) > 0
        torch.testing.assert_close(a, b, rtol=0, atol=rounding("float64", POINTWISE, b.abs().max()))


T = OP.permute_dims
CASES = {
    "drop_zeros": {
        "zeros": (OP.tanh(OP.add(X, OP.zeros((2, 3), "float64"))), ["tanh"]),
        "a zero in front": (OP.tanh(OP.add(number(0.0), X)), ["tanh"]),
        "minus a broadcast zero": (OP.tanh(X - OP.broadcast_to(number(0.0), (1, 3))), ["tanh"]),
        "a zero that broadcasts stays": (ROW + OP.zeros((2, 3), "float64"), ["zeros", "add"]),
        "zero minus stays": (OP.subtract(number(0.0), X), ["subtract"]),
    },
    "drop_ones": {
        "ones": (OP.tanh(OP.multiply(OP.ones((2, 3), "float64"), X)), ["tanh"]),
        "over one": (OP.tanh(OP.divide(X, number(1.0))), ["tanh"]),
        "one over stays": (OP.divide(number(1.0), X), ["divide"]),
        "a one that broadcasts stays": (ROW * OP.ones((2, 3), "float64"), ["ones", "multiply"]),
        "a number that is neither": (OP.multiply(X, number(1.5)), ["multiply"]),
    },
    "transpose_dedup": {
        "two that undo each other": (OP.tanh(T(T(X, [1, 0]), [1, 0])), ["tanh"]),
        "two without axes": (OP.tanh(T(T(X))), ["tanh"]),
        "one in order": (OP.tanh(T(X, [0, 1])), ["tanh"]),
        "three": (T(T(T(X, [1, 0]), [1, 0]), [1, 0]), ["permute_dims"]),
    },
    "transpose_of_matmul": {
        "a product": (T(OP.matmul(X, W), [1, 0]), ["permute_dims", "permute_dims", "matmul"]),
        "a product of a transpose": (T(OP.matmul(T(X), X), [1, 0]), ["permute_dims", "matmul"]),
    },
    "decompose_gelu": {"gelu": (OP.nn.gelu(X), ["multiply", "erf", "multiply", "add", "multiply"])},
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_pass_makes_and_that_numbers_stay(name):
    for case, (result, expected) in CASES[name].items():
        assert operators(passes(program(result), name)) == expected, case
    before = program(*(result for result, _ in CASES[name].values()))
    same(before, passes(before, name))


def test_what_nothing_applies_to_stays():
    product = OP.matmul(X, W)
    before = program(product, T(product, [1, 0]))
    assert operators(passes(before, "transpose_of_matmul")) == ["matmul", "permute_dims"]
    before = program(OP.tanh(X))
    names = "cse dce drop_zeros drop_ones transpose_dedup transpose_of_matmul decompose_gelu"
    for name in (*names.split(), "decompose_layer_norm", "decompose_batch_norm"):
        assert passes(before, name) is before


DTYPES = ["float64", "float32"]


def adapted():
    def layer(x, w, a, b, bias):
        return torch.tanh(x @ (w.t() + a @ b) + bias)

    return Fn(layer, (16, 16), (16, 2), (2, 16), (16,))


def parallel():
    def layers(x, *given):
        pairs = zip(given[:3], given[3:], strict=True)
        return tuple(F.linear(x, *pair).softmax(-1) for pair in pairs)

    return Fn(layers, (4, 8), (4, 8), (6, 8), (4,), (4,), (6,))


def counted(made, name):
    return sum(op_name(value) == name for _, value in bindings(made.main))


@pytest.mark.parametrize(("bound", "dtype"), combinations(["", "bind|"], DTYPES))
def test_an_adapter_is_taken_apart_for_less_work(bound, dtype):
    torch.manual_seed(0)
    model, before = imported(adapted(), torch.randn(2, 16), dtype=dtype)
    after = passes(before, f"{bound}expand_matmul_of_sum|adjust_matmul_order")
    assert counted(after, "matmul") == 3
    one, other = (sum(flops_of(to_graph(p)[0]).values()) for p in (after, before))
    assert one < other
    assert max(errors(model, after).values()) <= LIMITS[dtype][0]


def test_joined_weights_are_transposed_as_one():
    torch.manual_seed(0)
    model, before = imported(parallel(), torch.randn(3, 8), dtype="float64")
    assert counted(passes(before, "combine_matmul"), "permute_dims") == 3
    after = passes(before, "combine_matmul|reorder_permute_dims_after_concat")
    assert (counted(after, "permute_dims"), counted(after, "matmul")) == (1, 1)
    assert max(errors(model, after).values()) <= LIMITS["float64"][0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_fast_math_is_close_in_float32_and_exact_in_float64(dtype):
    torch.manual_seed(0)
    model, before = imported(parallel(), torch.randn(3, 8), dtype=dtype)
    after = passes(before, "fast_math")
    assert counted(after, "nn.softmax") == 0
    assert counted(after, "call_tir") == 3
    assert max(errors(model, after).values()) <= LIMITS[dtype][0]


def test_fast_math_has_no_gradient():
    _, before = imported(adapted(), torch.randn(2, 16), training=True)
    with pytest.raises(EngineError, match="gradient"):
        passes(before, "fast_math|root_grad_out|gradient")


def test_other_orders_compute_the_same():
    torch.manual_seed(0)
    model, before = imported(parallel(), torch.randn(3, 8), dtype="float64")
    kinds, texts = sorted(op_name(v) for _, v in bindings(before.main)), set()
    for order in ("depth-first", "breadth-first"):
        for direction in ("from-inputs", "from-outputs"):
            after = topological_sort(before, order, direction)
            assert sorted(op_name(v) for _, v in bindings(after.main)) == kinds
            if str(after.main) not in texts:
                assert max(errors(model, after).values()) <= LIMITS["float64"][0]
            texts.add(str(after.main))
    assert len(texts) > 1


def test_quantize_and_dequantize_are_kernels_that_compute_what_pytorch_does():
    new = Tensors("float32")
    scale, zero = relax.const(0.1, "float32"), relax.const(3, "int8")
    q = new.bind("q", relax.op.quantize(new.var("x", 4, 8), scale, zero, -1, "int8"))
    made = passes(new.program(relax.op.dequantize(q, scale, zero, -1, "float32")), "legalize")
    assert counted(made, "call_tir") == 2
    values = torch.randn(4, 8, generator=torch.Generator().manual_seed(0)) * 10
    ours = runtime.assemble(made, None, BuildOptions(QUICK)).forward({"x": values})[0][0]
    theirs = torch.fake_quantize_per_tensor_affine(values, 0.1, 3, -128, 127)
    limit = rounding("float32", 1, values.abs().max())
    torch.testing.assert_close(ours, theirs, rtol=0, atol=limit)


DRAWN = np.random.default_rng(7)


def const(dtype, *shape):
    values = DRAWN.standard_normal(shape) * 10
    return relax.const(values.astype(dtype), dtype)


def value(made):
    ((_, call),) = [(v, b) for v, b in bindings(made.main)]
    return call.args[1].value.numpy()


def tvms(before):
    mod = relax.transform.FoldConstant()(before.mod)
    return mod["main"].body.blocks[0].bindings[-1].value.args[1].value.numpy()


FOLDED = {
    "add": lambda d: const(d, 3, 5) + const(d, 5),
    "subtract": lambda d: const(d, 3, 1) - const(d, 3, 5),
    "multiply": lambda d: const(d, 3, 5) * const(d),
    "divide": lambda d: const(d, 3, 5) / const(d, 3, 5),
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
@pytest.mark.parametrize("case", FOLDED)
def test_folding_gives_the_bits_that_tvm_gives(case, dtype):
    made = FOLDED[case](dtype)
    new = Tensors(dtype)
    x = new.var("x", 3, 5)
    before = new.program(OP.add(x, made))
    ours = value(fold(before))
    theirs = tvms(before)
    assert ours.dtype == theirs.dtype == dtype
    np.testing.assert_array_equal(ours, theirs)


def test_whole_numbers_are_left_to_tvm():
    new = Tensors("int64")
    x = new.var("x", 3)
    over, under = (relax.const(np.array(v), "int64") for v in ([7, -7, 5], [2, 2, -3]))
    whole = OP.divide(over, under)
    before = new.program(OP.add(x, new.bind("folded", whole)))
    np.testing.assert_array_equal(value(fold(before)), tvms(before))


STEPS, added = FEW + 1, partial(reduce, add)


def step(*parts):
    """Of gradients, then states: products, sums over rows, and something else."""
    grads, states = parts[:STEPS], parts[STEPS:]
    products = [OP.matmul(OP.permute_dims(g), h) for g, h in zip(grads, states, strict=True)]
    other = OP.tanh(OP.matmul(OP.permute_dims(grads[0]), states[0]))
    return products, [OP.sum(g, [0]) for g in grads], other


def check_sums(results, wanted, counts):
    kinds = [([3, 5], "float32")] * STEPS + [([3, 2], "float32")] * STEPS
    before = module_of(lambda *parts: results(*step(*parts)), *kinds)
    after = str(merged(before))
    assert [after.count(f"R.{name}(") for name in ("matmul", "sum", "concat")] == counts
    torch.manual_seed(0)
    values = [torch.randn(shape) for shape, _ in kinds]
    grads, states = values[:STEPS], values[STEPS:]
    products = [g.T @ h for g, h in zip(grads, states, strict=True)]
    exact = wanted(products, [g.sum(0) for g in grads], products[0].tanh())
    for target in ("llvm", "llvm -libs=blas -schedules=relascope"):
        found = compiled(before, target)(*(v.numpy() for v in values))
        limit = close(rounding("float32", 3 * STEPS, 20))
        torch.testing.assert_close(torch.as_tensor(found), exact, **limit)


def test_many_are_one_and_few_or_of_another_shape_stay_apart():
    check_sums(lambda p, s, more: added([*p, more]), lambda p, s, more: sum(p) + more, [2, 0, 2])
    check_sums(lambda p, s, more: added(s), lambda p, s, more: sum(s), [0, 1, 1])
    few = FEW - 1
    check_sums(lambda p, s, more: added(p[:few]), lambda p, s, more: sum(p[:few]), [few, 0, 0])

    def read(products, sums, more):
        pairs = [(p.args[0].args[0], p.args[1]) for p in products]
        narrow = [(OP.strided_slice(g, [1], [0], [1]), h) for g, h in pairs]
        rows = [OP.matmul(OP.permute_dims(g), h) for g, h in narrow]
        return OP.add(added(products), added(rows))

    check_sums(read, lambda p, s, more: sum(p) + sum(x[:1] for x in p), [2, 0, 4])
