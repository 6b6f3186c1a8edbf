"""Random modules through `add_tvm_dispatch` without its own check, against PyTorch.

Each module is drawn from a seed: two to seven steps of a grammar of layers, dropouts, masks, views,
steps in place, regions without gradients, buffers, indices and losses, with several outputs. It
runs in train and eval mode, with and without gradients. Outputs, gradients of inputs and
parameters, buffers and the generator's state must be PyTorch's, by dtype, shape and value.

    python tests/both/against_pytorch/grammar.py --engine relax --count 500 [--first 0]

prints each module that is not right and the fewest of its steps that are not, which steps are
refused how often, and the counts; ends with 1 where one is wrong.
"""

from __future__ import annotations

import argparse
import copy
import random
import re
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.utils import _pytree as pytree

from relascope.core.errors import EngineError, lines_of
from relascope.engine.dispatch import add_tvm_dispatch

SIZES = (3, 4, 8), (1, 6, 8), (2, 5, 12)
"""Batch, tokens, width."""
_TOLERANCE = 1e-4  # of a tensor's scale, and four times what PyTorch itself is off float64


@dataclass
class At:
    """Where a step stands: the value that flows, and all that it may use.

    Attributes:
        part: its own layer, or None.
        x: float [batch, tokens, width].
        y: float of the same shape, another input.
        ids: int64 [batch, tokens], each below tokens.
        keep: bool [batch, tokens]; the first token is always kept.
        module: which holds the buffers.
        more: outputs beside the last.
    """

    part: Any
    x: torch.Tensor
    y: torch.Tensor
    ids: torch.Tensor
    keep: torch.Tensor
    module: RandomModule
    more: list[Any]

    def turned(self) -> torch.Tensor:
        """x with channels before tokens."""
        return self.x.transpose(1, 2)


Layer = Callable[[int], nn.Module]
Step = tuple[Layer | None, Callable[[At], torch.Tensor]]


def _layer(make: Layer) -> Step:
    return make, lambda at: at.part(at.x)


def _turned(make: Layer) -> Step:
    return make, lambda at: at.part(at.turned()).transpose(1, 2)


def _plane(make: Layer) -> Step:
    return make, lambda at: at.part(at.x.unsqueeze(1)).mean(1)


def _recurrent(make: Layer) -> Step:
    return make, lambda at: at.part(at.x)[0]


def _loss(find: Callable[[At], torch.Tensor]) -> Step:
    def step(at: At) -> torch.Tensor:
        at.more.append(find(at))
        return at.x

    return None, step


def _changed(change: Callable[[torch.Tensor, At], Any]) -> Step:
    """A step in place on a tensor that is the module's own."""

    def step(at: At) -> torch.Tensor:
        y = (at.x * 0.7 + 0.1).contiguous()
        change(y, at)
        return y + at.x

    return None, step


def _line(width: int) -> nn.Module:
    return nn.Linear(width, width)


def _quiet(at: At) -> torch.Tensor:
    with torch.no_grad():
        gate = at.part(at.x).tanh()
    return at.x * gate


def _loud(at: At) -> torch.Tensor:
    with torch.no_grad():
        gate = at.x.sigmoid()
        with torch.enable_grad():
            value = at.part(at.x)
    return value * gate


def _replaced(at: At) -> torch.Tensor:
    m = at.module
    m.mean = 0.9 * m.mean + 0.1 * at.x.detach().mean((0, 1))
    return at.x - m.mean


def _averaged(at: At) -> torch.Tensor:
    m = at.module
    if m.training:
        with torch.no_grad():
            m.mean.lerp_(at.x.mean((0, 1)), 0.1)
    return at.x - m.mean


def _counted(at: At) -> torch.Tensor:
    with torch.no_grad():
        at.module.count.add_(1)
    return at.x / at.module.count


def _sliced_buffer(at: At) -> torch.Tensor:
    with torch.no_grad():
        at.module.mean[:2] = at.x.mean((0, 1))[:2]
    return at.x + at.module.mean


def _attended(at: At, causal: bool = False, mask: bool = False, rate: float = 0.0) -> torch.Tensor:
    heads = at.part(at.x).unflatten(-1, (2, -1)).transpose(1, 2)
    kept = at.keep[:, None, None, :] if mask else None
    rate = rate if at.module.training else 0.0
    made = F.scaled_dot_product_attention(heads, heads, heads, kept, rate, causal)
    return made.transpose(1, 2).flatten(2)


def _by_hand(at: At) -> torch.Tensor:
    scores = at.part(at.x) @ at.turned() / at.x.shape[-1] ** 0.5
    later = torch.ones(scores.shape[-2:]).triu(1).bool()
    return scores.masked_fill(later, float("-inf")).softmax(-1) @ at.x


def _multihead(at: At, weights: bool) -> torch.Tensor:
    made, shares = at.part(
        at.x, at.x, at.x, key_padding_mask=~at.keep, need_weights=weights, attn_mask=None
    )
    if weights:
        at.more.append(shares)
    return torch.as_tensor(made)


def _cells(at: At) -> torch.Tensor:
    hidden, found = torch.zeros_like(at.x[:, 0]), []
    for token in at.x.unbind(1):
        hidden = at.part(token, hidden)
        found.append(hidden)
    return torch.stack(found, 1)


def _pooled(pool: Callable[[torch.Tensor], torch.Tensor]) -> Step:
    return None, lambda at: at.x * pool(at.turned()).transpose(1, 2)


def _of(function: Callable[[torch.Tensor], torch.Tensor]) -> Step:
    return None, lambda at: function(at.x)


def _each(table: dict[str, Callable[[torch.Tensor], torch.Tensor]]) -> dict[str, Step]:
    return {name: _of(function) for name, function in table.items()}


def _one_hot(at: At) -> torch.Tensor:
    hard = F.one_hot(at.x.argmax(-1), at.x.shape[-1]).to(at.x.dtype)
    soft = at.x.softmax(-1)
    return hard - soft.detach() + soft


GRAMMAR: dict[str, dict[str, Step]] = {
    "layers": {
        "linear": _layer(_line),
        "linear without bias": _layer(lambda w: nn.Linear(w, w, bias=False)),
        "feed forward": _layer(
            lambda w: nn.Sequential(nn.Linear(w, 2 * w), nn.GELU(), nn.Linear(2 * w, w))
        ),
        "residual": (_line, lambda at: at.x + at.part(at.x).tanh()),
        "tied": (_line, lambda at: F.linear(at.part(at.x), at.part.weight.t())),
        "weight norm": _layer(lambda w: parametrizations.weight_norm(nn.Linear(w, w))),
        "conv1d": _turned(lambda w: nn.Conv1d(w, w, 3, padding=1)),
        "conv1d in groups": _turned(lambda w: nn.Conv1d(w, w, 3, padding=2, dilation=2, groups=w)),
        "conv1d same, circular": _turned(
            lambda w: nn.Conv1d(w, w, 3, padding="same", padding_mode="circular")
        ),
        "conv2d": _plane(lambda w: nn.Conv2d(1, 3, 3, padding=1)),
        "conv transposed": _turned(lambda w: nn.ConvTranspose1d(w, w, 3, padding=1)),
        "conv2d down and up": _plane(
            lambda w: nn.Sequential(
                nn.Conv2d(1, 4, 2, stride=(1, 2)),
                nn.ReLU(),
                nn.ConvTranspose2d(4, 2, 2, stride=(1, 2)),
            )
        ),
        "LSTM": _recurrent(lambda w: nn.LSTM(w, w, batch_first=True)),
        "LSTM both ways": _recurrent(
            lambda w: nn.LSTM(w, w // 2, batch_first=True, bidirectional=True)
        ),
        "GRU": _recurrent(lambda w: nn.GRU(w, w, batch_first=True)),
        "GRU with dropout": _recurrent(lambda w: nn.GRU(w, w, 2, batch_first=True, dropout=0.2)),
        "RNN": _recurrent(lambda w: nn.RNN(w, w, batch_first=True)),
        "GRU cell": (lambda w: nn.GRUCell(w, w), _cells),
    },
    "norms": {
        "layer norm": _layer(nn.LayerNorm),
        "layer norm without weights": _layer(lambda w: nn.LayerNorm(w, elementwise_affine=False)),
        "RMS norm": _layer(nn.RMSNorm),
        "batch norm": _turned(nn.BatchNorm1d),
        "batch norm, mean of all": _turned(lambda w: nn.BatchNorm1d(w, momentum=None)),
        "batch norm of batches": _turned(lambda w: nn.BatchNorm1d(w, track_running_stats=False)),
        "batch norm 2d": _plane(lambda w: nn.BatchNorm2d(1)),
        "group norm": _turned(lambda w: nn.GroupNorm(2, w)),
        "instance norm": _turned(lambda w: nn.InstanceNorm1d(w, affine=True)),
        "normalize": _of(lambda x: F.normalize(x, dim=-1)),
        "by hand": _of(lambda x: (x - x.mean(-1, True)) / (x.var(-1, keepdim=True) + 1e-3).sqrt()),
    },
    "attention": {
        "by hand": (_line, _by_hand),
        "sdpa": (_line, _attended),
        "sdpa causal": (_line, partial(_attended, causal=True)),
        "sdpa masked": (_line, partial(_attended, mask=True)),
        "sdpa dropout": (_line, partial(_attended, rate=0.3)),
        "multihead": (
            lambda w: nn.MultiheadAttention(w, 2, 0.1, batch_first=True),
            partial(_multihead, weights=False),
        ),
        "multihead with weights": (
            lambda w: nn.MultiheadAttention(w, 2, batch_first=True),
            partial(_multihead, weights=True),
        ),
        "encoder layer": (
            lambda w: nn.TransformerEncoderLayer(w, 2, 2 * w, 0.2, batch_first=True),
            lambda at: at.part(at.x, src_key_padding_mask=~at.keep),
        ),
        "encoder layer, norm first": (
            lambda w: nn.TransformerEncoderLayer(
                w, 2, 2 * w, 0.2, "gelu", batch_first=True, norm_first=True
            ),
            lambda at: at.part(at.x),
        ),
        "decoder layer": (
            lambda w: nn.TransformerDecoderLayer(w, 2, 2 * w, 0.1, batch_first=True),
            lambda at: at.part(at.x, at.y),
        ),
    },
    "dropout": {
        "0.1": _layer(lambda w: nn.Dropout(0.1)),
        "0.5": _layer(lambda w: nn.Dropout(0.5)),
        "of channels": _turned(lambda w: nn.Dropout1d(0.4)),
        "of planes": (
            lambda w: nn.Dropout2d(0.4),
            lambda at: at.part(at.x.unsqueeze(-1)).squeeze(-1),
        ),
        "alpha": _layer(lambda w: nn.AlphaDropout(0.2)),
        "in place": _layer(
            lambda w: nn.Sequential(nn.Linear(w, w), nn.Dropout(0.3, inplace=True), nn.ReLU())
        ),
        "transposed": _turned(lambda w: nn.Dropout(0.3)),
        "expanded": (
            lambda w: nn.Dropout(0.3),
            lambda at: at.x * at.part(at.x.mean(1, True).expand_as(at.x)),
        ),
        "functional": (None, lambda at: F.dropout(at.x, 0.25, at.module.training)),
        "twice": (lambda w: nn.Dropout(0.3), lambda at: at.part(at.x) + at.part(at.x)),
        "of weights": (
            lambda w: nn.Sequential(nn.Linear(w, w), nn.Dropout(0.2)),
            lambda at: F.linear(at.x, at.part[1](at.part[0].weight)),
        ),
    },
    "masks": {
        "zeroed": (None, lambda at: at.x.masked_fill(~at.keep.unsqueeze(-1), 0.0)),
        "multiplied": (None, lambda at: at.x * at.keep.unsqueeze(-1)),
        "additive": (
            None,
            lambda at: (
                at.x.softmax(-1) @ (at.x + (~at.keep)[..., None] * -1e4).softmax(1).mT @ at.x
            ),
        ),
        "where": (None, lambda at: torch.where(at.keep[..., None], at.x, at.y)),
        "mean of kept": (
            None,
            lambda at: (
                at.x
                - (at.x * at.keep[..., None]).sum(1, True)
                / at.keep.sum(1)[:, None, None].clamp(min=1)
            ),
        ),
        "lengths": (
            None,
            lambda at: (
                at.x * (torch.arange(at.x.shape[1]) < at.keep.sum(1, keepdim=True))[..., None]
            ),
        ),
        "causal": _of(lambda x: torch.tril(torch.ones(x.shape[1], x.shape[1])).to(x) @ x),
        "triangle": _of(lambda x: x.tril(1)),
        "of values": _of(lambda x: x * (x > 0)),
        "logical": (
            None,
            lambda at: at.x.masked_fill(
                (at.x > at.y) & at.keep[..., None] | (at.ids == 1)[..., None], 0.5
            ),
        ),
    },
    "views": {
        "permuted": _of(lambda x: x.reshape(len(x), x.shape[2], -1).permute(0, 2, 1).flip(1)),
        "chunks": _of(lambda x: torch.cat(x.chunk(2, -1)[::-1], -1) * x),
        "gated chunks": (lambda w: nn.Linear(w, 2 * w), lambda at: F.glu(at.part(at.x), -1)),
        "unbound": _of(lambda x: torch.stack([t * (i + 1) for i, t in enumerate(x.unbind(1))], 1)),
        "expanded": _of(lambda x: x + x[:, :1].expand_as(x)),
        "windows": _of(lambda x: x * F.pad(x, (0, 0, 2, 0)).unfold(1, 3, 1).mean(-1)),
        "rolled": _of(lambda x: x.roll(1, 1) - x),
        "heads": _of(lambda x: x.view(*x.shape[:2], 2, -1).transpose(2, 3).reshape(x.shape)),
        "every other": _of(lambda x: torch.cat([x[..., ::2], x[..., 1::2]], -1)),
        "rotated": _of(
            lambda x: torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2) * 0.5 + x
        ),
        "repeated": _of(
            lambda x: (
                x.repeat_interleave(2, 1)[:, : x.shape[1]] + x.repeat(1, 1, 2)[..., : x.shape[2]]
            )
        ),
        "padded": _of(lambda x: F.pad(x, (1, -1, 0, 0), value=0.3)),
        "split": _of(lambda x: torch.cat([t.sin() for t in x.split([2, x.shape[2] - 2], -1)], -1)),
        "diagonal": _of(lambda x: x + x[:, :3, :3].diagonal(dim1=1, dim2=2).sum(-1)[:, None, None]),
        "squeezed": _of(
            lambda x: x[:, -1:].squeeze(1).unsqueeze(1) + x.movedim(0, 1).movedim(1, 0)
        ),
        "given out": (None, lambda at: (at.more.append(at.x[:, 0]), at.x * 1.5)[1]),
    },
    "in place": {
        "arithmetic": _changed(lambda y, at: y.mul_(0.5).add_(1).sub_(at.y)),
        "relu": (_line, lambda at: F.relu(at.part(at.x), inplace=True)),
        "slice": _changed(lambda y, at: y[:, 1:].mul_(2)),
        "slice set": _changed(lambda y, at: y.__setitem__((slice(None), 0), at.y[:, 0])),
        "slice of itself": _changed(
            lambda y, at: y.__setitem__((slice(None), slice(1, None)), y[:, 1:] * 2)
        ),
        "column zeroed": _changed(lambda y, at: y[..., 0].zero_()),
        "view": _changed(lambda y, at: y.view(-1).add_(0.5)),
        "transposed": _changed(lambda y, at: y.transpose(1, 2).mul_(at.y.transpose(1, 2))),
        "narrowed": _changed(lambda y, at: y.narrow(2, 2, 3).sigmoid_()),
        "masked": _changed(lambda y, at: y.masked_fill_(~at.keep[..., None], -1.0)),
        "by mask": _changed(lambda y, at: y.__setitem__(~at.keep, 0.0)),
        "by comparison": _changed(lambda y, at: y.__setitem__(y < 0, 0.25)),
        "copied": _changed(lambda y, at: y[:, :2].copy_(at.x[:, :2] * 3)),
        "clamped": _changed(lambda y, at: y.clamp_(-0.5, 0.5)),
        "filled": _of(lambda x: torch.zeros_like(x).index_fill_(1, torch.tensor([0]), 1.0) + x),
        "gathered in a loop": (None, lambda at: _filled_by_rows(at.x)),
        "indices": _changed(lambda y, at: y.index_add_(1, torch.tensor([0, 0]), at.x[:, :2])),
        "addcmul": _changed(lambda y, at: y.addcmul_(at.y, at.x, value=0.1)),
        "another input": (None, lambda at: (at.y * 1).add_(at.x)),
    },
    "without gradients": {
        "detach": _of(lambda x: x * x.detach().sigmoid()),
        "straight through": _of(lambda x: x + ((x * 2).round() / 2 - x).detach()),
        "no_grad": (_line, _quiet),
        "enable_grad": (_line, _loud),
        "data": (_line, lambda at: at.x + at.part.weight.data.sum(0)),
        "detached part": _of(lambda x: torch.cat([x[..., :2].detach(), x[..., 2:]], -1) * 2),
        "scaled gradient": _of(lambda x: x * 0.1 + (x * 0.9).detach()),
        "one hot": (None, _one_hot),
        "given out": (None, lambda at: (at.more.append(at.x.detach()), at.x)[1]),
    },
    "buffers": {
        "replaced": (None, _replaced),
        "averaged": (None, _averaged),
        "counted": (None, _counted),
        "slice written": (None, _sliced_buffer),
        "read": (None, lambda at: at.x * at.module.table[: at.x.shape[1]]),
        "looked up": (None, lambda at: at.x + at.module.table[at.ids]),
    },
    "activations": _each(
        {
            "gelu": F.gelu,
            "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
            "relu": lambda x: F.relu(x - 0.1),
            "silu": F.silu,
            "mish": F.mish,
            "elu": F.elu,
            "selu": F.selu,
            "celu": F.celu,
            "softplus": F.softplus,
            "hardswish": F.hardswish,
            "hardtanh": F.hardtanh,
            "leaky": lambda x: F.leaky_relu(x, 0.2),
            "relu6": F.relu6,
            "sigmoid": torch.sigmoid,
            "log sigmoid": F.logsigmoid,
            "softsign": F.softsign,
            "softmax": lambda x: x.softmax(-1),
            "log softmax": lambda x: x.log_softmax(1),
            "squared relu": lambda x: F.relu(x).square(),
        }
    )
    | {"prelu": _turned(nn.PReLU)},
    "arithmetic": _each(
        {
            "powers": lambda x: x.abs().pow(1.5) + x**3 * 0.1 + x.square(),
            "exponentials": lambda x: (
                (x.tanh().exp() + 1).log() + x.abs().log1p() + x.sin().expm1()
            ),
            "roots": lambda x: (x.square() + 1).rsqrt() + (x.abs() + 0.5).sqrt().reciprocal(),
            "clamp": lambda x: x.clamp(-1, 1) + x.clamp(min=0.2),
            "halves": lambda x: x.half().float() + x,
            "double": lambda x: (x.double() * 1.5).to(x.dtype),
            "bfloat16": lambda x: x.to(torch.bfloat16).to(x.dtype) * 2,
            "remainder": lambda x: torch.remainder(x, 0.7) + x.floor() * 0.1 + x,
            "signs": lambda x: x.sign() * x.abs() + x.erf() + x.atan(),
            "outer": lambda x: torch.einsum("btw,bsw->bts", x, x) @ x * 0.1,
            "einsum": lambda x: torch.einsum("btw,bsw,bsv->btv", x, x, x.tanh()) * 0.1,
            "complement": lambda x: 1 - x,
        }
    )
    | {
        "extremes": (None, lambda at: torch.maximum(at.x, at.y) - torch.minimum(at.x, at.y * 2)),
        "lerp": (None, lambda at: torch.lerp(at.x, at.y, 0.3)),
        "addmm": (_line, lambda at: torch.baddbmm(at.x, at.x @ at.y.mT, at.y, beta=0.5, alpha=0.2)),
        "integers": (None, lambda at: at.x * ((at.ids * 3 + 1) % 5 - at.ids // 2)[..., None]),
        "bools": (None, lambda at: at.x + (at.ids > 1).sum(-1)[:, None, None] * 0.1),
        "quotient": (None, lambda at: at.x / (at.y.square() + 1)),
        "parameter": (
            lambda w: nn.ParameterList([torch.ones(w), torch.zeros(())]),
            lambda at: at.x * at.part[0] + at.part[1],
        ),
    },
    "reductions": _each(
        {
            "mean": lambda x: x - x.mean((1, 2), keepdim=True),
            "std": lambda x: x / (x.std(1, keepdim=True) + 0.5),
            "norm": lambda x: x / (1 + x.norm(dim=-1, keepdim=True)),
            "logsumexp": lambda x: x - x.logsumexp(-1, keepdim=True),
            "cumsum": lambda x: x.cumsum(1) / x.shape[1],
            "amax": lambda x: x * x.amax(-1, keepdim=True),
            "max": lambda x: x - x.max(1, keepdim=True).values,
            "min": lambda x: x + x.min(),
            "topk": lambda x: x * x.topk(2, -1).values.sum(-1, keepdim=True),
            "sort": lambda x: x.sort(-1, descending=True).values + x,
            "prod": lambda x: x + x.tanh().prod(-1, keepdim=True),
            "var and mean": lambda x: sum(torch.var_mean(x, 1, keepdim=True), x),
            "cosine": lambda x: x * F.cosine_similarity(x, x.roll(1, 1), dim=-1)[..., None],
            "any": lambda x: x * (x > 1).any(-1, keepdim=True),
            "attended mean": lambda x: (x.mean(-1, True).softmax(1) * x).sum(1, True) + x,
        }
    )
    | {
        "argmax given out": (None, lambda at: (at.more.append(at.x.argmax(-1)), at.x)[1]),
        "several given out": (
            None,
            lambda at: (at.more.append({"top": at.x.topk(3, -1), "n": 3, "no": None}), at.x)[1],
        ),
    },
    "indices": {
        "embedding": (lambda w: nn.Embedding(8, w), lambda at: at.x + at.part(at.ids)),
        "embedding padded": (
            lambda w: nn.Embedding(8, w, padding_idx=1),
            lambda at: at.x + at.part(at.ids),
        ),
        "embedding by frequency": (
            lambda w: nn.Embedding(8, w, scale_grad_by_freq=True),
            lambda at: at.x + at.part(at.ids),
        ),
        "embedding and head": (
            lambda w: nn.Embedding(w, w),
            lambda at: F.linear(at.x + at.part(at.ids), at.part.weight),
        ),
        "positions": (
            lambda w: nn.Embedding(8, w),
            lambda at: at.x + at.part(torch.arange(at.x.shape[1])),
        ),
        "gather": (None, lambda at: at.x + at.x.gather(1, at.ids[..., None].expand_as(at.x))),
        "take along": (None, lambda at: at.x * torch.take_along_dim(at.x, at.ids[..., None], 2)),
        "scatter add": (
            None,
            lambda at: at.y.scatter_add(1, at.ids[..., None].expand_as(at.x), at.x),
        ),
        "scatter": (None, lambda at: at.x.scatter(2, at.ids[..., None], 0.5)),
        "rows": (None, lambda at: at.x[torch.arange(len(at.x))[:, None], at.ids] + at.x),
        "index select": (None, lambda at: at.x.index_select(1, at.ids[0]) + at.x),
        "index add": (None, lambda at: at.x.index_add(1, at.ids[0], at.x * 0.5)),
        "reversed": _of(lambda x: x[:, torch.arange(x.shape[1] - 1, -1, -1)] * 2),
        "one hot": (None, lambda at: F.one_hot(at.ids, at.x.shape[1]).to(at.x.dtype) @ at.x),
        "sorted order": _of(lambda x: x + x.gather(1, x.argsort(1))),
    },
    "pools": {
        "mean": _pooled(lambda x: F.avg_pool1d(x, 3, 1, 1)),
        "mean of counted": _pooled(lambda x: F.avg_pool1d(x, 3, 1, 1, count_include_pad=False)),
        "largest": _pooled(lambda x: F.max_pool1d(x, 3, 1, 1)),
        "global": _pooled(lambda x: F.adaptive_avg_pool1d(x, 1)),
        "largest of planes": (None, lambda at: at.x + F.max_pool2d(at.x[:, None], 3, 1, 1)[:, 0]),
        "up and down": (
            None,
            lambda at: F.avg_pool2d(F.interpolate(at.x[:, None], scale_factor=2), 2)[:, 0],
        ),
        "bilinear": (
            None,
            lambda at: F.avg_pool2d(
                F.interpolate(at.x[:, None], scale_factor=2, mode="bilinear"), 2
            )[:, 0],
        ),
    },
    "losses": {
        "cross entropy": _loss(lambda at: F.cross_entropy(at.x.flatten(0, 1), at.ids.flatten())),
        "cross entropy, ignoring": _loss(
            lambda at: F.cross_entropy(at.x.mT, at.ids, ignore_index=1, label_smoothing=0.1)
        ),
        "cross entropy of each": _loss(
            lambda at: F.cross_entropy(at.x.mT, at.ids, reduction="none")
        ),
        "cross entropy of shares": _loss(
            lambda at: F.cross_entropy(at.x.flatten(0, 1), at.y.flatten(0, 1).softmax(-1))
        ),
        "nll": _loss(lambda at: F.nll_loss(at.x.log_softmax(-1).flatten(0, 1), at.ids.flatten())),
        "mse": _loss(lambda at: F.mse_loss(at.x, at.y)),
        "l1": _loss(lambda at: F.l1_loss(at.x, at.y, reduction="sum")),
        "smooth l1": _loss(lambda at: F.smooth_l1_loss(at.x, at.y, beta=0.5)),
        "huber": _loss(lambda at: F.huber_loss(at.x, at.y)),
        "binary": _loss(
            lambda at: F.binary_cross_entropy_with_logits(
                at.x[..., 0], at.keep.to(at.x.dtype), pos_weight=torch.tensor(2.0).to(at.x)
            )
        ),
        "divergence": _loss(
            lambda at: F.kl_div(at.x.log_softmax(-1), at.y.softmax(-1), reduction="batchmean")
        ),
        "cosine": _loss(lambda at: 1 - F.cosine_similarity(at.x, at.y, -1).mean()),
        "triplet": _loss(lambda at: F.triplet_margin_loss(at.x, at.y, at.x.flip(1))),
        "used": (None, lambda at: at.x * (1 + F.mse_loss(at.x, at.y))),
    },
}
RARE = {
    "layers: GRU with dropout",
    "layers: GRU cell",
    "norms: batch norm, mean of all",
    "arithmetic: bfloat16",
    "reductions: topk",
    "reductions: prod",
    "reductions: several given out",
    "indices: embedding by frequency",
    "indices: reversed",
    "losses: cross entropy, ignoring",
    "losses: cross entropy of shares",
}
"""What an engine refuses is drawn seldom: a module that is refused proves nothing."""
STEPS = {f"{group}: {n}": step for group, steps in GRAMMAR.items() for n, step in steps.items()}


def _filled_by_rows(x: torch.Tensor) -> torch.Tensor:
    made = torch.zeros_like(x)
    for i in range(x.shape[1]):
        made[:, i] = x[:, i] * (i + 1)
    return made


class RandomModule(nn.Module):
    """A module drawn from a seed.

    Attributes:
        recipe: names of its steps in order.

    Args:
        recipe: other steps than those that the seed draws.
    """

    def __init__(self, seed: int, recipe: Sequence[str] | None = None) -> None:
        super().__init__()
        drawn = random.Random(seed)
        self.sizes = drawn.choice(SIZES)
        names = []
        for group in drawn.choices(list(GRAMMAR), k=drawn.randint(2, 7)):
            steps = [f"{group}: {n}" for n in GRAMMAR[group]]
            names += drawn.choices(steps, [0.1 if n in RARE else 1.0 for n in steps])
        self.recipe = names if recipe is None else list(recipe)
        self.flows = drawn.random() < 0.8  # whether the inputs require gradients
        torch.manual_seed(seed)
        width = self.sizes[2]
        layers = [STEPS[name][0] for name in self.recipe]
        self.parts = nn.ModuleList(make(width) if make else nn.Identity() for make in layers)
        for parameter in self.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
            parameter.requires_grad_(drawn.random() < 0.9)
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("count", torch.ones(()))
        self.register_buffer("table", torch.randn(8, width))

    def forward(
        self, x: torch.Tensor, y: torch.Tensor, ids: torch.Tensor, keep: torch.Tensor
    ) -> Any:
        more: list[Any] = []
        for name, part in zip(self.recipe, self.parts, strict=True):
            x = STEPS[name][1](At(part, x, y, ids, keep, self, more))
        return (x * 2, {"more": more}) if more else x * 2

    def inputs(self, dtype: torch.dtype, flows: bool) -> tuple[torch.Tensor, ...]:
        """Inputs by PyTorch's generator as it stands."""
        batch, tokens, width = self.sizes
        x, y = (torch.randn(batch, tokens, width).to(dtype) for _ in range(2))
        ids = torch.randint(tokens, (batch, tokens))
        keep = torch.rand(batch, tokens) > 0.3
        keep[:, 0] = True
        return x.requires_grad_(flows), y.requires_grad_(flows), ids, keep


def results(module: nn.Module, plain: RandomModule, seed: int) -> dict[str, Any]:
    """What calls in both modes give: outputs, gradients, buffers and the generator's state.

    Args:
        module: what is called, in float32 or float64.
        plain: knows the inputs.
    """
    found: dict[str, Any] = {}
    dtype = module.get_buffer("mean").dtype
    runs = [(True, True), (True, True), (False, True), (seed % 2 == 0, False)][: 3 + (seed % 3 > 0)]
    torch.manual_seed(seed)
    for call, (training, recorded) in enumerate(runs):
        module.train(training)
        values = plain.inputs(dtype, recorded and plain.flows)
        with torch.set_grad_enabled(recorded):
            out, form = pytree.tree_flatten(module(*values))
        at = f"call {call} in {'train' if training else 'eval'}:"
        outs = [o for o in out if isinstance(o, torch.Tensor)]
        found[f"{at} form"] = form, [o for o in out if not isinstance(o, torch.Tensor)]
        found |= {f"{at} output {i}": o.detach().clone() for i, o in enumerate(outs)}
        found[f"{at} what flows"] = [o.requires_grad for o in outs]
        found |= {f"{at} {n}": b.detach().clone() for n, b in module.named_buffers()}
        found |= {f"{at} input {i}": v.detach().clone() for i, v in enumerate(values)}
        leaves = dict(zip("xy", values[:2], strict=True)) | dict(module.named_parameters())
        leaves = {n: v for n, v in leaves.items() if v.requires_grad}
        drawn = torch.Generator().manual_seed(seed + 1_000_000)  # unlike the inputs
        weights = [torch.randn(o.shape, generator=drawn).to(o.dtype) for o in outs]
        ends = [(o, w) for o, w in zip(outs, weights, strict=True) if o.requires_grad]
        if ends and leaves:
            given = [o for o, _ in ends], list(leaves.values()), [w for _, w in ends]
            grads = torch.autograd.grad(*given, allow_unused=True)
            found |= {f"{at} gradient of {n}": g for n, g in zip(leaves, grads, strict=True)}
    return {**found, "the generator's state": torch.get_rng_state()}


def _short(value: Any) -> str:
    return "a tensor" if isinstance(value, torch.Tensor) else str(value)[:60]


def _off(ours: Any, theirs: Any, exact: Callable[[], Any]) -> str:
    """How a result differs from PyTorch's, "" where it does not."""
    if not isinstance(theirs, torch.Tensor) or not isinstance(ours, torch.Tensor):
        same = type(ours) is type(theirs) and ours == theirs
        return "" if same else f"{_short(ours)} for {_short(theirs)}"
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        types = [f"{str(t.dtype)[6:]}{list(t.shape)}" for t in (ours, theirs)]
        return f"{types[0]} for {types[1]}"
    a, b = ours.double(), theirs.double()
    scale = max(1e-6, float(b.abs().nan_to_num(0, 0, 0).max())) if b.numel() else 1.0
    close = partial(torch.allclose, rtol=0, equal_nan=True)
    if torch.equal(a, b) or (theirs.is_floating_point() and close(a, b, atol=_TOLERANCE * scale)):
        return ""
    judge = exact()
    theirs_off = float((b - judge).abs().nan_to_num(0, 0, 0).max())
    # A gradient that is 0 but for rounding has no digit, as that of a bias before a batch norm.
    only_rounding = float(judge.abs().nan_to_num(0, 0, 0).max()) < theirs_off
    room = (16 if only_rounding else 4) * theirs_off + _TOLERANCE * scale
    if theirs.is_floating_point() and close(a, judge, atol=room):
        return ""
    return f"{float((a - b).abs().max()):.3g} off of {scale:.3g}"


def verdict(
    seed: int, engine: str, target: str | None = None, recipe: Sequence[str] | None = None
) -> tuple[str, str]:
    """One module: "right", "refused", "wrong", or "void" where PyTorch cannot run it itself; and
    what is to be said of it."""
    module = RandomModule(seed, recipe)
    plain, exact = copy.deepcopy(module), copy.deepcopy(module).double()
    named = f"of module {seed}: {', '.join(module.recipe)}"
    try:
        theirs = results(copy.deepcopy(plain), plain, seed)
    except RuntimeError as error:
        return "void", f"PyTorch cannot run it: {lines_of(error)[-1]} {named}"
    try:
        samples = module.inputs(torch.float32, False)
        add_tvm_dispatch(module, samples, engine=engine, target=target, verify=False)
        ours = results(module, plain, seed)
    except EngineError as error:
        in_words = error.kind in ("operator", "pass", "input") and "fault of ours" not in error.hint
        return ("refused" if in_words else "wrong"), f"{error.message} ({error.where}) {named}"
    except Exception as error:
        return "wrong", f"{type(error).__name__}: {lines_of(error)[-1]} {named}"
    if module.forward.calls["own"]:  # type: ignore[attr-defined]
        return "wrong", f"{module.forward.calls} calls {named}"  # type: ignore[attr-defined]
    if list(ours) != list(theirs):
        return "wrong", f"{set(ours) ^ set(theirs)} {named}"
    judged: dict[str, Any] = {}

    def judge(name: str) -> Any:
        judged.update(judged or results(exact, plain, seed))
        return judged[name].double()

    for name, value in theirs.items():
        if said := _off(ours[name], value, partial(judge, name)):
            return "wrong", f"{name}: {said} {named}"
    return "right", named


def fewest(seed: int, engine: str, target: str | None, recipe: Sequence[str]) -> list[str]:
    """The steps of a wrong module without any of which it is not."""
    kept = list(recipe)
    for step in recipe:
        fewer = list(kept)
        fewer.remove(step)
        if fewer and verdict(seed, engine, target, fewer)[0] == "wrong":
            kept = fewer
    return kept


def main() -> int:
    """Try modules; 1 where one is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--engine", choices=("relay", "relax"), default="relax")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--first", type=int, default=0, help="seed of the first module")
    parser.add_argument("--steps", action="store_true", help="each step of the grammar alone")
    parser.add_argument("--target", help="TVM's target; without it the machine's own")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter()
    refusals: Counter[str] = Counter()
    alone = list(STEPS) if options.steps else []
    for seed in range(options.first, options.first + (len(alone) or options.count)):
        recipe = [alone[seed - options.first]] if alone else RandomModule(seed).recipe
        word, about = verdict(seed, options.engine, options.target, recipe)
        counts[word] += 1
        if word in ("right", "void"):
            continue
        print(f"{word}: {about}", flush=True)
        if word == "refused":
            refusals[re.sub(r"( in [\w.]+| at the top)?\) of module .*", ")", about)] += 1
        else:
            print("  by", ", ".join(fewest(seed, options.engine, options.target, recipe)))
    print("\n".join(f"refused {n} times: {why}" for why, n in refusals.most_common()))
    print(", ".join(f"{counts[w]} {w}" for w in ("right", "refused", "wrong", "void")))
    return int(bool(counts["wrong"]))


if __name__ == "__main__":
    raise SystemExit(main())
