"""PyTorch's own table of operators (`bench/oracles/operators.py`), and forms of them in which TVM's
importers went wrong: none is wrong, none crashes."""

import subprocess
import sys
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

import defaults
import judged
import operators
from gradients import Fn, error, imported, run
from limits import POINTWISE, rounding
from quick import ENGINE, QUICK, rare
from relascope.engine.in_process import load_engine

_FUNCTIONAL = ("layer_norm", "embedding", "pad_constant", "cross_entropy")
SLICE = [f"nn_functional_{name}" for name in _FUNCTIONAL]
SLICE += ["index_add", "cumsum", "gather", "softmax_with_dtype", "where"]
RIGHT = {"relax": {"forward": 420, "gradient": 280}, "relay": {"forward": 350, "gradient": 200}}
"""How many entries are right in float32, at least, in every sample that has elements."""


def faults(rows):
    bad = [r for r in rows if r.get("verdict") in ("wrong", "crash")]
    return [(r["op"], r["dtype"], r["phase"], r["call"], r["message"]) for r in bad]


def few_in_relay(names, by):
    """In Relay, whose builds take three times as long, one of so many."""
    return [rare(n) if i % by and ENGINE == "relay" else n for i, n in enumerate(names)]


def right_in(entries, name, samples):
    """The dtypes in which an entry is right; it is wrong in none."""
    entry = next(e for e in entries if e.formatted_name == name)
    backend, rows = load_engine(ENGINE), []
    for job in operators.jobs(entry, samples):
        rows += operators.look(backend, QUICK, entry, job, operators.PHASES[:2])
    assert not faults(rows)
    return {r["dtype"] for r in rows if r.get("verdict") == "right"}


@pytest.mark.parametrize("name", few_in_relay(SLICE, 2))
def test_an_operator_is_right_or_refused(name):
    assert right_in(operators.database(), name, 2)


@pytest.fixture
def in_this_process(monkeypatch):
    """Children of a bench run here; calling it runs a bench's command."""

    def child(work, seconds):
        rows = []
        try:
            work(SimpleNamespace(send=rows.append, close=lambda: None))
        except SystemExit:
            rows.append({"died": "it ended"})
        return rows

    monkeypatch.setattr(judged, "child", child)
    monkeypatch.setattr(judged, "target_of", lambda ir: QUICK)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)

    def main(bench, *words):
        monkeypatch.setattr(sys, "argv", [bench.__file__, "--engine", ENGINE, *map(str, words)])
        return bench.main()

    return main


def test_the_command_keeps_and_prints_what_it_finds(in_this_process, tmp_path, capsys):
    asked = ("--op", "sigmoid", "--samples", 1, "--folder", tmp_path)
    assert in_this_process(operators, *asked) == 0
    assert "forward float32: right 1" in capsys.readouterr().out
    rows = judged.tried(tmp_path / f"{ENGINE}.jsonl")
    assert {r["phase"] for r in rows} == set(operators.PHASES) and not faults(rows)
    assert "sigmoid` | right | right |" in operators.page({ENGINE: rows})


def test_what_ends_a_child_is_a_crash_and_the_rest_goes_on(in_this_process, tmp_path):
    path, base = tmp_path / "rows.jsonl", {"dtype": "float32", "phase": "forward"}
    judged.begin(path, [{"op": "a", "end": True}])

    def work(ir, target, names, skip, pipe):
        for name in names:
            for index in range(skip, 2):
                pipe.send({"op": name, "index": index, **base})
                if (name, index) == ("b", 0):
                    raise SystemExit
                pipe.send({"op": name, "index": index, **base, "verdict": "right"})
            pipe.send({"op": name, "end": True})
            skip = 0

    rows = operators.resume(path, ENGINE, ["a", "b", "c"], False, work)
    found = [r["op"] + str(r["index"]) + r["verdict"] for r in rows]
    assert found == ["b0crash", "b1right", "c0right", "c1right"]
    assert operators.summary(ENGINE, rows) == 1
    assert operators.resume(path, ENGINE, ["a", "b", "c"], False, None) == rows


SWEPT = (
    *("F.cross_entropy(scores, labels, ignore_index=2)", "F.cross_entropy(scores, labels)"),
    *("F.huber_loss(x, y, delta=0.3)", "F.elu(x, 0.3)"),
    *("F.max_pool2d(image, 2, 2, 1, 2, ceil_mode=True)", "torch.expm1(x)", "torch.tanh(x)"),
    *("torch.atanh(x)", "F.cosine_similarity(x, y, eps=3.0)", "torch.sinh(x)"),
    *("torch.pow(positive, 0.5)", "x.clamp(0.5, -0.5)"),
)


@pytest.mark.parametrize("name", few_in_relay(SWEPT, 4))
def test_an_argument_that_is_not_the_default_is_right_or_refused(name):
    assert right_in(defaults.calls(), name, 3) == {"float32", "float64"}


@pytest.mark.exhaustive
def test_all_operators_are_right_or_refused(tmp_path):
    phases = [word for p in operators.PHASES[:2] for word in ("--phase", p)]
    program = [sys.executable, operators.__file__, "--engine", ENGINE, *phases]
    subprocess.run([*program, "--folder", tmp_path], capture_output=True, check=False)
    rows = judged.read(tmp_path / f"{ENGINE}.jsonl")
    asked = {e.formatted_name for e in operators.database()}
    assert {r["op"] for r in rows if r.get("end")} == asked
    assert not faults(rows)
    rows = [r for r in rows if "verdict" in r]
    for phase, least in RIGHT[ENGINE].items():
        found = Counter(operators.verdicts(rows, phase, "float32").values())
        assert found["right"] + found["elements"] >= least, found


X = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(1))
SCALE = torch.linspace(-1, 2, 8)
FORMS = {
    "negative index": lambda x: x[:, torch.tensor([0, -1, -6])],
    "negative index computed": lambda x: x[:, (x.sum() * 0).to(torch.int64).reshape(1) - 2],
    "add alpha": lambda x: torch.add(x, x * 2, alpha=3),
    "sub alpha": lambda x: torch.sub(x, 2.0, alpha=0.5),
    "alpha of tensors": lambda x: torch.add(x, x * x, alpha=3) - torch.sub(x, x * x, alpha=2),
    "rsub": lambda x: 3 - x,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "softmax dtype": lambda x: F.softmax(x, -1, dtype=torch.float64),
    "log_softmax": lambda x: F.log_softmax(x, 1),
    "mean dtype": lambda x: x.mean(1, dtype=torch.float64),
    "mean whole": lambda x: x.mean(),
    "sum of bool": lambda x: (x > 0).sum(1),
    "std": lambda x: x.std(-1) + x.std(-1, correction=0) + x.std(-1, correction=1.3),
    "var": lambda x: x.var(1, keepdim=True),
    "div floor": lambda x: torch.div(x, 0.3, rounding_mode="floor"),
    "div trunc": lambda x: torch.div(x, 0.3, rounding_mode="trunc"),
    "to bool": lambda x: x.round().to(torch.bool).to(torch.float32),
    "to int8": lambda x: (x * 10).to(torch.int8).to(torch.float32),
    "zeros_like": lambda x: torch.zeros_like(x.double()) + torch.ones_like(x, dtype=torch.float64),
    "full_like": lambda x: torch.full_like(x, 0.25) * x,
    "chunk": lambda x: x.chunk(3, 2)[2] * 2,
    "tensor_split": lambda x: torch.tensor_split(x, 4, 1)[1] * 2,
    "layer norm without a shift": lambda x: F.layer_norm(x, (8,), SCALE.to(x), None, 1e-3),
    "layer norm bare": lambda x: F.layer_norm(x, (8,)),
    "group norm bare": lambda x: F.group_norm(x, 3),
    "elu scaled": lambda x: torch.ops.aten.elu(x, 0.5, 2.0, 3.0) + F.celu(x, 0.7) + F.selu(x),
    "softplus": lambda x: F.softplus(x, 2.0),
    "baddbmm": lambda x: torch.baddbmm(x[..., :6], x, x.transpose(1, 2), beta=0.5, alpha=2),
    "masked_fill": lambda x: x.masked_fill(x > 0.5, float("-inf")).softmax(-1),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, scale=0.3),
    "attention causal": lambda x: F.scaled_dot_product_attention(*[x[None]] * 3, is_causal=True),
    "constant": lambda x: x + torch.linspace(0.1, 0.8, 8, dtype=torch.float64),
    "long constant": lambda x: x[..., torch.tensor([2, 0])] * torch.tensor([[2**40, 1]]),
    "in place": lambda x: (x * 2).add_(1).relu_(),
    "linear of a vector": lambda x: F.linear(x[0, 0], x[0]) + F.linear(x[1], x[0, 0]),
    "square of integers": lambda x: x.to(torch.int64) ** 3 + x.to(torch.int32).square(),
    "expand": lambda x: x[:, :1].expand(-1, 5, -1) * 2,
    "composed": lambda x: torch.kron(x[0], x[1]),
    "composed of parts": lambda x: torch.hstack(torch.vsplit(x, 2)),
    "composed of two results": lambda x: torch.stack(torch.aminmax(x, dim=1)),
    "composed in turn": lambda x: torch.diag_embed(x, 1).diagonal(0, -1, 0).expm1(),
    "in place of bools": lambda x: (x * 2).gt_(1),
    "round": lambda x: (x * 2).round() / 2 + (x.round() + 0.5).round(),
    "round decimals": lambda x: x.round(decimals=2) + (x * 100).round(decimals=-1),
    "roll": lambda x: x.roll(20, 1) + x.roll((-1, 9), (2, 0)) + x.roll(3),
    "sort": lambda x: x.sort(dim=1, stable=True, descending=True)[0],
    "sort's indices": lambda x: x.sort(1)[1],
    "argsort": lambda x: x.argsort(stable=True, dim=1),
    "max along": lambda x: x.max(1)[0],
    "min along": lambda x: x.min(1, keepdim=True)[1],
    "amax": lambda x: x.amax(),
    "cumsum of bools": lambda x: (x > 0).cumsum(1),
    "sum of bools": lambda x: (x > 0) + (x < 1),
    "bools compared": lambda x: ((x > 0) == (x > 1)) | ((x > 0) != (x < 1)),
    "ones of bools": lambda x: x.new_ones(8, dtype=torch.bool) & (x > 0),
    "exp of integers": lambda x: (x * 3).to(torch.int32).exp() + (x > 0) / 2,
    "type of a size": lambda x: x * torch.as_tensor(x.size(0)).detach().type_as(x),
    "arange of fractions": lambda x: x[:, :2, :1] + torch.arange(0.1, -7.9, -4, dtype=x.dtype),
    "arange that falls": lambda x: x + torch.arange(8, -8, -2),
    "one number": lambda x: x.mean().cumsum(0) + x.mean().max(0)[0],
    "tril": lambda x: x.tril(1) - x.triu(-1),
    "max pool dilated": lambda x: F.max_pool1d(x, 2, 3, 1, 2, ceil_mode=True),
    "average pool to the end": lambda x: F.avg_pool2d(x[None], (2, 3), (3, 2), 1, ceil_mode=True),
    "average of the inside": lambda x: F.avg_pool1d(x, 3, 2, 1, True, False),
    "average by a divisor": lambda x: F.avg_pool2d(x[None], 3, 2, 1, True, True, 2),
}
LEFT_OUT = {"relax": ("group norm bare", "average by a divisor"), "relay": ()}  # which are refused


@pytest.mark.parametrize("dtype", ["float32", rare("float64")])
def test_forms_of_operators_keep_their_meaning(dtype):
    """All in one program, for one build costs more than one operator."""
    forms = {name: f for name, f in FORMS.items() if name not in LEFT_OUT[ENGINE]}
    model, program = imported(Fn(lambda x: tuple(f(x) for f in forms.values())), X, dtype=dtype)
    for name, ours, theirs in zip(forms, run(model, program), model.forward(), strict=True):
        limit = rounding(dtype, POINTWISE)
        if "norm " in name:  # Relay's SimplifyInference has their epsilon in float32
            limit += 1e-3 * rounding("float32", POINTWISE)
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), name
        scale = max(theirs.double().abs().max(), 1e-30)
        assert (ours.double() - theirs.double()).abs().max() / scale < limit, name


def test_integers_and_bools_keep_their_meaning_and_are_promoted_as_in_pytorch():
    far, n = 2**40, torch.arange(-6, 6).reshape(3, 4)
    module = Fn(
        lambda a, b: (
            *(a.sum(), a.to(torch.int32).sum(0), a.to(torch.int32).cumsum(0), a // 3, a % 3),
            *(a.clamp(-2, 2), a.clamp(min=1), (a * far).clamp(max=-far), a.round()),
            *((a > 0) + (b > 0), (a > 0) * b, torch.maximum(a > 0, b > 0), (a > 0).amax(1)),
            *((a > 0).max(), (a > 0) < (b > 0), a > 0.5, a * 0.5, torch.where(a > 0, a, 0.5)),
            a.clamp(max=2) + torch.clamp_min(b, 2),
        )
    )
    assert error(*imported(module, n, n.flip(1))) == 0
    rounded = Fn(lambda a, b: (a / b.clamp(min=1), torch.exp(a) + torch.sigmoid(b > 0)))
    assert error(*imported(rounded, n, n.flip(1))) < rounding("float32", POINTWISE)
