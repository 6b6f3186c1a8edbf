"""Random modules through `add_tvm_dispatch` without its own check, against PyTorch.

    python bench/random_modules.py --engine relax --count 50 [--first 0]

Each module is drawn from a seed: layers, dropout, masks, views, steps in place, `detach`, regions
without gradients, buffers, several outputs. It runs twice in train and twice in eval mode; outputs,
gradients, buffers and the generator's state must be PyTorch's. Prints each module that is wrong,
with its recipe, and the counts of right, refused and wrong; ends with 1 where one is wrong.
"""

from __future__ import annotations

import argparse
import copy
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from relascope.core.errors import EngineError, lines_of
from relascope.engine.dispatch import add_tvm_dispatch

_WIDTH, _TOKENS, _BATCH = 8, 4, 3
Step = Callable[["RandomModule", int, torch.Tensor], torch.Tensor]


def _quiet(m: RandomModule, i: int, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return m.layer[i](x).tanh()


def _in_place(m: RandomModule, i: int, x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    y.mul_(0.5)
    return y


def _slice_written(m: RandomModule, i: int, x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, 1:] = y[:, 1:] * 2
    return y


def _moved(m: RandomModule, i: int, x: torch.Tensor) -> torch.Tensor:
    m.mean = 0.9 * m.mean + 0.1 * x.detach().mean((0, 1))
    return x - m.mean


def _counted(m: RandomModule, i: int, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        m.count.add_(1)
    return x * m.count


def _attended(m: RandomModule, i: int, x: torch.Tensor) -> torch.Tensor:
    scores = (x @ m.layer[i](x).transpose(1, 2)).masked_fill(m.mask, float("-inf"))
    return scores.softmax(-1) @ x


STEPS: dict[str, Step] = {
    "linear": lambda m, i, x: m.layer[i](x),
    "norm": lambda m, i, x: m.norm[i](x),
    "batch_norm": lambda m, i, x: m.batch[i](x.transpose(1, 2)).transpose(1, 2),
    "dropout": lambda m, i, x: m.drop[i](x),
    "conv": lambda m, i, x: m.conv[i](x.transpose(1, 2)).transpose(1, 2),
    "gelu": lambda m, i, x: F.gelu(x),
    "relu": lambda m, i, x: F.relu(x - 0.1),
    "relu_": lambda m, i, x: F.relu(m.layer[i](x), inplace=True),
    "masked": lambda m, i, x: x.masked_fill(m.mask[:, :1], 0.0),
    "attention": _attended,
    "view": lambda m, i, x: x.reshape(_BATCH, _WIDTH, _TOKENS).permute(0, 2, 1).flip(1),
    "chunk": lambda m, i, x: torch.cat(x.chunk(2, -1)[::-1], -1) * x,
    "in place": _in_place,
    "slice written": _slice_written,
    "detach": lambda m, i, x: x * x.detach().sigmoid(),
    "straight through": lambda m, i, x: x + (x.round() - x).detach(),
    "no_grad": lambda m, i, x: x * _quiet(m, i, x),
    "data": lambda m, i, x: x + m.layer[i].weight.data.sum(0),
    "buffer replaced": _moved,
    "buffer counted": _counted,
    "residual": lambda m, i, x: x + m.layer[i](x).tanh(),
    "cumsum": lambda m, i, x: x.cumsum(1) / _TOKENS,
    "where": lambda m, i, x: torch.where(x > 0, x, x * 0.1),
    "topk": lambda m, i, x: x * x.amax(-1, keepdim=True),
}


class RandomModule(nn.Module):
    """A module drawn from a seed.

    Attributes:
        recipe: names of its steps in order; every second one may add an output.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        drawn = random.Random(seed)
        self.recipe = drawn.choices(list(STEPS), k=drawn.randint(2, 7))
        self.extra = [drawn.random() < 0.25 for _ in self.recipe]
        torch.manual_seed(seed)
        count = len(self.recipe)
        self.layer = nn.ModuleList(nn.Linear(_WIDTH, _WIDTH) for _ in range(count))
        self.norm = nn.ModuleList(nn.LayerNorm(_WIDTH) for _ in range(count))
        self.batch = nn.ModuleList(nn.BatchNorm1d(_WIDTH) for _ in range(count))
        self.conv = nn.ModuleList(nn.Conv1d(_WIDTH, _WIDTH, 3, padding=1) for _ in range(count))
        self.drop = nn.ModuleList(nn.Dropout(drawn.choice((0.1, 0.5))) for _ in range(count))
        self.register_buffer("mask", torch.ones(_TOKENS, _TOKENS).triu(1).bool())
        self.register_buffer("mean", torch.zeros(_WIDTH))
        self.register_buffer("count", torch.ones(()))

    def forward(self, x: torch.Tensor) -> Any:
        extra = []
        for i, (name, more) in enumerate(zip(self.recipe, self.extra, strict=True)):
            x = STEPS[name](self, i, x)
            if more:
                extra.append(x.sum(-1) if i % 2 else x.detach())
        return (x * 2, {"extra": extra}) if extra else x * 2


def results(module: nn.Module, seed: int) -> dict[str, torch.Tensor]:
    """What two calls in each mode give, with gradients, buffers and the generator's state."""
    found: dict[str, torch.Tensor] = {}
    torch.manual_seed(seed)
    for training in (True, False):
        module.train(training)
        for call in range(2):
            x = torch.randn(_BATCH, _TOKENS, _WIDTH).requires_grad_()
            out = module(x)
            outs = [out] if isinstance(out, torch.Tensor) else [out[0], *out[1]["extra"]]
            found |= {f"{training} {call} output {i}": o for i, o in enumerate(outs)}
            weights = [torch.linspace(-1, 1, o.numel()).reshape(o.shape) for o in outs]
            ends = [(o, w) for o, w in zip(outs, weights, strict=True) if o.requires_grad]
            leaves = {"x": x, **dict(module.named_parameters())}
            given = [o for o, _ in ends], list(leaves.values()), [w for _, w in ends]
            grads = torch.autograd.grad(*given, allow_unused=True)
            for (name, leaf), grad in zip(leaves.items(), grads, strict=True):
                made = torch.zeros_like(leaf) if grad is None else grad
                found[f"{training} {call} gradient of {name}"] = made
            found |= {f"{training} {call} {n}": b.clone() for n, b in module.named_buffers()}
    return {**found, "generator": torch.get_rng_state()}


def verdict(seed: int, engine: str, target: str | None = None) -> tuple[str, str]:
    """One module: "right", "refused" or "wrong", and what is to be said of it."""
    module = RandomModule(seed)
    recipe = ", ".join(module.recipe)
    plain = copy.deepcopy(module)
    try:
        sample = torch.randn(_BATCH, _TOKENS, _WIDTH)
        add_tvm_dispatch(module, sample, engine=engine, target=target, verify=False)
        ours = results(module, seed)
    except EngineError as error:
        return "refused", f"{error.message} ({error.where})"
    except Exception as error:
        return "wrong", f"{type(error).__name__}: {lines_of(error)[-1]} of module {seed}: {recipe}"
    theirs = results(plain, seed)
    for name, value in theirs.items():
        scale = max(1.0, float(value.double().abs().nan_to_num(0, 0, 0).max()))
        close = torch.allclose(
            ours[name].double(), value.double(), rtol=0, atol=1e-3 * scale, equal_nan=True
        )
        if not close or ours[name].requires_grad != value.requires_grad:
            return "wrong", f"{name} of module {seed}: {recipe}"
    return "right", recipe


def main() -> int:
    """Try modules; 1 where one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--engine", choices=("relay", "relax"), default="relax")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--first", type=int, default=0, help="seed of the first module")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    for seed in range(options.first, options.first + options.count):
        word, about = verdict(seed, options.engine)
        counts[word] += 1
        if word != "right":
            print(f"{word}: {about}", flush=True)
    print(", ".join(f"{counts[w]} {w}" for w in ("right", "refused", "wrong")))
    return int(bool(counts["wrong"]))


if __name__ == "__main__":
    raise SystemExit(main())
