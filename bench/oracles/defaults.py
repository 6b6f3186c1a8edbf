"""Calls of PyTorch's operators with arguments whose defaults have a meaning, for `operators.py`.

Each line of `CALLS` is an expression in which a name of `INPUTS` stands for a tensor; what follows
are the arguments that it gets in turn in place of `...`. A program is made with the first tensor of
each name, and then runs on the others as well: labels that are to be ignored, padding, hidden rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing._internal.opinfo.core import SampleInput

INF, NAN = float("inf"), float("nan")
"""Names that the expressions may use."""


def _drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _ints(*rows: Any) -> tuple[Tensor, ...]:
    return tuple(torch.tensor(r) for r in rows)


_SHAPES = {
    "x": (3, 4),
    "y": (3, 4),
    "z": (3, 4),
    "row": (4,),
    "scores": (6, 5),
    "pixels": (2, 5, 2, 3),
    "class_weight": (5,),
    "line": (2, 4, 9),
    "image": (2, 4, 7, 6),
    "volume": (1, 4, 5, 6, 4),
    "four": (4,),
    "kernel1": (4, 2, 3),
    "kernel2": (4, 2, 3, 2),
    "kernel3": (4, 2, 2, 3, 2),
    "table": (7, 4),
    "left": (3, 5),
    "right": (5, 4),
    "batch_left": (2, 3, 5),
    "batch_right": (2, 5, 4),
    "query": (2, 2, 3, 4),
    "key": (2, 2, 5, 4),
    "value": (2, 2, 5, 4),
    "scattered": (2, 4),
    "columns": (2, 24, 8),
}
INPUTS: dict[str, tuple[Tensor, ...]] = {
    **{name: (_drawn(i, *shape),) for i, (name, shape) in enumerate(_SHAPES.items())},
    "places": ((torch.rand(2, 3, 4, 2, generator=torch.Generator().manual_seed(5)) * 2.6 - 1.3),),
    "share": (_drawn(50, 3, 4).sigmoid(),),
    "positive": (_drawn(51, 3, 4).exp(),),
    "sign": (torch.tensor([1.0, -1, 1]), torch.tensor([-1.0, -1, -1])),
    "signs": (torch.tensor([[1.0, -1, 1, -1]] * 3),),
    "probabilities": (_drawn(52, 6, 5).softmax(1),),
    "labels": _ints(
        [0, 1, 2, 3, 4, 0], [1, -100, 2, -100, 4, 0], [-100] * 6, [2, 2, 1, 2, 2, 2], [2] * 6
    ),
    "pixel_labels": _ints(
        [[[0, 1, 2], [3, 4, 0]], [[1, 1, 3], [4, 2, 0]]],
        [[[0, -100, 2], [3, -100, 0]], [[-100] * 3] * 2],
        [[[-100] * 3] * 2] * 2,
        [[[2] * 3] * 2] * 2,
    ),
    "many_labels": _ints([[0, 2, -1, 1]] * 3, [[3, -1, 0, 0], [-1, 0, 1, 2], [0, 1, 2, 3]]),
    "ids": _ints([[1, 2, 3], [4, 5, 6]], [[0, 2, 0], [6, 6, 2]], [[2] * 3] * 2, [[0] * 3] * 2),
    "ends": _ints([[0, 1], [2, 3], [4, 2]], [[-1, 0], [3, -2], [4, 4]]),
    "places_of": _ints([[0, 1, 2, 0], [2, 0, 1, 1]], [[2] * 4, [0] * 4]),
    "seen": (
        torch.tensor([[1, 0, 1, 1, 1], [1, 1, 0, 0, 1], [1, 1, 1, 1, 1]]).bool(),
        torch.tensor([[0] * 5, [1, 0, 0, 0, 0], [1] * 5]).bool(),
        torch.zeros(3, 5, dtype=torch.bool),
    ),
    "bias": (
        torch.zeros(3, 5),
        torch.tensor([[-INF] * 5, [0, -INF, 0, 1, 2], [0.5] * 5]),
        torch.full((3, 5), -INF),
    ),
    "chosen": (
        torch.tensor([[1, 0, 1, 0], [0, 0, 1, 1], [1, 1, 1, 0]]).bool(),
        torch.zeros(3, 4, dtype=torch.bool),
        torch.ones(3, 4, dtype=torch.bool),
    ),
    "ordered": (torch.tensor([-1.0, 0, 0.5, 0.5, 2]),),
    "whole": _ints([[3, -4, 5, 7], [1, 2, -3, 6]], [[-7, 0, 7, -1], [2, 2, 2, 2]]),
    "divisor": _ints([[2, 3, -2, 4], [5, -3, 2, 7]]),
    "index": _ints([0, 2], [2, 2], [1, 0]),
}
_MODULES = {"F": F, "torch": torch, "aten": torch.ops.aten, "INF": INF, "NAN": NAN}

_REDUCED = "", "reduction='sum'", "reduction='none'"
_ALONG = "1", "-1", "0, keepdim=True", "-2"
_POOLED = ("2", "3, 2, 1", "3, 2, 1, ceil_mode=True", "2, 3, ceil_mode=True", "3, 1, 1")
_AVERAGED = (
    *_POOLED,
    "3, 2, 1, count_include_pad=False",
    "3, 2, 1, True, False",
    "3, 2, 1, True, True",
)
_LARGEST = (
    *_POOLED,
    "2, 1, 0, 2",
    "2, 2, 1, 2, ceil_mode=True",
    "3, 2, 1, 2, ceil_mode=True",
    "2, 1, 1, 3",
    "2, 3, 1, 2, ceil_mode=True, return_indices=True",
)
_CONVOLVED = (
    "groups=2",
    "None, 2, 1, 1, 2",
    "None, 1, 2, 2, 2",
    "four, 3, 2, 2, 2",
    "padding='same', groups=2",
    "padding='same', dilation=2, groups=2",
)
_TURNED = (
    "groups=2",
    "None, 2, 1, 1, 2",
    "None, 3, 1, 2, 2, 2",
    "None, 2, 0, 1, 1, 3",
    "None, 1, 2, 0, 2, 2",
)
_SIZED = (
    "scale_factor=2, mode='nearest'",
    "scale_factor=1.7, mode='nearest'",
    "scale_factor=0.6, mode='nearest'",
    "scale_factor=2, mode='nearest-exact'",
    "scale_factor=0.6, mode='area'",
)
_SIZED_SMOOTHLY = (
    "scale_factor=2, mode='{}'",
    "scale_factor=2, mode='{}', align_corners=True",
    "scale_factor=1.7, mode='{}'",
    "scale_factor=1.7, mode='{}', recompute_scale_factor=True",
    "scale_factor=0.6, mode='{}'",
    "scale_factor=0.6, mode='{}', align_corners=True",
    "size={}, mode='{}'",
)


def _smoothly(mode: str, rank: int) -> list[str]:
    size = str([5, 8, 3][:rank])
    return [s.format(mode) if s.count("{") == 1 else s.format(size, mode) for s in _SIZED_SMOOTHLY]


_PADDED = "mode='reflect'", "mode='replicate'", "mode='circular'", "value=2.5"

CALLS: dict[str, tuple[str, ...]] = {
    # Losses.
    "F.cross_entropy(scores, labels, ...)": (
        *_REDUCED,
        "class_weight.exp().detach()",
        "class_weight.exp().detach(), reduction='sum'",
        "class_weight.exp().detach(), reduction='none'",
        "ignore_index=2",
        "ignore_index=2, weight=class_weight.exp().detach()",
        "label_smoothing=0.1",
        "label_smoothing=0.1, reduction='sum'",
        "label_smoothing=0.1, reduction='none', weight=class_weight.exp().detach()",
        "label_smoothing=0.3, ignore_index=2, weight=class_weight.exp().detach()",
    ),
    "F.cross_entropy(pixels, pixel_labels, ...)": (
        *_REDUCED,
        "ignore_index=2, weight=class_weight.exp().detach()",
        "label_smoothing=0.1",
    ),
    "F.cross_entropy(scores, probabilities, ...)": (
        *_REDUCED,
        "label_smoothing=0.2",
        "class_weight.exp().detach()",
        "class_weight.exp().detach(), label_smoothing=0.2, reduction='sum'",
    ),
    "F.cross_entropy(class_weight, labels[1], ...)": ("", "ignore_index=2"),
    "F.nll_loss(scores.log_softmax(1), labels, ...)": (
        *_REDUCED,
        "class_weight.exp().detach()",
        "ignore_index=2",
        "class_weight.exp().detach(), ignore_index=2, reduction='sum'",
        "class_weight.exp().detach(), reduction='none'",
    ),
    "F.nll_loss(pixels.log_softmax(1), pixel_labels, ...)": (
        *_REDUCED,
        "class_weight.exp().detach()",
        "class_weight.exp().detach(), ignore_index=2, reduction='sum'",
    ),
    "F.binary_cross_entropy(share, share.flip(0).detach(), ...)": (*_REDUCED, "weight=positive"),
    "F.binary_cross_entropy_with_logits(x, share, ...)": (
        *_REDUCED,
        "weight=positive",
        "pos_weight=row.exp()",
        "positive, pos_weight=row.exp(), reduction='sum'",
    ),
    "F.kl_div(x.log_softmax(1), share, ...)": (
        *_REDUCED,
        "reduction='batchmean'",
        "reduction='batchmean', log_target=True",
    ),
    "F.mse_loss(x, y, ...)": (*_REDUCED, "weight=positive"),
    "F.l1_loss(x, y, ...)": _REDUCED,
    "F.huber_loss(x, y, ...)": (*_REDUCED, "delta=0.3"),
    "F.smooth_l1_loss(x, y, ...)": (*_REDUCED, "beta=0.0", "beta=0.3"),
    "F.soft_margin_loss(x, signs, ...)": _REDUCED,
    "F.hinge_embedding_loss(x, signs, ...)": (*_REDUCED, "margin=0.3"),
    "F.margin_ranking_loss(x[:, 0], y[:, 1], sign, ...)": (*_REDUCED, "margin=0.3"),
    "F.cosine_embedding_loss(x, y, sign, ...)": (*_REDUCED, "margin=0.3"),
    "F.triplet_margin_loss(x, y, z, ...)": (*_REDUCED, "margin=0.3, p=1, eps=0.1", "swap=True"),
    "F.multi_margin_loss(scores, labels.clamp(min=0), ...)": (
        *_REDUCED,
        "p=2, margin=0.4",
        "weight=class_weight",
    ),
    "F.multilabel_margin_loss(x, many_labels, ...)": _REDUCED,
    "F.multilabel_soft_margin_loss(x, share, ...)": (*_REDUCED, "weight=row.exp()"),
    "F.poisson_nll_loss(x, positive, ...)": (
        *_REDUCED,
        "full=True",
        "log_input=False, eps=0.1",
        "log_input=False, full=True",
    ),
    "F.gaussian_nll_loss(x, y, positive, ...)": (*_REDUCED, "full=True", "eps=0.7"),
    "F.ctc_loss(batch_left.log_softmax(2), places_of[0, :3, None] + 1, labels[:3] * 0 + 2, ...)": (
        "labels[:3] * 0 + 1",
        "labels[:3] * 0 + 1, zero_infinity=True",
    ),
    # Norms.
    "F.layer_norm(x, (4,), ...)": ("", "row", "row, row", "None, row", "eps=0.3"),
    "F.layer_norm(image, (7, 6), ...)": ("", "eps=0.3"),
    "F.rms_norm(x, (4,), ...)": ("", "row", "row, 0.3"),
    "F.group_norm(image, 2, ...)": ("", "four", "four, four", "eps=0.3"),
    "F.instance_norm(image, ...)": (
        "",
        "weight=four, bias=four",
        "four, four.exp(), use_input_stats=False",
        "eps=0.3",
        "momentum=0.5",
    ),
    "F.batch_norm(image, ...)": (
        "None, None, training=True",
        "four.detach(), four.exp().detach()",
        "four.detach(), four.exp().detach(), four, four, eps=0.3",
        "None, None, four, four, True, 0.4, 0.3",
    ),
    "F.local_response_norm(image, 3, ...)": ("", "alpha=0.3, beta=0.5, k=2.0"),
    "F.normalize(x, ...)": ("", "p=1.0", "dim=-2", "eps=3.0", "p=INF, dim=0", "p=3.0"),
    # Embeddings.
    "F.embedding(ids, table, ...)": (
        "",
        "2",
        "-5",
        "0",
        "scale_grad_by_freq=True",
        "sparse=True",
        "max_norm=0.5",
        "max_norm=0.5, norm_type=1.0",
    ),
    "F.embedding_bag(ids, table, ...)": (
        "",
        "mode='sum'",
        "mode='max'",
        "padding_idx=2",
        "padding_idx=2, mode='sum'",
        "padding_idx=0, mode='max'",
        "mode='sum', per_sample_weights=x[:2, :3]",
        "scale_grad_by_freq=True",
        "max_norm=0.5",
    ),
    "F.embedding_bag(ids.flatten(), table, torch.tensor([0, 2, 4]), ...)": (
        "",
        "mode='sum', include_last_offset=True",
        "padding_idx=2",
    ),
    "F.one_hot(labels.clamp(min=0), ...)": ("5", "9"),
    # Pooling.
    "F.max_pool1d(line, ...)": _LARGEST,
    "F.max_pool2d(image, ...)": (*_LARGEST, "(2, 3), (1, 2), (1, 0), (2, 1)"),
    "F.max_pool3d(volume, ...)": _LARGEST,
    "F.avg_pool1d(line, ...)": _AVERAGED,
    "F.avg_pool2d(image, ...)": (
        *_AVERAGED,
        "2, divisor_override=3",
        "3, 2, 1, True, True, 5",
        "3, 2, 1, True, False, 5",
        "(2, 3), (1, 2), (1, 0)",
    ),
    "F.avg_pool3d(volume, ...)": (*_AVERAGED, "2, divisor_override=3", "3, 2, 1, True, False, 5"),
    "F.lp_pool1d(line, ...)": ("2, 2", "3, 3, 1", "2, 2, 3, ceil_mode=True"),
    "F.lp_pool2d(image, ...)": ("2, 2", "3, 3, 1", "2, 2, 3, ceil_mode=True"),
    "F.adaptive_avg_pool1d(line, ...)": ("3", "4"),
    "F.adaptive_avg_pool2d(image, ...)": ("1", "(7, 3)", "(None, 2)", "(3, 4)"),
    "F.adaptive_avg_pool3d(volume, ...)": ("1", "(5, 3, 2)", "(3, 4, 2)"),
    "F.adaptive_max_pool1d(line, ...)": ("3", "4", "4, True"),
    "F.adaptive_max_pool2d(image, ...)": ("1", "(7, 3)", "(3, 4)", "(None, 2), True"),
    "F.adaptive_max_pool3d(volume, ...)": ("1", "(3, 4, 2)"),
    "F.max_unpool2d(*F.max_pool2d(image, 2, 2, return_indices=True), ...)": (
        "2, 2",
        "2, 2, output_size=(7, 6)",
    ),
    # Convolutions.
    "F.conv1d(line, kernel1, ...)": _CONVOLVED,
    "F.conv2d(image, kernel2, ...)": (*_CONVOLVED, "None, (2, 1), (1, 2), (1, 3), 2"),
    "F.conv3d(volume, kernel3, ...)": _CONVOLVED,
    "F.conv_transpose1d(line, kernel1, ...)": _TURNED,
    "F.conv_transpose2d(image, kernel2, ...)": (*_TURNED, "None, (2, 1), (1, 0), (1, 0), 2"),
    "F.conv_transpose3d(volume, kernel3, ...)": _TURNED,
    "F.unfold(image, ...)": ("2", "(2, 3), 2, 1, 3"),
    "F.fold(columns, ...)": ("(5, 9), (2, 2), 1, 0, 2", "(5, 7), (3, 2), 2, 1, 2"),
    # Resizing.
    "F.interpolate(line, ...)": (*_SIZED, *_smoothly("linear", 1)),
    "F.interpolate(image, ...)": (
        *_SIZED,
        *_smoothly("bilinear", 2),
        *_smoothly("bicubic", 2),
        "scale_factor=0.6, mode='bilinear', antialias=True",
        "scale_factor=0.6, mode='bicubic', antialias=True",
    ),
    "F.interpolate(volume, ...)": (*_SIZED, *_smoothly("trilinear", 3)),
    "F.grid_sample(image, places, ...)": tuple(
        f"'{mode}', '{beyond}', {aligned}"
        for mode in ("bilinear", "nearest", "bicubic")
        for beyond in ("zeros", "border", "reflection")
        for aligned in (False, True)
    ),
    "F.affine_grid(line[:, :2, :3], (2, 1, 3, 4), ...)": ("False", "True"),
    "F.pixel_shuffle(image, 2)": ("",),
    "F.pad(line, (2, 1), ...)": _PADDED,
    "F.pad(line, (-1, 2), ...)": _PADDED,
    "F.pad(image, (2, 1, 0, 3), ...)": _PADDED,
    "F.pad(volume, (2, 1, 0, 3, 1, 1), ...)": _PADDED,
    # Activations.
    "F.leaky_relu(x, ...)": ("", "0.3", "-0.3"),
    "F.elu(x, ...)": ("", "0.3", "-0.5"),
    "F.celu(x, ...)": ("", "0.3"),
    "F.selu(x)": ("",),
    "F.gelu(x, ...)": ("", "approximate='tanh'"),
    "F.softplus(x, ...)": ("", "3, 0.2", "beta=0.5", "threshold=1"),
    "F.hardtanh(x, ...)": ("", "-0.2, 0.7"),
    "F.threshold(x, ...)": ("0.1, 20.0", "-0.5, 0.3"),
    "F.softshrink(x, ...)": ("", "0.2"),
    "F.hardshrink(x, ...)": ("", "0.2"),
    "F.rrelu(x, ...)": ("", "0.2, 0.4", "training=True"),
    "F.prelu(x, row[...])": (":1", ":"),
    "F.glu(x, ...)": ("", "1"),
    "F.softmax(x, ...)": ("0", "-1", "1, dtype=torch.float64", "-2"),
    "F.log_softmax(x, ...)": ("0", "-1", "1, dtype=torch.float64", "-2"),
    "F.softmin(x, ...)": ("0", "-1"),
    "aten._softmax(x, ...)": ("-1, False",),
    "aten._log_softmax(x, ...)": ("-1, False",),
    "F.dropout(x, ...)": ("0.5, training=False", "0.5", "0.0"),
    "F.feature_alpha_dropout(x, ...)": ("0.5, training=False",),
    # Attention.
    "F.scaled_dot_product_attention(query, key, value, ...)": (
        "",
        "is_causal=True",
        "scale=0.3",
        "scale=-2.0, is_causal=True",
        "seen",
        "bias",
        "seen, scale=0.3",
        "bias, scale=0.3",
        "dropout_p=0.5",
    ),
    "F.scaled_dot_product_attention(query.repeat(1, 2, 1, 1), key, value, ...)": (
        "enable_gqa=True",
        "seen, enable_gqa=True",
    ),
    # Reductions.
    "x.sum(...)": ("", *_ALONG, "dtype=torch.float64", "1, dtype=torch.float64", "(0, -1), True"),
    "x.mean(...)": ("", *_ALONG, "1, dtype=torch.float64", "(0, -1), True"),
    "x.prod(...)": ("", *_ALONG),
    "whole.sum(...)": ("", "1", "-1, True", "dtype=torch.float32"),
    "whole.prod(...)": ("", "1"),
    "x.var(...)": ("", *_ALONG, "unbiased=False", "1, correction=2", "1, correction=0", "False"),
    "x.std(...)": ("", *_ALONG, "unbiased=False", "1, correction=3", "(0, 1), correction=0"),
    "torch.var_mean(x, ...)": ("1", "1, correction=2, keepdim=True", "unbiased=False"),
    "torch.std_mean(x, ...)": ("1", "1, correction=2, keepdim=True", "unbiased=False"),
    "x.norm(...)": ("", "1", "3", "INF", "-INF", "0", "2, 1", "3, -1, True", "'fro'"),
    "torch.linalg.vector_norm(x, ...)": ("", "1", "3, 1", "INF, -1, True", "-INF", "0", "0.5"),
    "torch.linalg.matrix_norm(x, ...)": ("", "1", "INF", "-1", "-INF, keepdim=True"),
    "torch.logsumexp(x, ...)": _ALONG,
    "x.amax(...)": ("", *_ALONG, "(0, -1)"),
    "x.amin(...)": ("", *_ALONG),
    "x.max(...)": ("", *_ALONG),
    "x.min(...)": ("", *_ALONG),
    "x.argmax(...)": ("", *_ALONG),
    "x.argmin(...)": ("", *_ALONG),
    "torch.aminmax(x, ...)": ("", "dim=1", "dim=-2, keepdim=True"),
    "x.any(...)": ("", *_ALONG),
    "x.all(...)": ("", *_ALONG),
    "torch.count_nonzero(x, ...)": ("", "1", "-1"),
    "torch.nansum(x, ...)": ("", "1", "-1, True"),
    "torch.nanmean(x, ...)": ("", "1", "-1, True"),
    "x.cumsum(...)": ("0", "-1", "1, dtype=torch.float64"),
    "x.cumprod(...)": ("0", "-1"),
    "x.cummax(...)": ("0", "-1"),
    "x.cummin(...)": ("0", "-1"),
    "x.logcumsumexp(...)": ("0", "-1"),
    "x.median(...)": ("", *_ALONG),
    "x.nanmedian(...)": ("", *_ALONG),
    "x.mode(...)": ("", "0, True"),
    "torch.quantile(x, 0.3, ...)": (
        "",
        "1",
        "-1, True",
        "1, interpolation='nearest'",
        "0, interpolation='midpoint'",
        "0, interpolation='lower'",
        "0, interpolation='higher'",
    ),
    "torch.nanquantile(x, 0.3, ...)": ("", "-1, True"),
    "torch.cov(x, ...)": ("", "correction=0", "correction=2"),
    "torch.trapezoid(x, ...)": ("", "dx=0.3", "dim=0"),
    "torch.cumulative_trapezoid(x, ...)": ("", "dx=0.3", "dim=0"),
    "torch.diff(x, ...)": ("", "n=2", "dim=0", "prepend=y[:, :1]", "append=y"),
    "torch.histc(x, ...)": ("5, -1, 1", "5"),
    "torch.renorm(x, 2, 0, 0.5)": ("",),
    # Distances.
    "F.cosine_similarity(x, y, ...)": ("", "0", "-1", "eps=3.0"),
    "F.pairwise_distance(x, y, ...)": ("", "1.0", "eps=0.3", "keepdim=True", "INF", "3.0"),
    "torch.cdist(x, y, ...)": ("", "1.0", "3.0", "INF", "0.0"),
    "torch.dist(x, y, ...)": ("", "1", "3", "INF"),
    "F.pdist(x, ...)": ("", "1.0"),
    # Sorting and searching.
    "x.sort(...)": ("", "0", "-1, True", "stable=True, dim=0", "stable=True, descending=True"),
    "x.argsort(...)": ("", "0", "-1, True", "stable=True, descending=True"),
    "x.topk(2, ...)": ("", "0", "-1, False", "0, False", "1, True, True"),
    "x.kthvalue(2, ...)": ("", "0", "-1, True"),
    "torch.searchsorted(ordered, x, ...)": (
        "",
        "right=True",
        "side='right'",
        "side='left'",
        "out_int32=True",
    ),
    "torch.bucketize(x, ordered, ...)": ("", "right=True", "out_int32=True"),
    "torch.isin(whole, divisor, ...)": ("", "invert=True", "assume_unique=True"),
    "torch.isclose(x, y, ...)": ("", "0.5, 0.2", "equal_nan=True"),
    # Arithmetic.
    "torch.add(x, y, ...)": ("", "alpha=2", "alpha=-0.5"),
    "torch.sub(x, y, ...)": ("", "alpha=2", "alpha=-0.5"),
    "torch.rsub(x, y, ...)": ("", "alpha=2"),
    "torch.add(x, 2, ...)": ("", "alpha=3"),
    "torch.rsub(x, 2, ...)": ("", "alpha=3"),
    "torch.add(whole, divisor, ...)": ("", "alpha=2"),
    "torch.addmm(x, left, right, ...)": ("", "beta=0.5, alpha=2", "beta=0", "alpha=0"),
    "torch.addmv(x[:, 0], left, class_weight, ...)": ("", "beta=0.5, alpha=2", "beta=0"),
    "torch.addr(x, x[:, 0], row, ...)": ("", "beta=0.5, alpha=2", "beta=0"),
    "torch.addbmm(x, batch_left, batch_right, ...)": ("", "beta=0.5, alpha=2", "beta=0"),
    "torch.baddbmm(x, batch_left, batch_right, ...)": ("", "beta=0.5, alpha=2", "beta=0"),
    "torch.addcmul(x, y, z, ...)": ("", "value=-0.5"),
    "torch.addcdiv(x, y, positive, ...)": ("", "value=-0.5"),
    "torch.div(x, y, ...)": ("", "rounding_mode='floor'", "rounding_mode='trunc'"),
    "torch.div(whole, divisor, ...)": ("", "rounding_mode='floor'", "rounding_mode='trunc'"),
    "torch.div(x, 0.3, ...)": ("rounding_mode='floor'", "rounding_mode='trunc'"),
    "torch.floor_divide(x, ...)": ("y", "0.3"),
    "torch.floor_divide(whole, ...)": ("divisor", "2"),
    "torch.remainder(whole, ...)": ("divisor", "-3"),
    "torch.fmod(whole, ...)": ("divisor", "-3"),
    "torch.remainder(x, ...)": ("y", "-0.3"),
    "torch.fmod(x, ...)": ("y", "-0.3"),
    "torch.lerp(x, y, ...)": ("0.3", "0.7", "share"),
    "x.clamp(...)": ("-0.5", "max=0.5", "-0.5, 0.5", "0.5, -0.5", "y", "max=y"),
    "x.round(...)": ("", "decimals=1", "decimals=-1"),
    "torch.logit(share, ...)": ("", "eps=0.3"),
    "torch.nan_to_num(x, ...)": ("", "nan=2.0", "nan=1.0, posinf=5.0, neginf=-7.0"),
    "torch.xlogy(x, positive)": ("",),
    "torch.heaviside(x, y)": ("",),
    "torch.pow(x, ...)": ("2", "3", "-1", "-2", "0", "1"),
    "torch.pow(positive, ...)": ("0.5", "y", "-0.5", "2.5"),
    "torch.logaddexp(x, y)": ("",),
    "torch.logaddexp2(x, y)": ("",),
    "torch.hypot(x, y)": ("",),
    "torch.atan2(x, y)": ("",),
    "torch.copysign(x, y)": ("",),
    "torch.maximum(x, y)": ("",),
    "torch.fmax(x, y)": ("",),
    **{
        f"torch.{name}(x)": ("",)
        for name in [
            "abs",
            "acos",
            "acosh",
            "angle",
            "asin",
            "asinh",
            "atan",
            "atanh",
            "ceil",
            "cos",
            "cosh",
            "deg2rad",
            "digamma",
            "erf",
            "erfc",
            "erfinv",
            "exp",
            "exp2",
            "expm1",
            "floor",
            "frac",
            "i0",
            "lgamma",
            "log",
            "log10",
            "log1p",
            "log2",
            "neg",
            "reciprocal",
            "relu",
            "rsqrt",
            "sigmoid",
            "sign",
            "signbit",
            "sin",
            "sinc",
            "sinh",
            "sqrt",
            "square",
            "tan",
            "tanh",
            "trunc",
        ]
    },
    **{
        f"F.{name}(x)": ("",)
        for name in (
            [
                "hardsigmoid",
                "hardswish",
                "logsigmoid",
                "mish",
                "relu6",
                "silu",
                "softsign",
                "tanhshrink",
            ]
        )
    },
    # Parts and places.
    "torch.flatten(image, ...)": ("", "1", "1, 2", "-2"),
    "torch.roll(x, ...)": ("1", "2, 1", "-1, -1", "(1, -2), (0, 1)"),
    "torch.flip(x, ...)": ("(0,)", "(-1,)", "(0, 1)"),
    "torch.rot90(x, ...)": ("", "2", "-1", "1, (1, 0)"),
    "torch.tril(x, ...)": ("", "1", "-1"),
    "torch.triu(x, ...)": ("", "1", "-1"),
    "torch.diag(x, ...)": ("", "1", "-1"),
    "torch.diag(row, ...)": ("", "1", "-1"),
    "torch.diag_embed(x, ...)": ("", "1", "-1", "0, 0, 2", "1, -1, 0"),
    "torch.diagonal(x, ...)": ("", "1", "-1", "0, 1, 0", "1, -1, -2"),
    "torch.trace(x)": ("",),
    "torch.repeat_interleave(x, ...)": ("2", "2, 1", "3, dim=-1"),
    "torch.squeeze(x[:, None], ...)": ("", "1", "0", "-2"),
    "x.unfold(...)": ("1, 2, 1", "-1, 3, 1", "0, 2, 2"),
    "torch.select(x, ...)": ("1, -1", "-1, 0"),
    "torch.narrow(x, ...)": ("1, 1, 2", "-1, -2, 2"),
    "torch.index_select(x, ..., index)": ("0", "-1"),
    "torch.gather(x, ..., places_of)": ("0", "-2"),
    "torch.take_along_dim(x, places_of, ...)": ("", "0"),
    "torch.take(x, ends)": ("",),
    "table[ends, ...]": ("...", "0"),
    "torch.scatter(x, 0, places_of, ...)": ("2.0",),
    "torch.scatter_add(x, ..., places_of, scattered)": ("0", "-2"),
    "torch.scatter_reduce(x, 0, places_of, scattered, ...)": (
        "'sum'",
        "'mean'",
        "'amax'",
        "'amin'",
        "'prod'",
        "'sum', include_self=False",
        "'mean', include_self=False",
        "'amax', include_self=False",
        "'prod', include_self=False",
    ),
    "torch.index_add(x, 0, index, y[:2], ...)": ("", "alpha=-0.5"),
    "torch.index_copy(x, 0, torch.tensor([2, 0]), y[:2])": ("",),
    "torch.index_fill(x, ..., index, 2.0)": ("0", "-1"),
    "torch.index_put(x, (index,), y[:2], ...)": ("True",),
    "torch.put(x, ends, y[:, :2], ...)": ("True",),
    "torch.masked_fill(x, chosen, ...)": ("2.0", "-INF", "y[0, 0]"),
    "torch.masked_scatter(x, chosen, y)": ("",),
    "torch.where(chosen, x, ...)": ("y", "-INF", "2"),
    "torch.stack((x, y), ...)": ("", "-1", "1"),
    "torch.cat((x, y), ...)": ("", "-1", "1"),
    "torch.chunk(x, 3, ...)": ("", "-1"),
    "torch.split(x, 2, ...)": ("", "-1"),
    "torch.tensor_split(x, ...)": ("2", "3, -1", "(1, 3), 1"),
    "torch.meshgrid(row, class_weight, ...)": ("indexing='ij'", "indexing='xy'"),
    "torch.vander(row, ...)": ("", "3", "3, True"),
    "torch.tensordot(batch_left, batch_right, ...)": ("dims=([0, 2], [0, 1])",),
    "torch.cross(x[:, :3], y[:, :3], ...)": ("dim=1", "dim=-1"),
    "torch.linalg.cross(x[:, :3], y[:, :3], ...)": ("", "dim=0"),
    "torch.combinations(row, ...)": ("", "3", "2, True"),
    "torch.full_like(x, ...)": ("2", "2, dtype=torch.int64"),
    "x * torch.arange(...)": ("4", "1, 9, 2", "2, 0, -0.5", "0.0, 2.0, 0.5"),
    "x + torch.linspace(...)": ("0, 1, 4", "3, -2, 4"),
    "x.to(...)": ("torch.float64", "torch.int64", "torch.bool"),
    "x * torch.eye(...)": ("3, 4", "4, 4, dtype=x.dtype)[:3] * torch.ones(1"),
}


def _plain_attention(*args: Any, **options: Any) -> Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(*args, **options)


def _apart(together: Callable[..., Any]) -> Callable[..., Any]:
    """`var_mean` or `std_mean` as two calls."""
    spread = torch.var if together is torch.var_mean else torch.std

    def call(x: Tensor, *axes: Any, **how: Any) -> tuple[Tensor, Tensor]:
        keep = {k: v for k, v in how.items() if k == "keepdim"}
        return spread(x, *axes, **how), x.mean(*axes, **keep)

    return call


_NEAR_0 = "1 - (x * torch.pi) ** 2 / 6 + (x * torch.pi) ** 4 / 120"
_OTHERWISE = {
    "_plain": _plain_attention,
    "_var_mean": _apart(torch.var_mean),
    "_std_mean": _apart(torch.std_mean),
    "_exponents": lambda x: (e := (x - x.amax(-1, True)).exp()) / e.sum(-1, True),
}
REFERENCES = {
    # In float64 the gradient of the CPU's kernel has float32's digits.
    "F.celu(": "torch._refs.nn.functional.celu(",
    "F.hardsigmoid(x)": "F.relu6(x + 3) / 6",
    # The gradient of what is all but 0 is a difference of what is all but equal.
    "aten._softmax(x, -1, False)": "_exponents(x)",
    # Which of infinite elements make the mean NaN depends on the order of the steps.
    "torch.var_mean(": "_var_mean(",
    "torch.std_mean(": "_std_mean(",
    # It is computed by rsqrt, whose own gradient at -0 and -inf is another than a power's.
    "torch.pow(positive, -0.5)": "torch.rsqrt(positive)",
    # The gradient subtracts what is nearly equal: of 1e-6 it has three digits in float64.
    "torch.sinc(x)": f"torch.where(x.abs() < 1e-3, {_NEAR_0}, torch.sinc(x))",
    # The CPU's fused kernel leaves out hidden keys, whose infinite values times 0 are NaN.
    "F.scaled_dot_product_attention(": "_plain(",
    # Which NaN the kernel passes over depends on the width of the CPU's vectors.
    "torch.cdist(x, y, INF)": (
        "torch.linalg.vector_norm(x.unsqueeze(-2) - y.unsqueeze(-3), INF, -1)"
    ),
}
"""Where PyTorch computes a call otherwise on the CPU than by its own reference or other kernel, by
what begins an expression, what is there in its place: either result counts."""


@dataclass(frozen=True)
class Call:
    """A line of `CALLS` with one of its arguments, in the form of an entry of PyTorch's database.

    Args:
        formatted_name: the expression.
    """

    formatted_name: str
    supports_autograd = True
    inplace_variant = None

    @property
    def name(self) -> str:
        """Of the operator, alone."""
        found = re.match(r"(?:\w+\.)*(\w+)\(", self.formatted_name)
        return found[1] if found else ""

    @property
    def full_name(self) -> str:
        return self.formatted_name

    @property
    def op(self) -> Callable[..., Any]:
        """Of the tensors in order of `given`."""
        return self._function(self.formatted_name)

    @property
    def reference(self) -> Callable[..., Any] | None:
        """The same by what `REFERENCES` has in its place; None where it has nothing."""
        name = self.formatted_name
        found = (new + name[len(old) :] for old, new in REFERENCES.items() if name.startswith(old))
        code = next(found, None)
        return None if code is None else self._function(code)

    def _function(self, expression: str) -> Callable[..., Any]:
        code = f"lambda {', '.join(self.given)}: {expression}"
        call: Callable[..., Any] = eval(code, {**_MODULES, **_OTHERWISE})
        return call

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the tensors."""
        words = re.findall(r"(?<![\w.'])[a-z_]\w*(?!\w*=[^=])", self.formatted_name)
        return tuple(dict.fromkeys(w for w in words if w in INPUTS))

    def supported_dtypes(self, device: str) -> tuple[torch.dtype, ...]:
        return torch.float32, torch.float64

    supported_backward_dtypes = supported_dtypes

    def values(self, dtype: torch.dtype) -> list[tuple[Tensor, ...]]:
        """The tensors in turn, those that a program is made with first."""
        rows = [INPUTS[n] for n in self.given]
        table = [[r[i % len(r)] for r in rows] for i in range(max(map(len, rows)))]
        return [tuple(t.to(dtype) if t.is_floating_point() else t for t in row) for row in table]

    def sample_inputs(
        self, device: str, dtype: torch.dtype, requires_grad: bool
    ) -> list[SampleInput]:
        """One, as PyTorch's database has them."""
        first, *rest = self.values(dtype)[0]
        return [SampleInput(first, args=tuple(rest))]


def calls() -> list[Call]:
    """All of them."""
    made = [
        re.sub(r",? ?(?<![\[, ])\.\.\.", "", line) if not how else line.replace("...", how, 1)
        for line, options in CALLS.items()
        for how in options
    ]
    return [Call(re.sub(r", \.\.\.", "", m) if "table[" not in m else m) for m in made]
