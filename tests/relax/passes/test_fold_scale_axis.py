"""Products with one number a channel, folded into weights: what goes, what stays, and numbers."""

import numpy as np
import pytest
import torch
from torch import nn
from tvm import relax

from answers import quiet
from image_parts import PARTS, part
from limits import LIMITS
from quick import QUICK, combinations
from relascope.core.graph import Kind
from relascope.core.identity import carry_identity
from relascope.engine.building.options import BuildOptions
from relascope.engine.protocol.source import ModelSource
from relascope.engine.pytorch.model import load_model
from relascope.engine.relax.frontend.importer import import_model
from relascope.passes.relax.examples.building import Tensors
from relascope.passes.relax.ir.origins import imported_order
from relascope.passes.relax.ir.rewrite import bindings, op_name
from relascope.viz.compare.origins import How, origins
from relax_modules import LIMIT, errors, imported
from training import ENGINE, passes

OP = relax.op
NN = relax.op.nn
DRAWN = np.random.default_rng(3)
D = "float64"
TARGET = f"{QUICK} -libs=blas"  # builds no convolutions, which takes longest


def const(*size, least=-1.5):
    return relax.const(DRAWN.uniform(least, 1.5, size), D)


def positive(*size):
    return const(*size, least=0.5)


def operators(made):
    """Names of the operators between inputs and outputs, and not those between weights."""
    data, found = {str(p.name) for p in made.main.params if str(p.name) not in made.params}, []
    for variable, value in bindings(made.main):
        read = [a for a in getattr(value, "args", ()) if isinstance(a, relax.Var)]
        if any(str(a.name) in data for a in read) or not op_name(value):
            data.add(str(variable.name))
            found += [op_name(value)] if op_name(value) else []
    return found


def run(made, seed=0):
    generator = torch.Generator().manual_seed(seed)
    values = {
        str(p.name): torch.randn(
            [int(d) for d in p.ty.shape.values], generator=generator, dtype=torch.float64
        )
        for p in made.main.params
    }
    return ENGINE.runtime.step(made, None, BuildOptions(TARGET)).forward(values)[0]


def same(before, after):
    for a, b in zip(run(before), run(after), strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a, b, rtol=0, atol=LIMITS["float64"][0] * float(b.abs().max()))


def image(body, channels=4, weights=()):
    """A program of x (1, channels, 6, 6), and of parameters by name and shape."""
    new = Tensors(D)
    x = new.var("x", 1, channels, 6, 6)
    return new.program(body(x, **{name: new.weight(name, *size) for name, size in weights}))


def rows(body, width=4):
    new = Tensors(D)
    return new.program(body(new.var("x", 3, width)))


def conv(data, *weight, **attrs):
    return NN.conv2d(data, const(*(weight or (5, 4, 3, 3))), padding=1, **attrs)


def padded(data, *widths, **attrs):
    return NN.pad(data, [0, 0, *widths], **attrs)


def turned(data, *weight, **attrs):
    """A convolution of an image whose channels are last."""
    weight = const(3, 3, *weight)
    return NN.conv2d(data, weight, data_layout="NHWC", kernel_layout="HWIO", **attrs)


def channels_last(x):
    return OP.permute_dims(x, [0, 2, 3, 1])


def means(x):
    return OP.mean(x, [0, 2, 3], keepdims=True)


def both(data, of, to):
    """Two readers of one value."""
    return of(data) + to(data)


CONV, BIAS = "nn.conv2d", "add"

# The program, and what is left of the way from its input to its output.
BACKWARD = {
    "a factor": (lambda x: conv(x) * const(5, 1, 1), [CONV]),
    "a factor in front": (lambda x: const(1, 5, 1, 1) * conv(x), [CONV]),
    "a divisor": (lambda x: conv(x) / positive(5, 1, 1), [CONV]),
    "a number": (lambda x: conv(x) * const(), [CONV]),
    "a number in four axes": (lambda x: conv(x) * const(1, 1, 1, 1), [CONV]),
    "behind a bias": (lambda x: (conv(x) + const(5, 1, 1)) * const(5, 1, 1), [CONV, BIAS]),
    "behind a bias of every element": (
        lambda x: (const(1, 5, 6, 6) - conv(x)) * const(5, 1, 1),
        [CONV, "subtract"],
    ),
    "a batch norm": (
        lambda x: (
            (conv(x) - const(1, 5, 1, 1)) / positive(1, 5, 1, 1) * const(1, 5, 1, 1)
            + const(1, 5, 1, 1)
        ),
        [CONV, "subtract", BIAS],
    ),
    "behind relu, above zero": (lambda x: NN.relu(conv(x)) * positive(5, 1, 1), [CONV, "nn.relu"]),
    "behind relu, below zero": (
        lambda x: NN.relu(conv(x)) * const(5, 1, 1),
        [CONV, "nn.relu", "multiply"],
    ),
    "behind leaky relu": (
        lambda x: NN.leakyrelu(conv(x), 0.2) * positive(5, 1, 1),
        [CONV, "nn.leakyrelu"],
    ),
    "behind maxima": (
        lambda x: NN.max_pool2d(conv(x), (3, 3), padding=(1, 1)) * positive(5, 1, 1),
        [CONV, "nn.max_pool2d"],
    ),
    "behind maxima, below zero": (
        lambda x: NN.max_pool2d(conv(x), (2, 2)) * const(5, 1, 1),
        [CONV, "nn.max_pool2d", "multiply"],
    ),
    "behind means": (
        lambda x: NN.avg_pool2d(conv(x), (2, 2)) * const(5, 1, 1),
        [CONV, "nn.avg_pool2d"],
    ),
    "behind means of all": (
        lambda x: NN.adaptive_avg_pool2d(conv(x), (1, 1)) * const(5, 1, 1),
        [CONV, "nn.adaptive_avg_pool2d"],
    ),
    "behind clip": (
        lambda x: OP.clip(conv(x), 0, 6) * positive(5, 1, 1),
        [CONV, "clip", "multiply"],
    ),
    "behind padding with zeros": (
        lambda x: padded(conv(x), 0, 0, 1, 1, 1, 1) * const(5, 1, 1),
        [CONV, "nn.pad"],
    ),
    "behind padding with ones": (
        lambda x: padded(conv(x), 0, 0, 1, 1, 1, 1, pad_value=1.0) * const(5, 1, 1),
        [CONV, "nn.pad", "multiply"],
    ),
    "behind padding of channels": (
        lambda x: padded(conv(x), 1, 1, 0, 0, 0, 0) * const(7, 1, 1),
        [CONV, "nn.pad", "multiply"],
    ),
    "behind a transpose": (lambda x: channels_last(conv(x)) * const(5), [CONV, "permute_dims"]),
    "along another axis": (lambda x: conv(x) * const(6), [CONV, "multiply"]),
    "of every element": (lambda x: conv(x) * const(5, 6, 6), [CONV, "multiply"]),
    "that broadcasts": (lambda x: conv(x) * const(2, 5, 1, 1), [CONV, "multiply"]),
    "of data": (lambda x: conv(x) * means(conv(x)), [CONV, CONV, "mean", "multiply"]),
    "divided by the result": (lambda x: const(5, 1, 1) / conv(x), [CONV, "divide"]),
    "of a result that is read again": (
        lambda x: conv(x) * const(5, 1, 1) + NN.relu(conv(x)),
        [CONV, CONV, "nn.relu", BIAS],
    ),
    "of a sum of two": (lambda x: (conv(x) + conv(x)) * const(5, 1, 1), [CONV, CONV, BIAS]),
    "of a sum of which one has no weight": (
        lambda x: (conv(x, 4, 4, 3, 3) + x) * const(4, 1, 1),
        [CONV, BIAS, "multiply"],
    ),
    "two groups": (lambda x: conv(x, 6, 2, 3, 3, groups=2) * const(6, 1, 1), [CONV]),
    "each channel by itself": (lambda x: conv(x, 4, 1, 3, 3, groups=4) * const(4, 1, 1), [CONV]),
    "other layouts": (lambda x: turned(channels_last(x), 4, 5) * const(5), ["permute_dims", CONV]),
}

FORWARD = {
    "a factor": (lambda x: conv(x * const(4, 1, 1)), [CONV]),
    "a divisor": (lambda x: conv(x / positive(4, 1, 1)), [CONV]),
    "a number": (lambda x: conv(const() * x), [CONV]),
    "two readers": (lambda x: both(x * const(4, 1, 1), conv, conv), [CONV, CONV, BIAS]),
    "one reader that cannot": (
        lambda x: both(x * const(4, 1, 1), lambda a: conv(a, 4, 4, 3, 3), lambda a: a),
        ["multiply", CONV, BIAS],
    ),
    "before relu, above zero": (lambda x: conv(NN.relu(x * positive(4, 1, 1))), ["nn.relu", CONV]),
    "before relu, below zero": (
        lambda x: conv(NN.relu(x * const(4, 1, 1))),
        ["multiply", "nn.relu", CONV],
    ),
    "a batch norm and relu": (
        lambda x: conv(
            NN.relu(
                (x - const(1, 4, 1, 1)) / positive(1, 4, 1, 1) * positive(1, 4, 1, 1)
                + const(1, 4, 1, 1)
            )
        ),
        ["subtract", BIAS, "nn.relu", CONV],
    ),
    "before a bias, with a zero": (
        lambda x: conv(
            x * relax.const(np.array([1.0, 0, 2, 3]).reshape(4, 1, 1), D) + const(4, 1, 1)
        ),
        ["multiply", BIAS, CONV],
    ),
    "before means, maxima and padding": (
        lambda x: conv(
            padded(
                NN.max_pool2d(NN.avg_pool2d(x * positive(4, 1, 1), (2, 2)), (2, 2)),
                *(0, 0, 2, 2, 2, 2),
            )
        ),
        ["nn.avg_pool2d", "nn.max_pool2d", "nn.pad", CONV],
    ),
    "two groups": (lambda x: conv(x * const(4, 1, 1), 6, 2, 3, 3, groups=2), [CONV]),
    "each channel by itself": (lambda x: conv(x * const(4, 1, 1), 8, 1, 3, 3, groups=4), [CONV]),
    "two groups in another layout": (
        lambda x: turned(channels_last(x) * const(4), 2, 6, groups=2),
        ["permute_dims", CONV],
    ),
    "of data": (lambda x: conv(x * means(x)), ["mean", "multiply", CONV]),
    "that is a result": (lambda x: x * const(4, 1, 1), ["multiply"]),
}


CASES = {"backward_fold_scale_axis": BACKWARD, "forward_fold_scale_axis": FORWARD}


@pytest.mark.parametrize(("name", "case"), [(n, c) for n, cases in CASES.items() for c in cases])
def test_what_is_folded_and_what_stays(name, case):
    body, expected = CASES[name][case]
    before = image(body)
    after = passes(before, name)
    assert operators(after) == expected
    assert (after is before) == (operators(before) == expected)


@pytest.mark.parametrize("name", CASES)
def test_numbers_stay(name):
    # All of them in one program, which is built once before and once after the pass.
    cases = CASES[name].values()
    before = image(lambda x: relax.Tuple([body(x) for body, _ in cases]))
    after = passes(before, name)
    assert sorted(operators(after)) == sorted(op for _, expected in cases for op in expected)
    same(before, after)


def test_a_product_takes_its_scales():
    for name, body in (
        ("backward_fold_scale_axis", lambda x: (OP.matmul(x, const(4, 6)) + const(6)) * const(6)),
        ("forward_fold_scale_axis", lambda x: OP.matmul(x * positive(4) + const(4), const(4, 6))),
    ):
        before = rows(body)
        after = passes(before, name)
        assert sorted(operators(after)) == ["add", "matmul"]
        same(before, after)


def test_weights_that_are_arguments_are_scaled_where_they_are_used():
    def body(x, w, s):
        return NN.conv2d(x, w) * OP.expand_dims(s, [1, 2])  # bound after the convolution

    before = image(body, weights=[("w", (5, 4, 3, 3)), ("s", (5,))])
    after = passes(before, "backward_fold_scale_axis")
    assert operators(after) == [CONV]
    same(before, after)


def test_both_ways_and_then_what_is_constant():
    before = image(lambda x: conv(x / positive(4, 1, 1)) * const(5, 1, 1))
    after = passes(before, "fold_scale_axis")
    assert [n for _, v in bindings(after.main) if (n := op_name(v))] == [CONV]
    same(before, after)


def test_what_nothing_applies_to_comes_back_as_it_is():
    plain = image(lambda x: NN.relu(conv(x)))
    read_twice = image(lambda x: both(conv(x), lambda a: a * const(5, 1, 1), lambda a: a))
    # A scale that is an argument does not go through relu: it may be below zero.
    given = [("w", (5, 4, 3, 3)), ("s", (5, 1, 1))]
    of_argument = image(lambda x, w, s: NN.relu(NN.conv2d(x, w)) * s, weights=given)
    for name, programs in {
        "backward_fold_scale_axis": (plain, read_twice, of_argument),
        "forward_fold_scale_axis": (plain,),
        "fold_scale_axis": (plain,),
        "combine_conv2d": (plain,),
    }.items():
        assert all(passes(program, name) is program for program in programs)


class Normed(nn.Module):
    """Batch norms on either side of convolutions, in one, two and three dimensions."""

    def __init__(self, rank):
        super().__init__()
        convolution = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[rank - 1]
        norm = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[rank - 1]
        self.steps = nn.Sequential(
            norm(4),
            convolution(4, 6, 3, padding=1),
            norm(6),
            nn.ReLU(),
            convolution(6, 6, 3, groups=3),
            norm(6),
        )
        for module in self.steps:
            if hasattr(module, "running_var"):
                module.running_var.uniform_(0.5, 2)
                module.running_mean.normal_()
                nn.init.normal_(module.weight)
                nn.init.normal_(module.bias)

    def forward(self, x):
        return self.steps(x)


@pytest.mark.parametrize(("rank", "dtype"), combinations([1, 2, 3], list(LIMIT)))
def test_batch_norms_around_convolutions_agree_with_pytorch(rank, dtype):
    torch.manual_seed(0)
    model, made = imported(Normed(rank), torch.randn(2, 4, *[6] * rank), dtype=dtype)
    after = passes(made, "bind|decompose_inference|fold|fold_scale_axis")
    assert not {"multiply", "divide"} & set(operators(after))
    assert max(errors(model, after, TARGET).values()) <= LIMIT[dtype]


def test_a_scale_says_into_which_constant_it_went():
    torch.manual_seed(0)
    _, made = imported(Normed(2), torch.randn(2, 4, 6, 6))
    before = passes(made, "bind|decompose_inference|fold")
    old = ENGINE.to_graph(before)[0]
    matched = carry_identity(old, ENGINE.to_graph(passes(before, "fold_scale_axis"))[0])
    gone = [o for o in origins(old, matched) if o.what == "removed"]
    scales = [o for o in gone if old.by_id[o.id].op in ("multiply", "divide")]
    behind = [o for o in scales if o.how is How.FOLDED]  # of the two norms behind convolutions
    assert (len(scales), len(behind)) == (6, 4)
    assert {matched.graph.by_id[i].kind for o in behind for i in o.nodes} == {Kind.CONSTANT}
    assert all(o.nodes or o.how is How.DEAD for o in gone)


def folded(model):
    made = import_model(model, quiet)
    after = passes(made, "bind|decompose_inference|fold|fold_scale_axis")
    assert not {"multiply", "divide"} & set(operators(after))
    assert operators(after).count(CONV) == operators(made).count(CONV) > 0
    return after


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        # Of parts, the numbers are compared in both types below.
        pytest.param("resnet", "float64", marks=pytest.mark.exhaustive),
        ("mobilenet_v2", "float32"),
        pytest.param("super_resolution", "float32", marks=pytest.mark.exhaustive),
        pytest.param("super_resolution", "float64", marks=pytest.mark.exhaustive),
    ],
)
def test_no_product_stays_behind_the_convolutions_of_a_sample(name, dtype):
    model = load_model(ModelSource(name, dtype=dtype), quiet)
    after = folded(model)
    if name == "super_resolution":  # the one that is built quickly
        assert max(errors(model, after, TARGET).values()) <= LIMIT[dtype]


@pytest.mark.parametrize(("name", "dtype"), combinations(list(PARTS), list(LIMIT)))
def test_a_part_of_a_sample_agrees_with_pytorch(name, dtype):
    module, image = part(PARTS[name])
    model, _ = imported(module, image, dtype=dtype)
    assert max(errors(model, folded(model), TARGET).values()) <= LIMIT[dtype]


def test_what_takes_a_scale_is_no_longer_called_pytorchs_own():
    """Or a right convolution would be held against one without the scale, and called wrong."""
    torch.manual_seed(1)
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    nn.init.uniform_(module[1].weight, 0.5, 1.5)
    _, made = imported(module, torch.randn(1, 3, 8, 8))
    folded = passes(made, "bind|decompose_inference|fold|fold_scale_axis")
    orders = {op_name(v): imported_order(folded, n) for n, v in bindings(folded.main) if op_name(v)}
    assert orders["nn.conv2d"] < 0
    assert orders["nn.relu"] > 0
