"""Random modules through `add_tvm_dispatch` without its own check, against PyTorch (see
random_modules.py).

Each module is drawn from a seed: two to seven steps of a grammar of layers, dropouts, masks, views,
steps in place, regions without gradients, buffers, indices and losses, with several outputs. It
runs in train and eval mode, with and without gradients. Outputs, gradients of inputs and
parameters, buffers and the generator's state must be PyTorch's, by dtype, shape and value."""

import copy
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.utils import _pytree as pytree

from limits import GRADIENT
from relascope.core.errors import EngineError, lines_of
from relascope.engine.dispatch import add_tvm_dispatch

SIZES = (3, 4, 8), (1, 6, 8), (2, 5, 12)
"""Batch, tokens, width."""


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
        more: outputs beside the last."""

    part: Any
    x: torch.Tensor
    y: torch.Tensor
    ids: torch.Tensor
    keep: torch.Tensor
    module: "RandomModule"
    more: list[Any]


Layer = Callable[[int], nn.Module]
Step = tuple[Layer | None, Callable[[At], torch.Tensor]]


def _given(at: At, more: Any, x: torch.Tensor) -> torch.Tensor:
    """x, with more for an output beside the last."""
    at.more.append(more)
    return x


def _changed(x: torch.Tensor, change: Callable[[torch.Tensor], Any]) -> torch.Tensor:
    """x with a tensor of the module's own, which is changed in place."""
    own = (x * 0.7 + 0.1).contiguous()
    change(own)
    return own + x


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
    scores = at.part(at.x) @ at.x.mT / at.x.shape[-1] ** 0.5
    later = torch.ones(scores.shape[-2:]).triu(1).bool()
    return scores.masked_fill(later, float("-inf")).softmax(-1) @ at.x


def _multihead(at: At, weights: bool) -> torch.Tensor:
    made, shares = at.part(at.x, at.x, at.x, key_padding_mask=~at.keep, need_weights=weights)
    if weights:
        at.more.append(shares)
    return torch.as_tensor(made)


def _cells(at: At) -> torch.Tensor:
    hidden, found = torch.zeros_like(at.x[:, 0]), []
    for token in at.x.unbind(1):
        hidden = at.part(token, hidden)
        found.append(hidden)
    return torch.stack(found, 1)


def _one_hot(at: At) -> torch.Tensor:
    hard = F.one_hot(at.x.argmax(-1), at.x.shape[-1]).to(at.x.dtype)
    soft = at.x.softmax(-1)
    return hard - soft.detach() + soft


def _filled_by_rows(x: torch.Tensor) -> torch.Tensor:
    made = torch.zeros_like(x)
    for i in range(x.shape[1]):
        made[:, i] = x[:, i] * (i + 1)
    return made


_FUNCTIONS = (
    *(_given, _changed, _quiet, _loud, _replaced, _averaged, _counted, _sliced_buffer, _attended),
    *(_by_hand, _multihead, _cells, _one_hot, _filled_by_rows),
)
_WORDS = {"torch": torch, "nn": nn, "F": F, "parametrizations": parametrizations}
_WORDS |= {f.__name__[1:]: f for f in _FUNCTIONS}


def _step(step: str, layer: str) -> Step:
    names = ", ".join(f.name for f in fields(At))
    function = eval(f"lambda at, {names}: {step}", _WORDS)
    make = eval(f"lambda w: {layer}", _WORDS) if layer else None
    return make, lambda at: function(at, **{f.name: getattr(at, f.name) for f in fields(At)})


def _read() -> dict[str, dict[str, Step]]:
    """The grammar of grammar.txt: by group and name a step, and the layer that it has of its own.

    A step is an expression of what `At` has, and of `at` itself; a layer is one of the width w."""
    groups: dict[str, dict[str, Step]] = {}
    for line in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            group = groups.setdefault(line[2:], {})
        elif line:
            name, _, rest = line.partition(": ")
            group[name] = _step(*rest.partition(" : ")[::2])
    return groups


GRAMMAR = _read()
RARE = {
    *("layers: GRU with dropout", "layers: GRU cell", "norms: batch norm, mean of all"),
    *("reductions: topk", "reductions: prod", "reductions: several given out"),
    *("indices: embedding by frequency", "indices: reversed", "losses: cross entropy, ignoring"),
    "losses: cross entropy of shares",
}
"""What an engine refuses is drawn seldom: a module that is refused proves nothing."""
STEPS = {f"{group}: {n}": step for group, steps in GRAMMAR.items() for n, step in steps.items()}


class RandomModule(nn.Module):
    """A module drawn from a seed, or of the steps of `recipe`, which has their names in order."""

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
        batch, tokens, width = self.sizes
        x, y = (torch.randn(batch, tokens, width).to(dtype) for _ in range(2))
        ids = torch.randint(tokens, (batch, tokens))
        keep = torch.rand(batch, tokens) > 0.3
        keep[:, 0] = True
        return x.requires_grad_(flows), y.requires_grad_(flows), ids, keep


def results(module: nn.Module, plain: RandomModule, seed: int) -> dict[str, Any]:
    """What calls of a float32 or float64 module in both modes give: outputs, gradients, buffers and
    the generator's state; `plain` knows the inputs."""
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


def _off(ours: Any, theirs: Any, exact: Callable[[], Any], most: float) -> str:
    """How a result differs from PyTorch's, "" where it does not. `most` is the largest result of
    the same call, whose terms it may be summed of."""
    if not isinstance(theirs, torch.Tensor) or not isinstance(ours, torch.Tensor):
        same = type(ours) is type(theirs) and ours == theirs
        return "" if same else f"{_short(ours)} for {_short(theirs)}"
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        types = [f"{str(t.dtype)[6:]}{list(t.shape)}" for t in (ours, theirs)]
        return f"{types[0]} for {types[1]}"
    a, b = ours.double(), theirs.double()
    scale = max(1e-6, _size(b)) if b.numel() else 1.0
    close = partial(torch.allclose, rtol=0, equal_nan=True)
    if torch.equal(a, b) or (theirs.is_floating_point() and close(a, b, atol=GRADIENT * scale)):
        return ""
    judge = exact()
    theirs_off = _size(b - judge)
    # A gradient that is 0 but for rounding has no digit, as that of a bias before a batch norm.
    only_rounding = _size(judge) < theirs_off
    room = (16 if only_rounding else 4) * theirs_off + GRADIENT * scale
    room += torch.finfo(torch.float32).eps * most  # of its terms, which may cancel
    if theirs.is_floating_point() and close(a, judge, atol=room):
        return ""
    return f"{float((a - b).abs().max()):.3g} off of {scale:.3g}"


def _size(tensor: torch.Tensor) -> float:
    return float(tensor.abs().nan_to_num(0, 0, 0).max())


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
        ours = error.kind in ("operator", "pass", "input") and "bug in" not in error.hint
        return ("refused" if ours else "wrong"), f"{error.message} ({error.where}) {named}"
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

    most: dict[str, float] = {}
    for name, value in theirs.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel():
            call = name.partition(":")[0]
            most[call] = max(most.get(call, 0.0), _size(value))
    for name, value in theirs.items():
        largest = most.get(name.partition(":")[0], 0.0)
        if said := _off(ours[name], value, partial(judge, name), largest):
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
