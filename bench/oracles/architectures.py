"""What `bench/zoo.py` opens: tiny models of many architectures, by name, with random weights.

Models of transformers stand in `architectures.txt`, by kind: a model's name, its class, its inputs
joined by +, and its options, where $ stands for others with a name; what stands further to the
right goes on. What transformers does not have stands here as modules of a few lines.
"""

import ast
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

Tensors = tuple[torch.Tensor, ...]
VOCABULARY, _TOKENS, _SIDE = 99, 7, 32


class Positional(nn.Module):
    """A model with inputs by position, which returns the tensors of its output in order."""

    def __init__(self, whole: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.whole, self.names = whole, names

    def forward(self, *given: torch.Tensor) -> Tensors:
        """The tensors of the output."""
        made = self.whole(**dict(zip(self.names, given, strict=True)))
        return tuple(t for t in pytree.tree_leaves(made) if isinstance(t, torch.Tensor))


def _ids(end: int | None = None) -> torch.Tensor:
    ids = torch.randint(5, VOCABULARY - 5, (2, _TOKENS))
    if end is not None:
        ids[:, -1] = end
    return ids


def _mask(padding: int) -> torch.Tensor:
    mask = torch.ones(2, _TOKENS, dtype=torch.int64)
    mask[1, _TOKENS - padding :] = 0
    return mask


def inputs_by_name(
    batch: int = 1,
    image: tuple[int, int] = (3, _SIDE),
    sound: tuple[int, int] = (8, 40),
    end: int | None = None,
    padding: int = 2,
) -> dict[str, Callable[[], torch.Tensor]]:
    """What makes each input of a model of transformers; of tokens there are always two rows.

    Args:
        image: its channels and its side.
        sound: bins and frames of a spectrogram.
        end: the last token of each row.
        padding: tokens at the end of the second row that its mask hides.
    """
    return {
        "input_ids": partial(_ids, end),
        "attention_mask": partial(_mask, padding),
        "decoder_input_ids": partial(_ids, end),
        "pixel_values": lambda: torch.randn(batch, *image, image[1]),
        "input_values": lambda: torch.randn(batch, 1000),
        "input_features": lambda: torch.randn(batch, *sound),
        "past_values": lambda: torch.randn(batch, 32, 2),
        "bbox": lambda: torch.randint(0, 30, (2, _TOKENS, 4)).sort(-1).values,
    }


_INPUTS = inputs_by_name() | {
    "spectrogram": lambda: torch.randn(1, 40, 16),
    "inputs": lambda: torch.randn(1, 9, 12),
    # Two: of one, PyTorch 2.13 takes another gradient of a batch norm whose result is transposed.
    "images": lambda: torch.randn(2, 3, _SIDE, _SIDE),
}
_RENAMED = {"spectrogram": "input_values", "images": "pixel_values"}


def _block(inside: int, outside: int, stride: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outside), nn.ReLU(inplace=True))


def _alexnet() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 11, 4, 5), nn.ReLU(), nn.LocalResponseNorm(5), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d((2, 2)), nn.Flatten()),
        *(nn.Dropout(), nn.Linear(128, 32), nn.ReLU(), nn.Linear(32, 10)),
    )


def _vgg() -> nn.Module:
    stages = [x for a, b in ((3, 8), (8, 16)) for x in (_block(a, b), nn.MaxPool2d(2, 2))]
    return nn.Sequential(*stages, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 10))


class _Together(nn.Module):
    """Branches side by side, joined along the channels, as in Inception and SqueezeNet."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The branches' results, joined."""
        return torch.cat([b(x) for b in self.branches], 1)


def _inception() -> nn.Module:
    pool = nn.Sequential(nn.AvgPool2d(3, 1, 1, count_include_pad=False), nn.Conv2d(8, 4, 1))
    tall = nn.Sequential(
        nn.Conv2d(8, 4, (1, 7), padding=(0, 3)), nn.Conv2d(4, 4, (7, 1), padding=(3, 0))
    )
    mixed = _Together(nn.Conv2d(8, 4, 1), _block(8, 8), tall, pool)
    return nn.Sequential(
        _block(3, 8, 2), mixed, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(20, 10)
    )


def _squeezenet() -> nn.Module:
    fire = nn.Sequential(
        nn.Conv2d(16, 4, 1), nn.ReLU(), _Together(nn.Conv2d(4, 8, 1), nn.Conv2d(4, 8, 3, padding=1))
    )
    pool = nn.MaxPool2d(3, 2, ceil_mode=True)
    return nn.Sequential(
        _block(3, 16, 2), pool, fire, nn.Conv2d(16, 10, 1), nn.AdaptiveAvgPool2d(1)
    )


class _DenseNet(nn.Module):
    """Each layer reads all before it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(c), nn.ReLU(), nn.Conv2d(c, 8, 3, padding=1, bias=False))
            for c in (3, 11, 19)
        )
        self.end = nn.Linear(27, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of classes."""
        seen = [x]
        for layer in self.layers:
            seen.append(layer(torch.cat(seen, 1)))
        made: torch.Tensor = self.end(F.avg_pool2d(torch.cat(seen, 1), _SIDE).flatten(1))
        return made


class _ShuffleNet(nn.Module):
    """Half of the channels go by; then they are shuffled."""

    def __init__(self) -> None:
        super().__init__()
        self.begin = _block(3, 16, 2)
        deep = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        self.branch = nn.Sequential(nn.Conv2d(8, 8, 1), nn.ReLU(), deep, nn.BatchNorm2d(8))
        self.end = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of classes."""
        a, b = self.begin(x).chunk(2, 1)
        x = torch.cat([a, self.branch(b)], 1)
        n, c, h, w = x.shape
        x = x.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w)
        made: torch.Tensor = self.end(x.mean((2, 3)))
        return made


class _UNet(nn.Module):
    """Down, and up again beside what was there.

    Args:
        up: "learned" for transposed convolutions, else a mode of interpolation.
    """

    def __init__(self, up: str) -> None:
        super().__init__()
        self.up = up
        self.first, self.second, self.third = _block(3, 8), _block(8, 16), _block(16, 16)
        self.wider = nn.ConvTranspose2d(16, 16, 2, 2) if up == "learned" else nn.Conv2d(16, 16, 1)
        self.fourth, self.fifth = _block(32, 8), _block(16, 8)
        self.end = nn.Conv2d(8, 2, 1)

    def _larger(self, x: torch.Tensor) -> torch.Tensor:
        corners = {"align_corners": False} if self.up == "bilinear" else {}
        return F.interpolate(x, scale_factor=2, mode=self.up, **corners)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of each pixel's classes."""
        one = self.first(x)
        two = self.second(F.max_pool2d(one, 2))
        three = self.wider(self.third(F.max_pool2d(two, 2)))
        mode = "nearest" if self.up == "learned" else self.up
        three = three if self.up == "learned" else self._larger(three)
        four = self.fourth(torch.cat([two, three], 1))
        made: torch.Tensor = self.end(
            self.fifth(torch.cat([one, F.interpolate(four, size=one.shape[2:], mode=mode)], 1))
        )
        return made


class _Recurrent(nn.Module):
    """Tokens through a recurrent net of two layers, then classes."""

    def __init__(self, kind: type[nn.RNNBase], both: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 16)
        self.inner = kind(16, 12, num_layers=1, batch_first=True, bidirectional=both)
        self.end = nn.Linear(24 if both else 12, 10)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Scores of classes."""
        states = self.inner(self.embedding(ids))[0]
        made: torch.Tensor = self.end(states[:, -1])
        return made


class _Causal(nn.Module):
    """Dilated convolutions over time that see the past alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv1d(8, 8, 3, dilation=d) for d in (1, 2, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As long as what it gets."""
        for layer in self.layers:
            x = x + F.relu(layer(F.pad(x, (2 * layer.dilation[0], 0))))
        return x


def _image() -> Tensors:
    return (torch.randn(1, 3, _SIDE, _SIDE),)


def _tokens() -> Tensors:
    return (_ids(),)


_OWN: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensors]]] = {
    "alexnet": (_alexnet, _image),
    "vgg": (_vgg, _image),
    "inception": (_inception, _image),
    "squeezenet": (_squeezenet, _image),
    "densenet": (_DenseNet, _image),
    "shufflenet": (_ShuffleNet, _image),
    "unet": (lambda: _UNet("learned"), _image),
    "unet-nearest": (lambda: _UNet("nearest"), _image),
    "unet-bilinear": (lambda: _UNet("bilinear"), _image),
    "rnn": (lambda: _Recurrent(nn.RNN), _tokens),
    "lstm": (lambda: _Recurrent(nn.LSTM), _tokens),
    "lstm-both-ways": (lambda: _Recurrent(nn.LSTM, True), _tokens),
    "gru": (lambda: _Recurrent(nn.GRU), _tokens),
    "tcn": (_Causal, lambda: (torch.randn(1, 8, 20),)),
    "transformer": (
        lambda: nn.Transformer(32, 4, 1, 1, 64, batch_first=True),
        lambda: (torch.randn(2, 5, 32), torch.randn(2, 4, 32)),
    ),
}


def _read(table: str) -> dict[str, dict[str, list[str]]]:
    """By kind and name the words of a table."""
    found: dict[str, dict[str, list[str]]] = {}
    for line in table.replace("\n      ", " ").strip().splitlines():
        if line.startswith(" "):
            name, *words = line.split()
            found[next(reversed(found))][name] = words
        else:
            found[line.rstrip(":")] = {}
    return found


_KINDS = _read(Path(__file__).with_suffix(".txt").read_text(encoding="utf-8"))
_SETS = _KINDS.pop("Options")
GROUPS = {k: list(rows) for k, rows in _KINDS.items()} | {"Classic nets": list(_OWN)}
"""Names by kind; `architecture` makes a model of each."""


def _options(words: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for word in words:
        name, _, value = word.partition("=")
        found |= {name: ast.literal_eval(value)} if value else _options(_SETS[name])
    return found


def architecture(name: str) -> tuple[nn.Module, Tensors]:
    """A model in eval mode with random weights, and its inputs; the same each time."""
    torch.manual_seed(0)
    if name in _OWN:
        make, inputs = _OWN[name]
        return make().eval(), inputs()
    import transformers

    kind, wanted, *words = next(rows[name] for rows in _KINDS.values() if name in rows)
    options, names = _options(words), wanted.split("+")
    of = getattr(transformers, kind)
    config = of.config_class(**options)
    if hasattr(config, "use_cache"):
        config.use_cache = False
    whole = of(config)
    given = [_INPUTS[n]() for n in names]
    if isinstance(side := options.get("image_size"), int):
        given = [torch.randn(len(given[0]), 3, side, side)]
    return Positional(whole, tuple(_RENAMED.get(n, n) for n in names)).eval(), tuple(given)
