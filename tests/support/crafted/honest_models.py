"""Models as researchers write them, and every file that some PyTorch writes of each.

Run as a script by any Python that has a torch, of any version from 1.13 on, it writes them into a
folder: by torch.jit.trace and torch.jit.script (`.pt`), by torch.export (`.pt2`), and by that with
a dynamic batch. None may be refused by the checks of files."""

import linecache
import math
import sys
import warnings
from collections import OrderedDict, namedtuple
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

CASES = {}
"""By name: a module's class, its inputs, its named inputs, whether a batch is dynamic."""
VARIANTS = ("trace.pt", "script.pt", "export.pt2", "dynamic.pt2")


class Model(nn.Module):
    """Of parts by their names: modules, parameters, tensors that become buffers, constants."""

    def __init__(self, parts):
        super().__init__()
        for name, part in parts.items():
            if type(part) is torch.Tensor:
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)


def case(*inputs, dynamic=True, parts=dict, **named):
    """Enters a module's class, or its forward() and what gives its parts, with a function for each
    input; the first axis of all inputs is the batch that `dynamic` leaves open."""

    def enter(made):
        if not isinstance(made, type):
            name, made.__name__ = made.__name__, "forward"
            made.__code__ = made.__code__.replace(co_name="forward")  # which traces name lines by
            own = {"__init__": lambda self: Model.__init__(self, parts()), "forward": made}
            made = type(name, (Model,), {**own, "__module__": __name__})
        CASES[made.__name__] = made, inputs, named, dynamic
        return made

    return enter


def normal(*sizes, dtype=torch.float32):
    return lambda: torch.randn(*sizes).to(dtype)


def whole(most, *sizes, dtype=torch.int64):
    return lambda: torch.randint(0, most, sizes).to(dtype)


X = normal(4, 8)
SEQUENCE = normal(4, 6, 8)


# Infinities, NaN, limits.


class Answer(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, found, given):
        return self.fc(found) + given


@case(
    normal(2, 4),
    parts=lambda: {"self": nn.Linear(4, 4), "output": Answer(), "dropout": nn.Dropout()},
)
def ModulesCalledSelf(self, x):
    """As BERT's attention names its parts; and one that is called twice, as T5 has it."""
    return self.dropout(self.output(self.self(self.dropout(x)), x))


@case(
    SEQUENCE,
    parts=lambda: {
        "qkv": nn.Linear(8, 24),
        "out": nn.Linear(8, 8),
        "mask": torch.ones(6, 6).tril(),
    },
)
def CausalAttention(self, x):
    q, k, v = self.qkv(x).chunk(3, dim=-1)
    scores = q @ k.transpose(-2, -1) / math.sqrt(8)
    scores = scores.masked_fill(self.mask[: x.shape[1], : x.shape[1]] == 0, float("-inf"))
    return self.out(F.softmax(scores, dim=-1) @ v)


@case(SEQUENCE)
def Limits(self, x):
    y = torch.where(x > 0, x, torch.full_like(x, float("inf")))
    z = torch.where(x > 1, torch.tensor(float("nan")), x)
    y = torch.where(torch.isinf(y), torch.full_like(x, -3.4028234663852886e38), y)
    pooled = F.max_pool1d(F.pad(x, (0, 0, 1, 1), value=float("-inf")).transpose(1, 2), 3, 1)
    none = torch.full((x.shape[0], 1, 8), -math.inf)
    sums = torch.logsumexp(torch.cat([x, none], 1), 1), torch.norm(x, p=math.inf, dim=1)
    return y, torch.nan_to_num(z), pooled, torch.clamp(x, -math.inf, 1.0), *sums


# Assertions.


@case(X)
def Asserted(self, x):
    assert x.dim() == 2, f"expected a matrix, got {tuple(x.shape)}!"
    torch._assert(x.shape[1] == 8, "8 features, please (see §3.1 of the paper) – não é 8?")
    torch._assert_async(torch.isfinite(x).all())
    return x.relu()


@case(X)
def AssertedMessage(self, x):
    finite = torch.isfinite(x).all()
    torch._assert_async(finite, "loss is NaN/inf: check `lr`, 100%; see https://a.b/c?d=e&f#g\n")
    return x.log1p()


@case(X, lambda: torch.tensor(3))
def CheckedItem(self, x, n):
    n = n.item()
    torch._check(n >= 2)
    torch._check(n < 5, lambda: f"n is {n}, not 2 … 4")
    return x[:, :n] * 2


@case(X, lambda: torch.tensor([1, 0, 2, 3]))
def CheckedRange(self, x, ids):
    torch._assert(bool((ids >= 0).all()), 'ids must be >= 0; got "negative" ones')
    return x[ids]


# What a model returns.

Scores = namedtuple("Scores", "logits hidden")


class Typed(NamedTuple):
    loss: torch.Tensor
    logits: torch.Tensor


@dataclass
class Output:
    logits: torch.Tensor
    loss: torch.Tensor | None = None


class ModelOutput(OrderedDict):
    """As transformers has it."""

    def __getattr__(self, name):
        return self[name]


@cache  # torch takes each once in a process
def _register():
    from torch.utils import _pytree as pytree

    for kind in (Scores, Typed):
        pytree._register_namedtuple(kind, serialized_type_name=f"researcher.models.{kind.__name__}")
    torch.export.register_dataclass(Output, serialized_type_name="researcher.outputs.Output")
    pytree.register_pytree_node(
        ModelOutput,
        lambda made: (list(made.values()), list(made)),
        lambda values, names: ModelOutput(zip(names, values, strict=True)),
        serialized_type_name="researcher.outputs.ModelOutput",
        to_dumpable_context=lambda context: context,
        from_dumpable_context=lambda context: context,
    )


WRITTEN = {
    "ReturnsNamedTuple": "Scores(x.softmax(-1), x * 2)",
    "ReturnsTyped": "Typed(x.square().mean(), x + 1)",
    "ReturnsDict": '{"loss": x.mean(), "logits": x, "aux": {"a": x.sin(), "b": [x.cos(), x + 1]}}',
    "ReturnsOddKeys": '{"val/loss (%)": x.mean(), "größe": x + 1, "a.b": x * 2, "it\'s": x * 3}',
    "ReturnsNumberedKeys": "{1: x.mean(), 2: x + 1}",
    "ReturnsNone": "x * 2, None, x",
    "ReturnsNumbers": "x * 2, 3, 0.5, True",
}
"""Of each what its forward() returns of `x`, as torch.jit.script has to read it somewhere."""


def _written(name, text):
    source, file, found = f"def {name}(self, x):\n    return {text}\n", f"<{name}>", {}
    linecache.cache[file] = len(source), None, source.splitlines(True), file
    exec(compile(source, file, "exec"), globals(), found)
    return found[name]


for _name, _text in WRITTEN.items():
    case(X)(_written(_name, _text))


@case(X)
def ReturnsInput(self, x):
    y = x.t()
    return x, y, x, y + 1, x.view(-1)


# What a model takes.


@case(X, mask=lambda: torch.ones(4, 8))
def TakesKeyword(self, x, *, mask=None):
    return x * mask if mask is not None else x


@case(
    batch=lambda: {"ids": torch.randint(0, 20, (4, 6)), "mask": torch.ones(4, 6)},
    parts=lambda: {"words": nn.Embedding(20, 8, padding_idx=0)},
)
def TakesNamedDict(self, batch):
    return (self.words(batch["ids"]) * batch["mask"][..., None]).sum(1)


@case(lambda: {"image": torch.randn(4, 8), "text": [torch.randn(4, 8), torch.randn(4, 8)]})
def TakesDict(self, batch: dict[str, torch.Tensor]):
    return batch["image"] + batch["text"][0] * batch["text"][1]


@case(lambda: [torch.randn(4, 8), torch.randn(4, 8)])
def TakesList(self, features: list[torch.Tensor]):
    return torch.cat(features, 1)


@case(X, lambda: 3, lambda: "relu", lambda: None, dynamic=False)
def TakesNumbers(self, x, times=1, act="gelu", extra=None):
    return (F.relu(x) if act == "relu" else F.gelu(x)) * times


@case(X, dynamic=False, scale=lambda: 0.5, flag=lambda: True)
def TakesFlags(self, x, scale=1.0, flag=False):
    return x * scale if flag else x


@case(X, X, X)
def TakesAny(self, *tensors, **others):
    return torch.stack(tensors).mean(0)


@case(X)
class TakesInput(nn.Module):
    """Its argument has the name of a function of Python's."""

    def forward(self, input):
        return input.abs()


# Layers whose files hold more than plain operators, which a file may use by what their schemas say.


@case(SEQUENCE)
class Rotary(nn.Module):
    def __init__(self):
        super().__init__()
        at = torch.outer(torch.arange(6.0), 10000 ** (-torch.arange(0, 4, 2) / 4))
        self.register_buffer("cis", torch.polar(torch.ones_like(at), at), persistent=False)

    def forward(self, x):
        pairs = torch.view_as_complex(x.reshape(x.shape[0], 6, 4, 2)[:, :, :2].contiguous())
        return torch.view_as_real(pairs * self.cis).flatten(2)


@case(SEQUENCE, parts=lambda: {"weight": nn.Parameter(torch.randn(4, 8, dtype=torch.cfloat))})
def Spectral(self, x):
    return torch.fft.irfft(torch.fft.rfft(x, dim=1) * self.weight, n=6, dim=1) * (1 + 0j).real


@case(normal(4, 8, dtype=torch.complex64))
def Complex(self, z):
    return (z * (0.5 - 2j)).abs(), torch.angle(z), z.conj().real


@case(
    normal(4, 1, 8),
    dynamic=False,
    parts=lambda: {"cache": torch.zeros(4, 10, 8), "at": torch.tensor(0)},
)
def StaticCache(self, x):
    self.cache[:, 2:3] = x
    self.at += 1
    return self.cache.sum(1) + self.at


@case(
    X,
    parts=lambda: {
        "layers": nn.ModuleList(nn.Linear(8, 8) for _ in range(3)),
        "heads": nn.ModuleDict({"cls": nn.Linear(8, 2), "a b/c-d": nn.Linear(8, 3)}),
        "scales": nn.ParameterList([nn.Parameter(torch.ones(8)) for _ in range(3)]),
    },
)
def Lists(self, x):
    for layer, scale in zip(self.layers, self.scales):  # noqa: B905
        x = x + layer(x) * scale
    return {name: head(x) for name, head in self.heads.items()}


@case(X)
def Functions(self, x):
    low = F.gelu(x, approximate="tanh") + F.softplus(x, beta=2) + F.hardswish(x)
    return low + torch.div(x, 3, rounding_mode="floor") + F.pad(x, (0, 0), "constant", -1e38)


@case(normal(4, 8, dtype=torch.bfloat16), parts=lambda: {"fc": nn.Linear(8, 8).bfloat16()})
def Brain(self, x):
    return F.layer_norm(self.fc(x).float(), (8,)).to(torch.bfloat16)


@case(normal(4, 8, dtype=torch.float64))
def Double(self, x):
    return torch.special.erfinv(x.sigmoid()) * 1e-300, x.to(torch.float16).half()


@case(whole(100, 4, 8, dtype=torch.uint8), whole(100, 4, 8, dtype=torch.int8))
def Bytes(self, x, y):
    z = x.to(torch.int32) + y.to(torch.int16)
    return z.float().div(255.0), (x >> 2) | 1, y.bool(), z.to(torch.complex64).abs()


@case(
    X,
    parts=lambda: {
        "fc": nn.utils.parametrizations.orthogonal(nn.Linear(8, 8)),
        "low": nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8)).eval(),
    },
)
def Parametrised(self, x):
    return self.low(self.fc(x))


@case(
    X,
    parts=lambda: {
        "base": nn.Linear(8, 8).requires_grad_(False),
        "a": nn.Parameter(torch.randn(8, 2)),
        "b": nn.Parameter(torch.zeros(2, 8)),
    },
)
def LowRank(self, x):
    with torch.no_grad():
        base = self.base(x)
    return base + x @ self.a @ self.b * 0.5


@case(X, parts=lambda: {"fc": nn.Linear(8, 8)})
def MixedPrecision(self, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = self.fc(x)
    return y.float() + 1


@case(SEQUENCE)
def Slices(self, x):
    return (x[:, ::2, 1:], x[..., -1], x[:, [0, 2]], x[:, None, :, 3:-1], torch.split(x, [2, 6], 2))


@case(X)
def Drawn(self, x):
    mean, spread = x.chunk(2, 1)
    return mean + torch.randn_like(spread) * (0.5 * spread).exp()


# Control flow.


@case(X)
def Branches(self, x):
    return torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x,))


@case(X, parts=lambda: {"fc": nn.Linear(8, 8), "times": 3})
def Scripted(self, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """With what only torch.jit.script keeps."""
    if x.dim() != 2:
        raise ValueError(f"expected two dimensions, got {x.dim()}: 'x' or \"y\"?")
    assert x.size(1) == 8, "eight features"
    for _ in range(self.times):
        x = torch.relu(self.fc(x))
    if bias is not None:
        x = x + bias
    return x


@case(X)
class ScriptedNames(nn.Module):
    def __init__(self):
        super().__init__()
        self.names: list[str] = ["a", "b c", 'it\'s "d"']
        self.table: dict[str, int] = {"x": 1, "y": 2}

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, Typed]:
        y = x * self.table["y"]
        if len(self.names) > 2:
            y = y + float("-inf") * 0.0 + float("inf")
        return y, Typed(y.mean(), self._half(y))

    @torch.jit.export
    def _half(self, x: torch.Tensor, by: float = 0.5, kind: str = "sum") -> torch.Tensor:
        if kind == "mean":
            return x.mean()
        return x * by


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


@case(X, parts=lambda: {"fc": nn.Linear(8, 8)})
def Checkpointed(self, x):
    from torch.utils.checkpoint import checkpoint

    return checkpoint(self.fc, x, use_reentrant=False)


UNSCRIPTED = {
    "ReturnsDataclass": lambda self, x: Output(x.tanh(), x.sum()),
    "ReturnsPartOfDataclass": lambda self, x: {"out": Output(x.tanh()), "pair": (x, [x + 1, None])},
    "ReturnsModelOutput": lambda self, x: ModelOutput(logits=x.exp(), hidden_states=(x, x + 1)),
    "ReturnsOrderedDict": lambda self, x: OrderedDict(out=x.sigmoid(), aux=x.abs()),
    "TakesNamedTuple": lambda self, given: given.logits + given.hidden,
    "TakesDataclass": lambda self, given: given.logits - given.loss,
    "OwnGradient": lambda self, x: Straight.apply(x) * 2,
    "Vectorised": lambda self, x: torch.func.vmap(lambda row: (row * row.sum()).softmax(0))(x),
}
"""Each a forward() that torch.jit.script takes in no form."""
_PAIRS = {"TakesNamedTuple": Scores, "TakesDataclass": Output}
for _name, _forward in UNSCRIPTED.items():
    _forward.__name__, _made = _name, _PAIRS.get(_name)
    case(X if _made is None else lambda made=_made: made(X(), X()))(_forward)


def write(folder):
    """Write every file that this torch can write; what it cannot, it says."""
    warnings.simplefilter("ignore")
    version = torch.__version__.split("+")[0]
    if hasattr(torch, "export"):
        with suppress(AttributeError, TypeError):  # an older torch registers fewer
            _register()
    for name, (made, inputs, named, dynamic) in CASES.items():
        for way in VARIANTS:
            torch.manual_seed(0)
            path = Path(folder) / f"{name}.{version}.{way}"
            try:
                module = made().eval()
                given, by_name = [one() for one in inputs], {n: one() for n, one in named.items()}
                _save(module, tuple(given), by_name, dynamic, way, path)
            except Exception as error:  # whatever torch stumbles on
                path.unlink(missing_ok=True)
                print(f"  not written: {path.name}: {type(error).__name__}", file=sys.stderr)


def _save(module, given, named, dynamic, way, path):
    if way == "trace.pt":
        more = {"example_kwarg_inputs": {**named}} if named else {"example_inputs": given}
        if named and given:
            raise ValueError("a trace takes one or the other")
        torch.jit.trace(module, **more, check_trace=False, strict=False).save(str(path))
    elif way == "script.pt":
        torch.jit.script(module).save(str(path))
    else:
        shapes = None
        if way == "dynamic.pt2":
            if not dynamic:
                raise ValueError("its sizes are fixed")
            rows = torch.export.Dim("batch", min=2, max=512)
            from torch.utils import _pytree as pytree

            shapes = pytree.tree_map(lambda t: {0: rows} if t.dim() else None, (given, named))
            shapes = (*shapes[0], *shapes[1].values())
        program = torch.export.export(module, given, named, dynamic_shapes=shapes)
        torch.export.save(program, str(path))


if __name__ == "__main__":
    write(sys.argv[1])
