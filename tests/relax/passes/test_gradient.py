"""The way to the gradient: every operator's gradient against PyTorch's autograd."""

import pytest

pytest.register_assert_rewrite("joint_programs")

import torch
import tvm
from torch import nn
from torch.nn import functional as F
from tvm import relax

from answers import refused
from gradients import Fn, Many, bert_layer, compare, draw
from joint_programs import *  # noqa: F403
from joint_programs import sample_in_train_mode_agrees
from limits import LIMITS, close
from quick import combinations
from relascope.core.errors import EngineError
from relascope.core.graph import Kind
from relascope.engine.protocol.source import ModelSource
from relascope.engine.pytorch.model import model_from_module
from relascope.engine.relax.frontend.importer import import_model
from relascope.passes.relax.ir.program import RelaxProgram
from training import ENGINE, imported, joint, passes, step

KINKS = torch.tensor([[-3.0, -1.0, -0.5, 0.0], [0.5, 1.0, 3.0, 6.0]], dtype=torch.float64)
TIES = torch.tensor([[2.0, -1.0, 2.0, 0.5], [1.0, 1.0, 1.0, 1.0]], dtype=torch.float64)
IMAGE = (2, 4, 8, 9)
PLACES = torch.tensor([[0, 0], [3, 1], [2, 2]])
ONLY_FLOAT32 = {"hardsigmoid"}  # whose gradient takes a sixth in float32 in PyTorch itself


def positive(*size):
    return draw(*size).abs() + 0.5


def chosen(*places):
    return torch.tensor(places)


def conv(size=IMAGE, kernel=(6, 4, 3, 3), bias=False, **settings):
    """A 2D convolution of a drawn image."""

    def run(x, weight, *rest):
        return F.conv2d(x, weight, *rest, **settings)

    return run, (draw(*size), kernel, *([(kernel[0],)] if bias else []))


GROUPS = {
    "products": {
        "2D": (lambda x, w: x @ w, (draw(3, 4), (4, 5))),
        "3D by 2D": (lambda x, w: x @ w, (draw(2, 3, 4), (4, 5))),
        "4D by 2D": (lambda x, w: x @ w, (draw(2, 2, 3, 4), (4, 5))),
        "2D by 3D": (lambda x, w: x @ w, (draw(3, 4), (2, 4, 5))),
        "3D by 3D": (lambda x, w: x @ w, (draw(2, 3, 4), (2, 4, 5))),
        "4D by 3D": (lambda x, w: x @ w, (draw(2, 3, 3, 4), (3, 4, 5))),
        "broadcast batches": (lambda x, w: x @ w, (draw(2, 1, 3, 4), (1, 3, 4, 5))),
        "vectors": (lambda x, w: x @ w, (draw(4), (4,))),
        "vector by matrix": (lambda x, w: x @ w, (draw(4), (4, 5))),
        "vector by batch": (lambda x, w: x @ w, (draw(4), (2, 4, 5))),
        "matrix by vector": (lambda x, w: x @ w, (draw(3, 4), (4,))),
        "batch by vector": (lambda x, w: x @ w, (draw(2, 3, 4), (4,))),
        "linear": (F.linear, (draw(2, 3, 4), (5, 4), (5,))),
        "linear of a vector": (F.linear, (draw(4), (5, 4), (5,))),
        "addmm": (
            lambda x, w, v: torch.addmm(x, w, v, beta=0.5, alpha=2),
            (draw(3, 5), (3, 4), (4, 5)),
        ),
        "baddbmm": (torch.baddbmm, (draw(2, 3, 5), (2, 3, 4), (2, 4, 5))),
        "einsum": (lambda x, w: torch.einsum("bij,bkj->bik", x, w), (draw(2, 3, 4), (2, 5, 4))),
        "einsum with a sum": (
            lambda x, w: torch.einsum("bij,kl->bk", x, w),
            (draw(2, 3, 4), (5, 3)),
        ),
        "attention": (
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
            (draw(1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4)),
        ),
    },
    "kinks and ties": {
        "relu": (F.relu, (KINKS,)),
        "relu6": (F.relu6, (KINKS,)),
        "hardtanh": (F.hardtanh, (KINKS,)),
        "clamp": (lambda x: x.clamp(-0.5, 0.5), (KINKS,)),
        "clamp below": (lambda x: x.clamp(min=0.5), (KINKS,)),
        "clamp above": (lambda x: x.clamp(max=0.5), (KINKS,)),
        "leaky relu": (lambda x: F.leaky_relu(x, 0.2), (KINKS,)),
        "abs": (torch.abs, (KINKS,)),
        "hardswish": (F.hardswish, (KINKS,)),
        "hardsigmoid": (F.hardsigmoid, (KINKS,)),
        "elu": (lambda x: F.elu(x * 2, 0.7), (KINKS,)),
        "celu and selu": (lambda x: F.celu(x, 0.5) + F.selu(x), (KINKS,)),
        "amax": (lambda x: x.amax(1), (TIES,)),
        "amin": (lambda x: x.amin((0, 1), keepdim=True), (TIES,)),
        "max": (lambda x: x.max(), (TIES,)),
        "maximum": (lambda x, w: torch.maximum(x, w[:, :1] * 0 + 1), (TIES, (2, 4))),
        "minimum": (lambda x, w: torch.minimum(x, x.flip(1)) * w, (TIES, (1, 4))),
        "maximum, broadcast": (torch.maximum, (draw(2, 3, 4), (3, 1))),
        "where": (lambda x, w: torch.where(x > 0, w, x * w), (KINKS, (1, 4))),
        "masked_fill": (lambda x: x.masked_fill(x > 0.5, -1.0).exp(), (KINKS,)),
        "floor and sign": (lambda x: x * torch.floor(x) + torch.sign(x) * x, (KINKS * 1.3,)),
    },
    "one by one": {
        "gelu": (F.gelu, (draw(3, 4),)),
        "gelu by tanh": (lambda x: F.gelu(x, approximate="tanh"), (draw(3, 4),)),
        "erf": (torch.erf, (draw(3, 4),)),
        "silu": (F.silu, (draw(3, 4),)),
        "softplus": (lambda x: F.softplus(x, beta=2.0), (draw(3, 4),)),
        "tanh": (torch.tanh, (draw(3, 4),)),
        "sigmoid": (torch.sigmoid, (draw(3, 4),)),
        "logsigmoid": (F.logsigmoid, (draw(3, 4),)),
        "rsqrt": (torch.rsqrt, (positive(3, 4),)),
        "sqrt": (torch.sqrt, (positive(3, 4),)),
        "hyperbolic": (lambda x: torch.sinh(x) * torch.cosh(x), (draw(3, 4),)),
        "arcs": (
            lambda x: torch.asin(x) * torch.atan(x) + torch.acos(x) * torch.tan(x),
            (draw(3, 4) / 4,),
        ),
        "hyperbolic arcs": (
            lambda x: torch.asinh(x) * torch.atanh(x / 4) + torch.acosh(x * x + 1.5),
            (draw(3, 4),),
        ),
        "square": (torch.square, (draw(3, 4),)),
        "reciprocal": (torch.reciprocal, (positive(3, 4),)),
        "exp and log": (lambda x: torch.exp(x) * torch.log(x), (positive(3, 4),)),
        "sin and cos": (lambda x: torch.sin(x) * torch.cos(x), (draw(3, 4),)),
        "power of a tensor": (lambda x, w: (x * x + 1) ** w, (draw(3, 4), (3, 4))),
        "powers of numbers": (lambda x: x**3 + x**2 + (x * x + 1) ** 0.5, (draw(3, 4),)),
        "base of a number": (lambda x: 2.0**x, (draw(3, 4),)),
        "arithmetic": (lambda x, w: (x + 2 * w - x / (w * w + 1)) * -x, (draw(3, 4), (4,))),
        "subtract from a number": (lambda x: 1 - x * (3 / (x * x + 1)), (draw(3, 4),)),
        "casts": (lambda x: (x.float() * 2).double().to(x.dtype).tanh(), (draw(3, 4),)),
        "addcmul": (lambda x, w: torch.addcmul(x, x, w, value=0.3), (draw(3, 4), (4,))),
        "lerp": (lambda x, w: torch.lerp(x, w, 0.3), (draw(3, 4), (3, 4))),
    },
    "views and places": {
        "slice with a step": (lambda x: x[:, 1::3] * x[:, ::3][:, :2], (draw(2, 6),)),
        "slice from behind": (lambda x: x[-2:, -3:-1], (draw(4, 5),)),
        "slice of two axes with steps": (lambda x: x[::2, 1:8:3].tanh(), (draw(5, 9),)),
        "slice beyond the end": (lambda x: x[1:100].tanh(), (draw(4, 5),)),
        "one place": (lambda x: x[1] * x[-1], (draw(3, 4),)),
        "pad": (lambda x: F.pad(x, (1, 2, 0, 1), value=3.0).cos(), (draw(2, 3, 4),)),
        "squeeze": (lambda x: x.squeeze(1).tanh() + x.squeeze().sin(), (draw(3, 1, 4),)),
        "unsqueeze": (lambda x: x[:, None] * x[None], (draw(3, 3),)),
        "flatten": (lambda x: x.flatten(1).tanh(), (draw(2, 3, 4),)),
        "permute": (lambda x: x.permute(2, 0, 1).tanh(), (draw(2, 3, 4),)),
        "expand": (lambda x, w: w.expand(2, 3, 4) * x, (draw(2, 3, 4), (3, 1))),
        "stack": (lambda x, w: torch.stack([x, w * x, x], -1).tanh(), (draw(2, 3), (2, 3))),
        "cat of one": (lambda x: torch.cat([x], 1).tanh(), (draw(2, 3),)),
        "stack of one": (lambda x: torch.stack([x], 1).tanh(), (draw(2, 3),)),
        "cat": (lambda x, w: torch.cat([x, w, x], 1).tanh(), (draw(2, 3), (2, 2))),
        "split": (
            lambda x: x.split([1, 3, 2], 1)[0].tanh() * x.split([1, 3, 2], 1)[1],
            (draw(2, 6),),
        ),
        "chunk": (lambda x: x.chunk(3, -1)[1] * x.chunk(3, -1)[2], (draw(2, 6),)),
        "unbind": (lambda x: x.unbind(0)[0] * x.unbind(0)[2], (draw(3, 4),)),
        "repeat": (lambda x: x.repeat(2, 1, 3).tanh(), (draw(2, 4),)),
        "repeat_interleave": (lambda x: x.repeat_interleave(3, 1).tanh(), (draw(2, 4),)),
        "tile": (lambda x: x.tile((2, 1)).tanh(), (draw(2, 4),)),
        "flip": (lambda x: x.flip(0, 2).tanh(), (draw(2, 3, 4),)),
        "roll": (lambda x: x.roll(1, 1).tanh() * x, (draw(2, 4),)),
        "gather": (lambda x: x.gather(1, chosen([0, 0], [2, 1])) ** 2, (draw(2, 3),)),
        "embedding": (
            lambda x, w: F.embedding(chosen([0, 3, 3], [1, 0, 0]), w) * x,
            (draw(2, 3, 4), (5, 4)),
        ),
        "index_select": (lambda x: x.index_select(1, chosen(2, 0, 2)).sin(), (draw(2, 3, 4),)),
        "select": (lambda x: x.select(1, 2).sin() * x.select(-2, 0), (draw(2, 3, 4),)),
        "index": (lambda x: x[chosen(0, 0, 3)] * 2.0, (draw(4, 3),)),
        "two indices": (lambda x: x[chosen(0, 0, 3), chosen(1, 1, 2)] * 2.0, (draw(4, 3),)),
        "indices from behind": (
            lambda x: x[chosen([0], [-1]), chosen(-2, 1)].sin(),
            (draw(4, 3, 2),),
        ),
        "index in the middle": (lambda x: x[:, chosen(2, 0, 2)].sin(), (draw(2, 3, 4),)),
        "2D index": (lambda x: x[chosen([0, 3], [1, 0])].sin(), (draw(4, 3),)),
        "tril": (lambda x: torch.tril(x).exp() * torch.triu(x, 1), (draw(3, 3),)),
        "cumsum": (lambda x: torch.cumsum(x, 1).sin(), (draw(2, 5),)),
        "cumsum along the first": (lambda x: torch.cumsum(x, 0).sin(), (draw(4, 2),)),
    },
    "rows": {
        "softmax": (lambda x: F.softmax(x, 1), (draw(2, 3, 4),)),
        "log_softmax": (lambda x: F.log_softmax(x, -1), (draw(2, 3, 4),)),
        "layer norm": (lambda x, w, b: F.layer_norm(x, (4,), w, b, 1e-3), (draw(3, 4), (4,), (4,))),
        "layer norm over two axes": (
            lambda x, w, b: F.layer_norm(x, (3, 4), w, b),
            (draw(2, 3, 4), (3, 4), (3, 4)),
        ),
        "layer norm without weights": (lambda x: F.layer_norm(x, (4,)).tanh(), (draw(3, 4),)),
        "rms norm": (
            lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w,
            (draw(3, 4), (4,)),
        ),
        "group norm": (lambda x, w, b: F.group_norm(x, 2, w, b), (draw(2, 4, 3, 3), (4,), (4,))),
        "instance norm": (
            lambda x, w, b: F.instance_norm(x, None, None, w, b),
            (draw(2, 4, 3, 3), (4,), (4,)),
        ),
        "mean": (lambda x: x.mean((0, 2)).tanh() + x.mean(), (draw(2, 3, 4),)),
        "sum": (lambda x: x.sum(1, keepdim=True).tanh() * x.sum(), (draw(2, 3, 4),)),
        "var": (lambda x: x.var(1), (draw(2, 5),)),
        "var, biased": (lambda x: x.var((0, 1), unbiased=False), (draw(2, 5),)),
        "std": (lambda x: torch.std(x, 1, correction=1), (draw(2, 5),)),
        "logsumexp": (lambda x: torch.logsumexp(x, 1), (draw(2, 5),)),
        "norm": (lambda x: torch.linalg.vector_norm(x, dim=1), (draw(2, 5),)),
        "cross entropy": (lambda x: F.cross_entropy(x, chosen(1, 0, 3)), (draw(3, 4),)),
        "mse": (F.mse_loss, (draw(3, 4), (3, 4))),
    },
    "images": {
        "convolution": conv(bias=True, padding=1),
        "strides": conv(kernel=(6, 4, 3, 2), stride=(2, 3), padding=(2, 1)),
        "rows left over by the stride": conv(stride=3),
        "dilation": conv(dilation=2),
        "dilation, stride and padding": conv(dilation=(2, 1), stride=2, padding=(1, 2)),
        "groups": conv(kernel=(6, 2, 3, 3), groups=2, padding=1),
        "depthwise": conv(kernel=(4, 1, 3, 3), groups=4, stride=2, padding=1, bias=True),
        "depthwise, two for one": conv(kernel=(8, 1, 3, 3), groups=4),
        "1 by 1": conv(kernel=(6, 4, 1, 1)),
        "1 by 1 with a stride": conv(kernel=(6, 4, 1, 1), stride=2),
        "as large as the image": conv(kernel=(3, 4, 8, 9)),
        "1D": (
            lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1),
            (draw(2, 4, 9), (6, 4, 3), (6,)),
        ),
        "1D with groups and dilation": (
            lambda x, w: F.conv1d(x, w, groups=2, dilation=2),
            (draw(2, 4, 9), (6, 2, 3)),
        ),
    },
    "pools": {
        "max pool": (lambda x: F.max_pool2d(x, 3, 2, 1).tanh(), (draw(*IMAGE),)),
        "max pool, even": (lambda x: F.max_pool2d(x, 2).tanh(), (draw(*IMAGE),)),
        "max pool, to the end": (
            lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True).tanh(),
            (draw(*IMAGE),),
        ),
        "average pool": (lambda x: F.avg_pool2d(x, 3, 2, 1).tanh(), (draw(*IMAGE),)),
        "average pool without the padding": (
            lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False).tanh(),
            (draw(*IMAGE),),
        ),
        "average pool, to the end": (
            lambda x: F.avg_pool2d(x, (2, 1), (2, 1), ceil_mode=True).tanh(),
            (draw(1, 2, 7, 4),),
        ),
        "adaptive": (lambda x: F.adaptive_avg_pool2d(x, (2, 3)).tanh(), (draw(2, 4, 8, 9),)),
        "adaptive to one": (lambda x: F.adaptive_avg_pool2d(x, 1).tanh(), (draw(*IMAGE),)),
        "nearest": (lambda x: F.interpolate(x, scale_factor=2).tanh(), (draw(2, 2, 3, 4),)),
        "pixel shuffle": (lambda x: F.pixel_shuffle(x, 2).tanh(), (draw(1, 8, 2, 3),)),
        "adaptive, overlapping": (lambda x: F.adaptive_avg_pool2d(x, (3, 5)), (draw(*IMAGE),)),
        "adaptive 1D": (lambda x: F.adaptive_avg_pool1d(x, 3).tanh(), (draw(2, 3, 7),)),
        "average pool 1D": (lambda x: F.avg_pool1d(x, 3, 2, 1).tanh(), (draw(2, 3, 7),)),
        "average pool 3D, to the end": (
            lambda x: F.avg_pool3d(x, 2, 2, 1, ceil_mode=True, count_include_pad=False).tanh(),
            (draw(1, 2, 3, 4, 5),),
        ),
        "max pool with indices": (
            lambda x: F.max_pool2d(x, 3, 2, 1, 2, return_indices=True)[0].tanh(),
            (draw(*IMAGE),),
        ),
        "adaptive max": (lambda x: F.adaptive_max_pool2d(x, (3, 2)).tanh(), (draw(*IMAGE),)),
        "reflected": (lambda x: F.pad(x, (2, 1, 0, 3), "reflect").tanh(), (draw(*IMAGE),)),
        "replicated": (lambda x: F.pad(x, (2, 1, 0, 3), "replicate").tanh(), (draw(*IMAGE),)),
        "around": (lambda x: F.pad(x, (2, 1, 0, 3), "circular").tanh(), (draw(*IMAGE),)),
        "transposed": (
            lambda x, w: F.conv_transpose2d(x, w, None, 2, 1, 1).tanh(),
            (draw(1, 4, 3, 5), (4, 6, 3, 3)),
        ),
        "transposed 1D, in groups": (
            lambda x, w: F.conv_transpose1d(x, w, None, 3, groups=2).tanh(),
            (draw(1, 4, 5), (4, 2, 2)),
        ),
    },
    "written out": {
        "rms norm": (lambda x, w: F.rms_norm(x, (4,), w), (draw(3, 4), (4,))),
        "cosine": (lambda x, w: F.cosine_similarity(x, w), (draw(3, 4), (3, 4))),
        "quantile": (lambda x: x.quantile(0.3, 1), (draw(3, 5),)),
        "diff": (lambda x: x.diff(n=2), (draw(3, 5),)),
        "instance norm": (lambda x: F.instance_norm(x).tanh(), (draw(2, 3, 5),)),
        "cummax": (lambda x: x.cummax(0)[0].tanh(), (draw(5, 3),)),
        "logcumsumexp": (lambda x: x.logcumsumexp(1), (draw(3, 5),)),
        "max along": (lambda x: x.max(1)[0].tanh(), (TIES,)),
        "min along": (lambda x: x.min(0, keepdim=True)[0].tanh(), (draw(3, 5),)),
        "median": (lambda x: x.median(1)[0].tanh(), (draw(3, 5),)),
        "sort": (lambda x: x.sort(dim=1, descending=True, stable=True)[0].cumsum(1), (draw(3, 5),)),
        "diagonal": (lambda x: x.diagonal(1).tanh(), (draw(4, 5),)),
        "trace": (lambda x: x.trace().tanh(), (draw(4, 5),)),
        "unfold": (lambda x: x.unfold(1, 3, 2).tanh(), (draw(3, 7),)),
        "take": (lambda x: x.take(chosen(0, -1, 3, 3)).tanh(), (draw(3, 5),)),
        "meshgrid": (
            lambda x: torch.stack(torch.meshgrid(x, x * 2, indexing="xy")).tanh(),
            (draw(4),),
        ),
        "round": (lambda x: x.round(decimals=1) * x, (draw(3, 5),)),
        "no axes": (lambda x: x.sum().cumsum(0) * x.max().index_select(0, chosen(0)), (draw(3),)),
        "var_mean": (lambda x: sum(torch.var_mean(x, 1)), (draw(3, 5),)),
    },
    "scattered": {
        "scatter": (lambda x, w: x.scatter(1, PLACES, w), (draw(3, 4), (3, 2))),
        "scatter_add": (lambda x, w: x.scatter_add(1, PLACES, w).tanh(), (draw(3, 4), (3, 2))),
        "scatter_reduce": (
            lambda x, w: x.scatter_reduce(1, PLACES, w, "amax").tanh(),
            (draw(3, 4), (3, 2)),
        ),
        "their mean": (
            lambda x, w: x.scatter_reduce(1, PLACES, w, "mean", include_self=False).tanh(),
            (draw(3, 4), (3, 2)),
        ),
        "index_add": (lambda x, w: x.index_add(0, chosen(2, 0), w).tanh(), (draw(3, 4), (2, 4))),
        "index_copy": (lambda x, w: x.index_copy(1, chosen(3, 0), w), (draw(3, 4), (3, 2))),
        "index_fill": (lambda x: x.index_fill(1, chosen(3, 0), 2.0).tanh(), (draw(3, 4),)),
        "index_put": (
            lambda x, w: x.index_put((chosen(2, -1),), w, accumulate=True).tanh(),
            (draw(3, 4), (2, 4)),
        ),
        "where a mask is": (lambda x: x.index_put((x > 0,), torch.zeros(())) * x, (draw(3, 4),)),
        "slice": (lambda x, w: x.slice_scatter(w, 1, 0, 4, 2), (draw(3, 4), (3, 2))),
        "several indices": (
            lambda x: x[:, chosen(0, 2)[:, None], chosen(1, 3, -1)].tanh(),
            (draw(2, 3, 4),),
        ),
        "indices apart": (lambda x: x[chosen(0, 1), :, chosen(1, 3)].tanh(), (draw(2, 3, 4),)),
        "max_unpool": (
            lambda x: torch._C._nn.max_unpool2d(
                *F.max_pool2d(x, 2, return_indices=True), (4, 6)
            ).tanh(),
            (draw(1, 2, 4, 6),),
        ),
    },
    "of two": {
        "atan2": (torch.atan2, (draw(3, 4), (3, 4))),
        "remainder": (torch.remainder, (draw(3, 4) * 3, (3, 4))),
        "fmod": (torch.fmod, (draw(3, 4) * 3, (4,))),
        "logaddexp": (torch.logaddexp, (draw(3, 4), (4,))),
        "prelu": (F.prelu, (KINKS, (4,))),
        "outer": (torch.outer, (draw(3), (4,))),
        "fmax": (torch.fmax, (draw(3, 4), (3, 4))),
    },
}


@pytest.mark.parametrize(("group", "dtype"), combinations(list(GROUPS), list(LIMITS)))
def test_gradients_of_operators_agree_with_autograd(group, dtype):
    functions = [
        f for name, f in GROUPS[group].items() if dtype == "float32" or name not in ONLY_FLOAT32
    ]
    to = getattr(torch, dtype)
    inputs = [x.to(to) for _, (x, *_) in functions]
    model, program = imported(Many(functions).to(to), *inputs, dtype=dtype)
    outputs, gradients = step(model, joint(program))
    compare(model, outputs, gradients)


@pytest.mark.parametrize("sample", ["mlp", "bert_self_attention"])
def test_samples_in_train_mode_agree_with_pytorch(sample):
    sample_in_train_mode_agrees(sample, "float64")


def test_running_statistics_are_returned_and_frozen_norms_keep_theirs():
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1), nn.BatchNorm2d(2)
    ).double()
    for norm in (module[1], module[4]):
        norm.running_mean.normal_(0, 0.3)
        norm.running_var.uniform_(0.5, 2)
        nn.init.normal_(norm.weight, 1, 0.3)
    module.train()
    module[1].eval()
    source = ModelSource("module", training=True, dtype="float64")
    model = model_from_module(module, ("x",), (draw(4, 3, 6, 6),), source, lambda *_: None)
    program = import_model(model, lambda *_: None)
    changed = ("running_mean", "running_var", "num_batches_tracked")
    assert set(program.updates) == {f"4.{n}" for n in changed}
    results, gradients = step(model, joint(program))
    count = len(results) - 3
    compare(model, results[:count], gradients)
    updated = dict(zip(program.updates, results[count:], strict=True))
    for name, theirs in model.updated(program.updates).items():
        assert not torch.equal(theirs, model.buffers[name])
        torch.testing.assert_close(updated[name], theirs, **close(LIMITS["float64"][0]))


@pytest.mark.parametrize(
    ("function", "words", "size"),
    [
        (lambda x: F.pad(x, (1, -1, 1, 1), mode="replicate"), "negative", (1, 2, 8, 8)),
        (lambda x: torch.einsum("abii->abi", x), "einsum", (1, 2, 8, 8)),
    ],
)
def test_a_form_of_an_operator_without_gradient_is_refused(function, words, size):
    _, program = imported(Fn(function), torch.randn(size))
    with pytest.raises(EngineError, match=words) as raised:
        joint(program)
    assert raised.value.kind == "pass"
    assert "from aten::" in raised.value.where


def test_steps_out_of_order_are_said_to_be():
    _, program = imported(Fn(lambda x: x * 2), torch.randn(2, 3))
    with refused(match="no scalar", hint="root_grad_out"):
        passes(program, "gradient")
    with pytest.raises(EngineError, match="there already"):
        passes(program, "root_grad_out|root_grad_out")


def test_provenance_survives_the_gradient_and_ids_are_unique():
    layer, inputs = bert_layer()
    _, program = imported(layer, *inputs)
    graph, _ = ENGINE.to_graph(joint(program))
    graph.validate()
    forward = graph.ancestors(graph.outputs[: graph.forward_outputs])
    calls = [n for n in graph if n.kind is Kind.CALL]
    assert all(n.scope and n.source for n in calls if n.id in forward)
    backward = [n for n in calls if n.id not in forward]
    origins = [(n.scope, n.source) for n in backward]
    assert sum(bool(s) for s, _ in origins) > 0.95 * len(backward)
    assert ("attention.self", "gradient of aten::softmax") in origins
    assert ("output.LayerNorm", "gradient of aten::layer_norm") in origins
    assert {s for s, _ in origins if s} <= {n.scope for n in calls if n.id in forward}


def test_a_deep_chain_has_a_gradient_without_recursion():
    count = 2000
    x = relax.Var("x", relax.TensorType((2,), "float32"))
    made, value = [], x
    for i in range(count):
        variable = relax.DataflowVar(f"y{i}", x.ty)
        made.append(relax.VarBinding(variable, relax.op.sin(value)))
        value = variable
    out = relax.Var("out", x.ty)
    block = relax.DataflowBlock([*made, relax.VarBinding(out, value)])
    function = relax.Function([x], relax.SeqExpr([block], out), x.ty, True)
    mod = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    program = RelaxProgram(relax.transform.Normalize()(mod), {}, ("x",), 1)
    made = joint(program)
    graph, _ = ENGINE.to_graph(made)
    assert graph.operators["cos"] == graph.operators["sin"] == count
    parts = ENGINE.split_by(made, "inputs_only")
    assert not parts.captures
