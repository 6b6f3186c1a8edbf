"""What is written out for a trace, and compositions of operators, against PyTorch."""

import math
from functools import partial
from unittest.mock import patch

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from limits import ELEMENTWISE, GRADIENT, POINTWISE, close, rounding
from relascope.engine.protocol.session import silent
from relascope.engine.protocol.source import ModelSource
from relascope.engine.pytorch import watch
from relascope.engine.pytorch.attention import attention
from relascope.engine.pytorch.draws import COMPOSED
from relascope.engine.pytorch.model import model_from_module
from relascope.engine.pytorch.operators import along_axes
from relascope.engine.pytorch.operators.compositions import compositions
from relascope.engine.pytorch.operators.forms import in_form
from traces import Parts

aten = torch.ops.aten
ANY = [-math.inf, -30.0, -2.5, -1.0, -0.75, -0.0, 0.0, 1e-4, 0.5, 1.0, 2.0, 7.5, 30.0, math.inf]
PAIRS = torch.cartesian_prod(torch.tensor([*ANY, math.nan]), torch.tensor([*ANY, math.nan])).T
MATRIX = torch.arange(24.0).reshape(4, 6) / 7
SQUARE = MATRIX[:, :4]
WAVES = torch.tensor([[1, 3, 3, math.nan, 0, 5], [2, 0, -1, -1, 0, 2], [0, 7, 7, 7, 1, 0], [1] * 6])
CUBE = torch.arange(48.0).reshape(2, 4, 6) / 7

ONE = [aten.exp2.default, aten.expm1.default, aten.asinh.default, aten.erfc.default]
ONE += [aten.acosh.default, aten.atanh.default, aten.lgamma.default, aten.angle.default]
TWO = [aten.fmax.default, aten.fmin.default, aten.hypot.default, aten.atan2.default]
TWO += [aten.copysign.Tensor]
PARTS = [
    (aten.diagonal_scatter.default, (MATRIX, torch.ones(3), -1)),
    (aten.as_strided_scatter.default, (MATRIX, torch.ones(2, 3), [2, 3], [6, 2], 1)),
    (aten.unfold.default, (CUBE, 1, 2, 1)),
    (aten.put.default, (MATRIX, torch.tensor([0, 5]), torch.ones(2), True)),
    (aten.index_reduce.default, (MATRIX, 1, torch.tensor([0, 0]), MATRIX[:, 4:] + 1, "amax")),
    (aten.var_mean.correction, (MATRIX, [1])),
    (aten._cdist_forward.default, (MATRIX, MATRIX + 1, 2.0, None)),
    (aten._trilinear.default, (SQUARE, SQUARE, SQUARE, [0], [1], [2], [1])),
    (aten.addbmm.default, (torch.ones(4, 4), CUBE, CUBE.mT)),
    (aten.linalg_solve_triangular.default, (SQUARE + 2, CUBE[:, :, :3]), {"upper": True}),
    (
        aten.linalg_solve_triangular.default,
        (SQUARE.mT, CUBE[:, :3, :4]),
        {"upper": False, "left": False, "unitriangular": True},
    ),
    (aten.cummax.default, (WAVES, 1)),
    (aten.cummin.default, (WAVES, 0)),
    (aten.cumprod.default, (MATRIX, 1)),
    (aten.logcumsumexp.default, (MATRIX, 0)),
    (aten.sort.stable, (WAVES,), {"stable": True, "descending": True}),
    (aten.kthvalue.default, (CUBE, 2, 1)),
    (aten.max.dim, (WAVES, 1)),
    (aten.min.dim, (WAVES, 0, True)),
    (aten.median.dim, (WAVES, 1)),
    (aten.nanmedian.dim, (WAVES, 0)),
    (aten.index_reduce.default, (MATRIX, 0, torch.tensor([1, 3, 1]), MATRIX[:3], "mean")),
    (aten.take.default, (MATRIX, torch.tensor([[3, -1], [0, 5]]))),
    (aten.searchsorted.Tensor, (MATRIX, WAVES)),
    (aten.masked_scatter.default, (MATRIX, MATRIX > 1, CUBE)),
    (aten.round.decimals, (MATRIX * 100,), {"decimals": -1}),
    (aten.heaviside.default, (WAVES, MATRIX)),
    (aten.max_pool2d_with_indices.default, (CUBE, [3, 2], [2, 2], [1, 1], [1, 2], True)),
    (aten.max_pool3d_with_indices.default, (CUBE[None], [2, 2, 2])),
    (aten.adaptive_max_pool2d.default, (CUBE, [3, 4])),
    (aten.copysign.Scalar, (MATRIX, -0.0)),
    (aten.copysign.Scalar, (-MATRIX, 2.0)),
    (aten.div.Tensor_mode, (MATRIX, MATRIX + 1), {"rounding_mode": None}),
    (aten.smooth_l1_loss.default, (MATRIX, MATRIX + 1, 2, 0.0)),
    (aten.soft_margin_loss.default, (MATRIX, MATRIX - 1)),
    (aten.linalg_vector_norm.default, (WAVES[1:], 0)),
    (aten.linalg_vector_norm.default, (MATRIX, 1, [0], True)),
    (aten.upsample_bilinear2d.vec, (CUBE[None], None, False, [1.5, 2.0])),
    (aten.upsample_bilinear2d.vec, (CUBE[None], [7, 1], True, None)),
    (aten.upsample_bicubic2d.vec, (CUBE[None], None, False, [1.5, 0.7])),
    (aten._upsample_bicubic2d_aa.vec, (CUBE[None], [3, 2], False, None)),
    (aten._upsample_bilinear2d_aa.default, (CUBE[None], [2, 11], True, 0.6, 1.9)),
    (aten.as_strided.default, (MATRIX.T, [3, 2], [5, 4], 1)),
    (aten.native_dropout_backward.default, (MATRIX, MATRIX > 1, 2.0)),
    (aten.unfold.default, (torch.tensor(2.0), 0, 1, 1)),
    (aten.histc.default, (MATRIX, 5, 0.5, 2.5)),
    *((aten.pad.default, (CUBE, a, "circular")) for a in ([0, 2, 1, 1], [-1, 3, 2, -1], [-2, -1])),
]


def alike(ours, theirs):
    torch.testing.assert_close(ours, theirs, equal_nan=True, rtol=ELEMENTWISE, atol=1e-30)


@pytest.mark.parametrize("op", [*ONE, *TWO, aten.signbit.default], ids=str)
def test_values_are_pytorchs_with_nan_and_infinity(op):
    for dtype in (torch.float32, torch.float64):
        given = PAIRS.to(dtype) if op in TWO else PAIRS[:1].to(dtype)
        ours, theirs = compositions()[op](*given), op(*given)
        assert ours.dtype == theirs.dtype
        if op is aten.lgamma.default:
            torch.testing.assert_close(ours, theirs, equal_nan=True, **close(ELEMENTWISE))
        else:
            alike(ours, theirs)


@pytest.mark.parametrize("op", [o for o in (*ONE, *TWO) if o != aten.angle.default], ids=str)
def test_gradients_are_pytorchs(op):
    found = []
    for function in (compositions()[op], op):
        given = [p.clone() for p in (PAIRS if op in TWO else PAIRS[:1])]
        for leaf in given:
            leaf[leaf.isinf() | leaf.isnan()] = 0.3
            leaf.requires_grad_()
        function(*given).nan_to_num(0, 0, 0).sum().backward()
        found.append([torch.zeros(()) if x.grad is None else x.grad for x in given])
    for ours, theirs in zip(*found, strict=True):
        kept = theirs.isfinite()
        torch.testing.assert_close(ours.expand_as(kept)[kept], theirs[kept], **close(ELEMENTWISE))


def test_rows_are_multiplied_by_the_matrix_of_their_group():
    product, ends = compositions()[aten._grouped_mm.default], torch.tensor([1, 3]).int()
    weights = torch.arange(48.0).reshape(2, 6, 4)
    wanted = torch.cat([MATRIX[:1] @ weights[0], MATRIX[1:3] @ weights[1], torch.zeros(1, 4)])
    alike(product(MATRIX, weights, ends), wanted)
    alike(product(CUBE, weights), CUBE @ weights)
    for given in ((MATRIX, weights, ends, MATRIX), (MATRIX, MATRIX.T, ends)):
        with pytest.raises(NotImplementedError):
            product(*given)


def test_the_gradient_of_a_softmax():
    given = MATRIX, MATRIX.softmax(1), 1, torch.float32
    op = aten._softmax_backward_data.default
    torch.testing.assert_close(compositions()[op](*given), op(*given))


def test_forms_that_are_not_composed():
    table, part = compositions(), MATRIX[1:]
    assert table[aten.as_strided_scatter.default](part, part, [3, 6], [6, 1]) is NotImplemented
    assert table[aten.as_strided.default](part, [2], [1]) is NotImplemented
    assert table[aten.upsample_linear1d.default](MATRIX[None].long(), [3], False) is NotImplemented
    with pytest.raises(NotImplementedError, match="its limits depend on values"):
        table[aten.histc.default](MATRIX)


@pytest.mark.parametrize("most", [0, 1000])
def test_running_extremes_by_scan_and_by_comparing(most, monkeypatch):
    monkeypatch.setattr(along_axes, "_MOST_COMPARED", most)
    for op in (aten.cummax.default, aten.cummin.default):
        for given in (WAVES, torch.full([3], -math.inf), WAVES > 1, MATRIX.long()):
            alike(compositions()[op](given, 0), op(given, 0))


PLACES = torch.tensor([[0, 1, 2, 0, 0, 3], [2, 0, 0, 1, 1, 3]])
TWICE = [torch.tensor([1, -1, 1]), torch.tensor([0, 2, 0])]
FORMS = [
    (aten.topk.default, (MATRIX, 2, 1, True, False)),
    (aten.mul.Tensor, (WAVES, 0.0)),
    (aten.mul.Tensor, (torch.tensor(0.0), WAVES)),
    (aten.div.Tensor, (WAVES, -0.0)),
    (aten.add.Tensor, (WAVES, MATRIX), {"alpha": 0.5}),
    (aten.sub.Scalar, (MATRIX.long(), 2, 3)),
    (aten.pow.Tensor_Scalar, (WAVES, -0.5)),
    (aten.linear.default, (MATRIX[0], MATRIX[1])),
    (aten.cat.default, ([MATRIX], 1)),
    (aten.rrelu.default, (MATRIX - 1, 0.2, 0.6)),
    (aten.index.Tensor, (CUBE, [None, *TWICE])),
    (aten.index.Tensor, (CUBE, [TWICE[1][:, None] % 2, None, TWICE[0]])),
    (aten.index_put.default, (MATRIX, TWICE, MATRIX[0, :3], True)),
    (aten.index_put.default, (CUBE, [None, TWICE[0]], CUBE[:, :3])),
    (aten.index_put.default, (CUBE, [TWICE[1] % 2, None, TWICE[0]], MATRIX.T[:3])),
    (aten.index_put.default, (MATRIX, [MATRIX > 1], torch.tensor(2.0))),
    (aten.index_put.default, (MATRIX > 1, TWICE, MATRIX[0, :3] > 0, True)),
    *(
        (aten.scatter_reduce.two, (x, 0, PLACES, x[:3], how), {"include_self": how == "mean"})
        for x in (MATRIX, MATRIX.long())
        for how in ("sum", "mean", "prod", "amax", "amin")
    ),
    (aten.scatter_reduce.two, (MATRIX > 1, 0, PLACES, MATRIX[:2] > 0, "sum")),
    (aten.cumsum.default, (torch.tensor(2.0), 0)),
    (aten.sort.default, (torch.tensor(2.0),)),
    (aten.upsample_nearest2d.vec, (CUBE[None], None, [1.7, 0.6])),
]


@pytest.mark.parametrize(
    ("way", "case"),
    [*((compositions().get, c) for c in PARTS), *((in_form, c) for c in FORMS)],
    ids=lambda given: str(given[0]) if isinstance(given, tuple) else "",
)
def test_parts_and_forms_are_pytorchs(way, case):
    op, given, *options = case
    options = options[0] if options else {}
    made, theirs = way(op)(*given, **options), op(*given, **options)
    pairs = (m if isinstance(m, tuple) else (m,) for m in (made, theirs))
    for ours, wanted in zip(*pairs, strict=True):
        alike(ours, wanted)


IMAGE = torch.arange(140.0).reshape(2, 2, 5, 7).sin()
VOLUME = torch.arange(120.0).reshape(1, 2, 3, 4, 5).sin()
SAMPLED = [(IMAGE, mode, padding) for mode, padding in ((0, 0), (0, 1), (0, 2), (1, 0))]
SAMPLED += [(VOLUME, 0, 0), (VOLUME, 1, 0)]


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize(("image", "mode", "padding"), SAMPLED)
def test_sampling_has_pytorchs_values_and_gradients(image, mode, padding, aligned):
    axes = image.dim() - 2
    op = aten.grid_sampler_2d.default if axes == 2 else aten.grid_sampler_3d.default
    drawn = torch.randn(len(image), *range(8, 8 + axes), axes, generator=torch.manual_seed(0)) * 1.3
    image, grid = image.clone(), drawn.clone()
    for strange in (False, True):
        if strange:
            image.view(-1)[::9], image.view(-1)[4::13] = math.nan, math.inf
        found = []
        for function in (op, compositions()[op]):
            leaves = image.clone().requires_grad_(), grid.clone().requires_grad_()
            made = function(*leaves, mode, padding, aligned)
            weights = torch.linspace(-1, 1, made.numel()).reshape(made.shape)
            slopes = torch.autograd.grad(made, leaves, weights, allow_unused=True)
            pairs = zip(leaves, slopes, strict=True)
            slopes = [torch.zeros_like(a) if s is None else s for a, s in pairs]
            found.append((made.detach(), *slopes))
        for ours, theirs in zip(found[1], found[0], strict=True):
            torch.testing.assert_close(ours, theirs, equal_nan=True, **close(GRADIENT))


@pytest.mark.parametrize(
    ("name", "places", "exact"),
    [
        ("erfc", (-3.0, -0.2, 0.0, 0.7, 5.0, 20.0, 40.0), torch.erfc),
        ("lgamma", (-2.5, -1e-6, 1e-6, 0.3, 1.5, 30.0), torch.lgamma),
        ("cosh", (-2.0, -1e-6, 1e-6, 3.0), torch.cosh),
    ],
)
def test_a_composition_keeps_the_digits_of_float64(name, places, exact):
    made = compositions()[getattr(aten, name).default]
    x = torch.tensor(places, dtype=torch.float64)
    torch.testing.assert_close(made(x), exact(x), **close(rounding("float64", POINTWISE)))


def test_the_gradient_of_sinc_keeps_its_digits_near_0():
    x = torch.tensor([1e-6, -1e-6, 0.0], dtype=torch.float64, requires_grad=True)
    found = torch.autograd.grad(compositions()[aten.sinc.default](x).sum(), x)[0]
    exact = -(math.pi**2) * x.detach() / 3
    torch.testing.assert_close(found, exact, rtol=math.pi**2 * 1e-12, atol=0)


WHOLE = F.scaled_dot_product_attention


def seeded(run):
    torch.manual_seed(3)
    return run()


@pytest.mark.parametrize(
    ("ours", "theirs", "shape"),
    [
        ("feature_dropout", F.dropout1d, (2, 5, 7)),
        ("feature_dropout", F.dropout2d, (2, 5, 3, 4)),
        ("feature_dropout", F.dropout3d, (2, 5, 2, 3, 4)),
        ("alpha_dropout", F.alpha_dropout, (40, 5)),
        ("feature_alpha_dropout", F.feature_alpha_dropout, (2, 5, 7)),
    ],
)
@pytest.mark.parametrize(
    ("rate", "training"), [(0.4, True), (0.4, False), (0.0, True), (1.0, True)]
)
def test_what_drops_whole_features_or_by_alpha_draws_the_same(ours, theirs, shape, rate, training):
    x = torch.randn(shape)
    written = COMPOSED[f"{ours}.default"]
    one, other = (seeded(partial(f, x, rate, training)) for f in (written, theirs))
    torch.testing.assert_close(one, other)


MASKS = {
    "none": None,
    "booleans": torch.rand(4, 6) > 0.4,
    "numbers": torch.randn(4, 6),
    "all hidden": torch.zeros(4, 6, dtype=torch.bool),
}


@pytest.mark.parametrize(
    ("mask", "more"),
    [
        *((m, more) for m in MASKS for more in ({}, {"scale": 0.3}, {"enable_gqa": True})),
        ("none", {"is_causal": True}),
    ],
)
def test_attention_that_drops_is_that_of_pytorch_where_nothing_is_dropped(mask, more):
    torch.manual_seed(0)
    query = torch.randn(2, 4, 4, 8)
    key, value = (torch.randn(2, 2 if "enable_gqa" in more else 4, 6, 8) for _ in range(2))
    theirs = WHOLE(query, key, value, MASKS[mask], **more)
    with patch.object(torch, "dropout", lambda x, rate, train: x):
        ours = attention(query, key, value, MASKS[mask], 0.5, **more)
    torch.testing.assert_close(ours, theirs, **close(ELEMENTWISE))


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("var", [0.5, torch.rand(3), torch.rand(3, 4) * 1e-5])
def test_a_bounded_variance_has_the_same_loss_and_gradient(full, reduction, var):
    data, target = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4)
    given = var.clone().requires_grad_() if isinstance(var, torch.Tensor) else var
    both = watch._gaussian_nll, F.gaussian_nll_loss
    losses = [loss(data, target, given, full=full, reduction=reduction) for loss in both]
    torch.testing.assert_close(*losses)
    if isinstance(given, torch.Tensor):
        mine, theirs = (torch.autograd.grad(loss.sum(), given)[0] for loss in losses)
        torch.testing.assert_close(mine, theirs, **close(GRADIENT))


def filled(x, fill):
    made = torch.zeros(3)
    fill(made, x[0])
    return x * float(made.sum())


READS = {
    "item": lambda m, x: x * x.sum().item(),
    "item of a parameter": lambda m, x: x * m.scale.sum().item(),
    "float": lambda m, x: x * float(x.sum()),
    "int of a buffer": lambda m, x: x * int(m.mean.sum()),
    "bool": lambda m, x: x * 2 if x.sum() > 0 else x,
    "index": lambda m, x: x * range(9)[x.sum().long() % 9],
    "tolist": lambda m, x: x * sum(x[0].tolist()),
    "contains": lambda m, x: x * (3 in x),
    "equal": lambda m, x: x * torch.equal(x, x.flip(0)),
    "float of what was filled": lambda m, x: filled(x, torch.Tensor.copy_),
    "float of what was written": lambda m, x: filled(x, lambda made, row: made[:].add_(row)),
    "float of what is out": lambda m, x: filled(x, lambda made, row: torch.add(row, 1, out=made)),
    "local_scalar_dense": lambda m, x: x * torch.ops.aten._local_scalar_dense.default(x.sum()),
}
FIXED = {
    "shapes": lambda m, x: x.reshape(int(x.shape[0]) * x.size(1)) * len(x) * float(x.numel()),
    "constants": lambda m, x: x * torch.arange(3).max().item() + float(torch.tensor(2.0)),
    "decided by a shape": lambda m, x: x * 2 if x.shape[0] * 3 > x.numel() - 1 else x,
}


def read(run):
    reading = Parts(run, scale=nn.Parameter(torch.ones(3)), mean=torch.ones(3))
    module, source = nn.Sequential(reading), ModelSource("own")
    return model_from_module(module, ("x",), (torch.rand(2, 3),), source, silent)


@pytest.mark.parametrize("name", READS)
def test_a_value_that_is_read_out_of_a_tensor_is_named_with_its_line(name):
    model = read(READS[name])
    assert len(model.reads) == 1
    assert model.reads[0] in model.notes
    assert model.reads[0].startswith(f"{name.partition(' ')[0]}() in 0 (test_compositions.py:")


@pytest.mark.parametrize("name", FIXED)
def test_what_depends_on_no_value_is_not_named_and_a_line_once(name):
    assert not read(FIXED[name]).reads
    assert len(read(lambda m, x: sum(x * x[i, 0].item() for i in range(2))).reads) == 1
