"""Values at the edges of what operators take: outputs and gradients are PyTorch's."""

from functools import partial, reduce
from itertools import product

import pytest
import torch
from torch.nn import functional as F

from gradients import Fn, quiet
from limits import ELEMENTWISE, close, rounding
from quick import ENGINE, QUICK
from relascope.core.errors import EngineError
from relascope.engine.in_process import LiveProgram, load_engine
from relascope.engine.protocol.source import ModelSource
from relascope.engine.pytorch.model import model_from_module


def program(function, inputs, target=None, training=True):
    names, source = [f"x{i}" for i in range(len(inputs))], ModelSource("own", training=training)
    model = model_from_module(Fn(function), tuple(names), inputs, source, quiet)
    return live_of(model, target), dict(zip(names, inputs, strict=True))


def live_of(model, target=QUICK):
    return LiveProgram(load_engine(ENGINE), model, ("min_cut", None), target)


def stepped(live, values, wanted, grad_outs):
    """The outputs, and the gradients of arguments by their names."""
    step = live.step(wanted)
    outputs, captures = step.forward(values)
    outs = dict(zip(step.grad_outs, grad_outs, strict=True))
    return outputs, step.backward({**values, **captures, **outs})


def backward(*about):
    return stepped(*about)[1]


def together(cases):
    """A table's functions as one, with inputs for each: a build costs more than an operator."""
    inputs = tuple(x.clone() for _, *given in cases.values() for x in given)

    def run(*inputs):
        left = iter(inputs)
        return tuple(f(*(next(left) for _ in given)) for f, *given in cases.values())

    return run, inputs


def forwards_agree(cases, target=None, limit=ELEMENTWISE):
    function, inputs = together(cases)
    live, values = program(function, inputs, target)
    results = live.forward(values), function(*inputs)
    ours, theirs = (dict(zip(cases, r, strict=True)) for r in results)
    torch.testing.assert_close(ours, theirs, equal_nan=True, **close(limit))
    return live, values


def forward_agrees(function, *inputs, target=None):
    return forwards_agree({"output": (function, *inputs)}, target)


def gradients_agree_of(cases, target=QUICK):
    """Outputs, and the gradient of every floating input of a table's functions, with those of
    outputs drawn.

    Built quickly: what is special of the kernels for this processor, `forwards_agree` shows."""
    function, inputs = together(cases)
    live, values = program(function, inputs, target)
    leaves = {n: v.clone().requires_grad_() for n, v in values.items() if v.is_floating_point()}
    outs = function(*{**values, **leaves}.values())
    weights = [torch.randn(o.shape, generator=torch.Generator().manual_seed(3)) for o in outs]
    torch.autograd.backward(outs, weights)
    outputs, found = stepped(live, values, leaves, weights)
    torch.testing.assert_close(outputs, tuple(outs), equal_nan=True, **close(ELEMENTWISE))
    owners = iter(name for name, (_, *given) in cases.items() for _ in given)
    owners = {name: (next(owners), name) for name in values}
    ours = {owners[n]: found[n] for n in leaves}
    theirs = {owners[n]: leaf.grad for n, leaf in leaves.items()}
    torch.testing.assert_close(ours, theirs, equal_nan=True, **close(ELEMENTWISE))


def gradients_agree(function, *inputs):
    gradients_agree_of({"function": (function, *inputs)})


def drawn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(5))


def spoiled(*shape):
    made = drawn(*shape)
    made.view(-1)[1::7] = torch.inf
    return made


STRANGE = torch.tensor([torch.nan, 1, torch.nan, 2, 0, -torch.inf, torch.inf, -3, 0.25, -0.0])
# NaN and infinity in maxima, minima, comparisons and reductions.
KEEPING = {
    "relu": F.relu,
    "relu6": F.relu6,
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "maximum": lambda x: torch.maximum(x.exp(), x.flip(0)),
    "minimum": lambda x: torch.minimum(x, x.flip(0)),
    "amax": lambda x: torch.stack([x, x * 2, -x.abs()]).amax(0),
    "amin": lambda x: torch.stack([x, x * 2, x.abs()]).amin(0),
    "max_pool": lambda x: F.max_pool2d(x.expand(1, 1, 4, -1), (2, 1)),
    "softmax": lambda x: torch.stack([x, x.clamp(-3, 3), -x], -1).softmax(-1),
    "ne": lambda x: x != x.flip(0),
    "eq": lambda x: x == x,
    "lt": lambda x: x < x.flip(0),
    "ge": lambda x: x >= 0,
    "bool": lambda x: x.bool(),
    "not lt": lambda x: (x < x.flip(0)).logical_not(),
    "times 0": lambda x: x * 0.0,
    "floor_divide": lambda x: x // x.flip(0),
    "fmod": lambda x: torch.fmod(x, x.flip(0)),
    "remainder": lambda x: x % x.flip(0),
    "cosh": lambda x: torch.stack([x.cosh(), x.asinh(), x.acosh()]),
    "sort": lambda x: x.sort()[0],
    "xlogy": lambda x: torch.xlogy(x, x.flip(0)),
    "minus itself": lambda x: torch.stack([x - x, (x + 1) - (x + 1)]),
    "minus its equal": lambda x: x.clamp(0, 1) - x.clamp(0, 1),
    "minus it turned": lambda x: x * x.flip(0) - x.flip(0) * x,
}


@pytest.mark.parametrize("target", [pytest.param(QUICK, marks=pytest.mark.exhaustive), None])
@pytest.mark.parametrize("length", [pytest.param(1, marks=pytest.mark.exhaustive), 10])
def test_nan_and_infinity_are_kept(length, target):
    forwards_agree({name: (f, STRANGE[:length]) for name, f in KEEPING.items()}, target)


@pytest.mark.parametrize("target", [QUICK, None])
def test_gradients_of_maxima_over_windows_go_where_pytorch_sends_them(target):
    image = torch.cat([STRANGE, drawn(10).round(), -torch.inf * torch.ones(10)]).repeat(15)
    windows = (2,), (3, 2, 1), ((3, 2), 1, (1, 0)), (2, 3)

    def pooled(dtype, how, x):
        return F.max_pool2d(x.view(1, 2, 15, 15).to(dtype), *how).float()

    each = product((torch.float32, torch.float64), windows)
    gradients_agree_of({str(e): (partial(pooled, *e), image) for e in each}, target)


OF_ROWS = [1, torch.nan, torch.inf, torch.nan], [torch.inf, -torch.inf, 2, 3], [-torch.inf] * 4
PLACED = torch.tensor([*OF_ROWS, [5, 1, 5, 0]])
PLACES = {  # of the first NaN, where there is one
    "argmax": (lambda x: x.argmax(1), PLACED),
    "argmin": (lambda x: x.argmin(1), PLACED),
    "max": (lambda x: x.max(1)[1], PLACED),
    "min": (lambda x: x.min(1)[1], PLACED),
}


def test_places_are_right_and_differences_computed_without_optimisation():
    x = torch.cat([STRANGE, torch.tensor([1e8])])
    differences = {"after": (lambda x: x + 1 - x, x), "before": (lambda x: x - (x + 1), x)}
    forwards_agree(PLACES | differences, QUICK)


def test_small_numbers_keep_their_digits():
    """Of which log(1 + x) has none."""
    x = torch.tensor([1e-9, -1e-9, 3e-5, -0.4, 0.7, 1.1, 20.0])
    cases = {f: (f, x - 20 if f is F.softplus else x) for f in (torch.log1p, F.softplus, F.mish)}
    live, values = program(*together(cases))
    for ours, (function, given) in zip(live.forward(values), cases.values(), strict=True):
        exact = function(given.double())
        assert ((ours - exact) / exact).abs().max() < rounding("float32", 4), function


NUMBERS = torch.tensor([1, -1, torch.inf, -torch.inf, torch.nan, 2.4, -2.4, 0, 5, 1])
DIVISORS = torch.tensor([0.1, 0.1, 2, 2, 1, torch.inf, -torch.inf, 3, 0, torch.nan])
QUOTIENTS = {
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "floor_divide": torch.floor_divide,
    "truncated": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "by 0": lambda x, y: x / 0 + x * 0.0,
}
SEEN = torch.tensor([[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]]).bool()  # a row sees no key
HIDDEN = torch.where(SEEN, drawn(3, 4), -torch.inf)
HEADS = tuple(drawn(2, 2, rows, 4) for rows in (3, 4, 4))


def repeated(function):
    """TVM writes out what each reads in those behind it, which would take minutes."""
    return lambda x: reduce(lambda y, _: function(y), range(9), x)


WHOLE, ORDERS = torch.tensor([7, -7, 5, 0]), torch.tensor([[0, 1, 2], [2, 0, 1]])
AT_EDGES = {
    **PLACES,
    **{name: (f, NUMBERS, DIVISORS) for name, f in QUOTIENTS.items()},
    **{f"{n}, turned": (f, NUMBERS.flip(0), DIVISORS) for n, f in QUOTIENTS.items()},
    "remainder by 0.1": (lambda x: torch.remainder(x, 0.1) + x // 0.1, drawn(20)),
    "remainder by 3": (lambda x: x // 2 + x % 3, WHOLE),
    "truncated by 2": (lambda x: x.div(2, rounding_mode="trunc"), WHOLE),
    "truncated, large": (QUOTIENTS["truncated"], 2**24 + WHOLE, torch.tensor([-1, 3, 1, -2])),
    "tanh of tanh": (repeated(torch.tanh), drawn(20)),
    "erf of erf": (repeated(torch.erf), drawn(20)),
    "log of log": (repeated(lambda x: torch.log(x * x + 1)), drawn(20)),
    "largest of nothing": (lambda x: x.amax(0), torch.full((5, 3), -torch.inf)),
    "smallest of nothing": (lambda x: x.amin(0), torch.full((5, 3), torch.inf)),
    "cummax of bools": (lambda x: torch.cummax(x > 0, 0)[1], drawn(7, 3)),
    "cummin of bools": (lambda x: torch.cummin(x > 0, 0)[1], drawn(7, 3)),
    "cummax": (lambda x: torch.cummax(x, 0)[1], STRANGE),
    "keys hidden by numbers": (F.scaled_dot_product_attention, *HEADS, HIDDEN),
    "a number like itself": (lambda x: torch.where(x == x, x, 2.0), STRANGE),
    "no remainder": (lambda x, y, z: x - torch.trunc(y / z) * z, drawn(5), drawn(5) * 9, drawn(5)),
    "cdist": (lambda x: torch.cdist(x, x.flip(0), 0.0), STRANGE.reshape(5, 2)),
    "clamp at 0": (lambda x: x.clamp(min=0), STRANGE),
    "linspace": (lambda x: x + torch.linspace(0, 1, 7), drawn(7)),
    "logcumsumexp": (lambda x: x.logcumsumexp(0), torch.tensor([1e4, 2, 1e4])),
    "logit": (torch.logit, drawn(5).sigmoid()),
    "lgamma": (torch.lgamma, torch.tensor([True, False])),
    "scatter": (lambda x, i: x.scatter(-1, i, x * 2).scatter_add(-1, i, x), drawn(2, 3), ORDERS),
    "searchsorted": (torch.searchsorted, torch.tensor([3.0, 1, 2, 5, -1]), STRANGE),
    "safe softmax": (lambda x: torch.ops.aten._safe_softmax(x, 0), STRANGE),
}


def test_values_at_edges():
    forwards_agree(AT_EDGES)


DOUBLE = {
    "angle": (torch.angle, drawn(5)),
    "atan2": (torch.atan2, drawn(7), drawn(7).flip(0)),
    "affine grid": (lambda x: F.affine_grid(x, (2, 1, 3, 4), True), drawn(2, 2, 3)),
    "expm1": (torch.expm1, torch.tensor([-30.0, -1, 0.5, 1, 21, 30])),
    "group norm": (lambda x: F.group_norm(x, 2, eps=0.3), drawn(2, 4, 5)),
    "instance norm": (lambda x: F.instance_norm(x, eps=0.3), drawn(2, 4, 5)),
    "layer norm": (lambda x: F.layer_norm(x, (5,), eps=0.3), drawn(3, 5)),
    "root": (lambda x: x**-0.5, STRANGE),
}


def test_no_step_in_float64_is_rounded_to_float32():
    cases = {n: (f, *(t.double() for t in given)) for n, (f, *given) in DOUBLE.items()}
    forwards_agree(cases, limit=rounding("float64", 8))


# Gradients: ten elements, for which PyTorch takes its scalar code.
SLOPES = {
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "clamp": lambda x: x.clamp(-0.5, 1),
    "elu": F.elu,
    "celu": F.celu,
    "selu": F.selu,
    "softplus": lambda x: F.softplus(x, 3, 0.2),
    "softshrink": F.softshrink,
    "threshold": lambda x: F.threshold(x, 0.5, 2.0),
    "max": lambda x: x.max(),
    "min": lambda x: x.min(),
    "amax": lambda x: x.amax(),
    "maximum": lambda x: torch.maximum(x, NUMBERS),
    "minimum": lambda x: torch.minimum(NUMBERS, x),
    "huber": lambda x: F.huber_loss(x, NUMBERS, reduction="none", delta=0.5),
    "smooth_l1": lambda x: F.smooth_l1_loss(x, NUMBERS, reduction="none"),
    "whole": lambda x: x - x.long().float() * x.round(),
}
MARGINS = torch.tensor([[1, torch.nan, torch.inf, 2], [1, 0, -1, 3], [2.5, 1.5, 0.5, 0]])
LABELS = torch.tensor([0, 3, 1]), torch.tensor([[0, 2, -1, 1], [3, -1, 0, 0], [0, 1, 2, 3]])
LOSSES = F.multi_margin_loss, F.multilabel_margin_loss
IMAGE = drawn(1, 2, 5, 6)
IMAGE[0, 0, 1, 2] = torch.inf


def larger(**how):
    return lambda x: F.interpolate(x, mode="bilinear", **how)


@pytest.mark.parametrize("target", [QUICK, pytest.param(None, marks=pytest.mark.exhaustive)])
def test_slopes_at_edges(target):
    cases = {n: (f, drawn(6) * 3 if n == "whole" else STRANGE) for n, f in SLOPES.items()}
    cases |= {
        f"{loss.__name__}, {reduction}": (partial(loss, reduction=reduction), MARGINS, labels)
        for loss, labels in zip(LOSSES, LABELS, strict=True)
        for reduction in ("mean", "none")
    }
    cases["pixels of a size"] = larger(size=(7, 6)), IMAGE
    cases["pixels by a factor"] = larger(scale_factor=1.7), IMAGE
    gradients_agree_of(cases, target)


def of_layer_norm(x):
    """The mean that it returns has no gradient."""
    made, mean, _ = torch.native_layer_norm(x, (6,), None, None, 1e-5)
    return made + mean


def of_norm_and_statistics(x):
    return sum(t.sum() for t in torch.native_layer_norm(x, (3,), None, None, 0.5))


NAN, INF = float("nan"), float("inf")
LABELS_THAT_ARE_NOT = torch.tensor([0, 2, -100]), torch.tensor([1.0, INF, 2.0])
TAKEN = torch.tensor([32, 33, 51, 49, 30, 8, 80, 23]).reshape(1, 2, 1, 2, 2)
ROWS, SIGNS = drawn(4, 3), torch.tensor([1, 0, -INF])
TURNED = spoiled(1, 3, 4, 4), drawn(3, 3, 3, 3)
GRADIENTS_AT_EDGES = {
    "root of nothing": (lambda x: (x * SIGNS).sqrt(), ROWS),
    "native_layer_norm": (of_norm_and_statistics, ROWS),
    "safe softmax": (lambda x: torch.ops.aten._safe_softmax(x.where(x > x[:, :1], -INF), 1), ROWS),
    "truncated": (lambda x: x + torch.div(x, x.relu(), rounding_mode="trunc"), ROWS),
    "hidden keys": (F.scaled_dot_product_attention, *HEADS, SEEN),
    "the mean of a layer norm": (of_layer_norm, drawn(4, 6)),
    "a label that is not there may weigh without limit": (
        lambda x: F.cross_entropy(x, *LABELS_THAT_ARE_NOT, reduction="sum"),
        drawn(3, 3),
    ),
    "permutation of no axes": (lambda x: x.permute(()) * 2.0, torch.tensor(3.0)),
    "blocks on a diagonal": (torch.block_diag, drawn(2, 3), drawn(4), drawn(1, 2)),
    "cummin": (lambda x: torch.cummin(x, 0)[0], ROWS),
    "what a max pool took": (
        lambda x: F.max_unpool3d(x, TAKEN, 3, 2, output_size=(3, 6, 5)),
        drawn(1, 2, 1, 2, 2),
    ),
    "padded in a circle": (lambda x: F.pad(x, (0, 2, 0, 1), mode="circular"), drawn(1, 2, 5, 4)),
    # Of infinite data, the gradient of the weight.
    "transposed": (lambda x, w: F.conv_transpose2d(x, w, None, 2, 2, 1), *TURNED),
}


def test_gradients_at_edges():
    gradients_agree_of(GRADIENTS_AT_EDGES)


STEEP = {
    "atan2": (torch.atan2, [0.0, 1.0, 3.0], [-0.5, 0.0, -0.0]),
    "clamp": (lambda x, low: torch.clamp(x, min=low), [NAN, 1.0, 2.0], [0.0, 1.0, 3.0]),
    "cosh": (torch.cosh, [0.01, -1e3, 3.0]),
    "distance": (lambda x, y: torch.cdist(x, y, 1.5), [[0.0, 2.0]], [[0.0, 2.0], [1.0, 5.0]]),
    "elu": (  # whose slope at -9 is 1e-4
        lambda x: 1e4 * torch.stack([F.elu(x), F.celu(x), F.selu(x)]),
        [-9.0, -1.0, -1e-6, 2.0],
    ),
    "erfc": (torch.erfc, [NAN, 1.0]),
    "likelihood": (lambda x, v: F.gaussian_nll_loss(x, 2 * x, v), [1.0, 2, 3], [NAN, 1e-9, 2]),
    "logsigmoid": (lambda x, y: y * F.logsigmoid(x), [1.0, -1.0], [INF, -INF]),
    "logsumexp": (lambda x: x.logsumexp(1), [[INF, 1.0], [2.0, 3.0]]),
    "norm": (lambda x: torch.linalg.vector_norm(x, 2, 1), [[0.0, 0.0], [1.0, 2.0]]),
    "norm of order 6": (lambda x: torch.linalg.vector_norm(x, 6), 0.0),
    "largest": (lambda x: torch.linalg.vector_norm(x, INF, 1), [[NAN, 1.0], [-3.0, 2.0]]),
    "sampling of places that are none": (
        lambda x, grid: F.grid_sample(x, grid, align_corners=False),
        [[[[NAN, 1.0, 2.0], [3.0, 4.0, 5.0]]]],
        [[[[NAN, -1.0], [0.3, 0.7], [INF, 0.1], [-3.0, 0.0]]]],
    ),
    "sinc": (torch.sinc, [0.0, 1.0]),
    "softplus": (lambda x: F.softplus(x, beta=3, threshold=0.2), -8.8),
}


def test_gradients_where_a_step_of_the_way_has_none():
    gradients_agree_of({n: (f, *map(torch.tensor, given)) for n, (f, *given) in STEEP.items()})


ENDLESS = torch.tensor([2.0, INF, 5.0, -INF]), torch.tensor([-INF, 2.0, 3.0, 1.0])


def test_gradients_of_logarithms_times_anything_and_of_what_is_endless():
    values = torch.tensor([0.0, -0.0, 1.0, -1.0, -2.5, 0.5, INF, -INF, NAN])
    pairs = torch.cartesian_prod(values, values).T.contiguous()
    logs = {"xlogy": torch.xlogy, "xlog1py": torch.special.xlog1py}
    cases = {name: (f, *pairs) for name, f in logs.items()}
    cases |= {"atan2": (torch.atan2, *ENDLESS), "remainder": (torch.remainder, *ENDLESS)}
    gradients_agree_of(cases, None)  # where products are fused with sums
    numbers = {n: (f, *torch.tensor([0.5, 0.7])) for n, f in logs.items()}
    for name, f in logs.items():
        numbers[f"{name}, hidden"] = (lambda x, y, f=f: f(x, y).where(x > 3, x), *pairs)
    gradients_agree_of(numbers)


INDEX = torch.tensor([0, 0, 1])
NOT_OURS = {
    "clamp": lambda x: x.clamp(x - 1, x + 1),
    "lgamma": torch.lgamma,
    "norm": lambda x: x.norm(0.5),
    "scatter_reduce": lambda x: x.scatter_reduce(0, INDEX, x, "amax", include_self=False),
}


@pytest.mark.parametrize("name", NOT_OURS)
def test_gradients_that_would_not_be_pytorchs_are_refused(name):
    live, values = forward_agrees(NOT_OURS[name], torch.tensor([0.3, 1.5, 2.5]))
    with pytest.raises(EngineError, match="would differ from PyTorch's") as caught:
        live.step(values)
    assert name in caught.value.message and name in caught.value.where


# Convolutions with weights that are not finite: zeros around what they read are no factors.
CONVOLUTIONS = {
    "1d": lambda x, w: F.conv_transpose1d(x[..., 0], w[..., 0], None, 2, 1, 1),
    "2d": lambda x, w: F.conv_transpose2d(x, w, None, (2, 1), 1, groups=2),
    "2d, dilated": lambda x, w: F.conv_transpose2d(x, w, None, 2, 1, 1, 1, (2, 3)),
    "data of a strided one": lambda x, w: F.conv2d(x, w, None, 2, 1, groups=1),
    "data of a dilated one": lambda x, w: F.conv1d(x[..., 0], w[..., 0], None, 1, 2, 2),
}


def test_a_convolution_of_infinite_weights():
    inputs = drawn(1, 4, 5, 5), spoiled(4, 4, 3, 3)
    gradients_agree_of({name: (f, *inputs) for name, f in CONVOLUTIONS.items()}, None)


def test_a_transposed_convolution_of_infinite_weights():
    def volume(x, w):
        return F.conv_transpose3d(x[..., None], w[..., None], None, (2, 1, 3), (1, 1, 0))

    inputs = drawn(2, 4, 3, 4), spoiled(4, 2, 3, 2)
    cases = {name: CONVOLUTIONS.get(name, volume) for name in ("1d", "2d", "2d, dilated", "3d")}
    forwards_agree({name: (f, *inputs) for name, f in cases.items()})


def test_a_dilated_transposed_convolution_without_a_library():
    inputs = drawn(1, 4, 4, 3), drawn(4, 2, 3, 3)
    forward_agrees(CONVOLUTIONS["2d, dilated"], *inputs, target="llvm")
