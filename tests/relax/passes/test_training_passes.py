"""Each pass that rewrites training programs, on programs as small as what it is for."""

import pytest
import torch
from torch import nn
from tvm import relax

from gradients import draw, imported, passes, runtime
from limits import LIMITS, POINTWISE, close, rounding
from quick import QUICK
from relascope.engine.building.options import BuildOptions
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.ir.rewrite import bindings, op_name

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
    step = runtime.assemble(made, None, BuildOptions(QUICK))
    return step.forward(values)[0]


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
        "minus a broadcast zero": (
            OP.tanh(OP.subtract(X, OP.broadcast_to(number(0.0), (1, 3)))),
            ["tanh"],
        ),
        "a zero that broadcasts stays": (
            OP.add(ROW, OP.zeros((2, 3), "float64")),
            ["zeros", "add"],
        ),
        "zero minus stays": (OP.subtract(number(0.0), X), ["subtract"]),
    },
    "drop_ones": {
        "ones": (OP.tanh(OP.multiply(OP.ones((2, 3), "float64"), X)), ["tanh"]),
        "over one": (OP.tanh(OP.divide(X, number(1.0))), ["tanh"]),
        "one over stays": (OP.divide(number(1.0), X), ["divide"]),
        "a one that broadcasts stays": (
            OP.multiply(ROW, OP.ones((2, 3), "float64")),
            ["ones", "multiply"],
        ),
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
        "a product of a transpose": (
            T(OP.matmul(T(X, [1, 0]), X), [1, 0]),
            ["permute_dims", "matmul"],
        ),
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
    names = "drop_zeros drop_ones transpose_dedup transpose_of_matmul decompose_gelu"
    for name in (*names.split(), "decompose_layer_norm", "decompose_batch_norm"):
        assert passes(before, name) is before


@pytest.mark.parametrize(
    ("module", "name", "size"),
    [
        (nn.LayerNorm((3, 4)), "decompose_layer_norm", (2, 3, 4)),
        (nn.LayerNorm(4, elementwise_affine=False), "decompose_layer_norm", (2, 3, 4)),
        (nn.GroupNorm(2, 4), "decompose_layer_norm", (2, 4, 3, 3)),
        (nn.InstanceNorm2d(4, affine=True), "decompose_layer_norm", (2, 4, 3, 3)),
        (nn.BatchNorm2d(4), "decompose_batch_norm", (2, 4, 3, 3)),
        (nn.GELU("tanh"), "decompose_gelu", (2, 3)),
    ],
)
def test_what_is_spelled_out_is_what_it_was(module, name, size):
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    for key, buffer in module.named_buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 2) if "var" in key else buffer.normal_()
    model, before = imported(module, draw(*size), dtype="float64")
    after = passes(before, name)
    spelled = ("gelu", "gelu_tanh", "layer_norm", "group_norm", "instance_norm", "batch_norm")
    assert not {f"nn.{name}" for name in spelled} & set(operators(after))
    assert operators(after) != operators(before)
    step = runtime.assemble(after, None, BuildOptions(QUICK))
    values = dict(zip(model.input_names, model.inputs, strict=True))
    (ours,), _ = step.forward({**values, **model.parameters, **model.buffers})
    torch.testing.assert_close(ours, model.forward()[0], **close(LIMITS["float64"][0]))
