"""PyTorch's own table of operators (`bench/oracles/operators.py`): none is wrong, none crashes."""

import subprocess
import sys
from collections import Counter

import pytest

import defaults
import operators
from quick import ENGINE, QUICK
from relascope.engine.in_process import load_engine

_FUNCTIONAL = ("layer_norm", "embedding", "pad_constant", "cross_entropy")
SLICE = [f"nn_functional_{name}" for name in _FUNCTIONAL]
SLICE += ["cumsum", "softmax_with_dtype", "gather", "index_add", "where"]
RIGHT = {"relax": {"forward": 420, "gradient": 280}, "relay": {"forward": 350, "gradient": 200}}
"""How many entries are right in float32, at least, in every sample that has elements."""


def faults(rows):
    bad = [r for r in rows if r.get("verdict") in ("wrong", "crash")]
    return [(r["op"], r["dtype"], r["phase"], r["call"], r["message"]) for r in bad]


@pytest.mark.parametrize("name", SLICE)
def test_an_operator_is_right_or_refused(name):
    entry = next(e for e in operators.database() if e.formatted_name == name)
    backend, rows = load_engine(ENGINE), []
    for job in operators.jobs(entry, 2):
        rows += operators.look(backend, QUICK, entry, job, operators.PHASES[:2])
    assert not faults(rows)
    assert any(r.get("verdict") == "right" for r in rows)


def test_the_command_keeps_and_prints_what_it_finds(tmp_path):
    program = [sys.executable, operators.__file__, "--engine", ENGINE, "--op", "sigmoid"]
    asked = [*program, "--samples", "1", "--folder", tmp_path]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "forward float32: right 1" in done.stdout
    rows = operators.tried(tmp_path / f"{ENGINE}.jsonl")
    assert {r["phase"] for r in rows} == set(operators.PHASES) and not faults(rows)
    assert "sigmoid` | right | right |" in operators.page({ENGINE: rows})


SWEPT = (
    "F.cross_entropy(scores, labels)",
    "F.cross_entropy(scores, labels, ignore_index=2)",
    "F.max_pool2d(image, 2, 2, 1, 2, ceil_mode=True)",
    "F.huber_loss(x, y, delta=0.3)",
    "F.cosine_similarity(x, y, eps=3.0)",
    "F.elu(x, 0.3)",
    "torch.expm1(x)",
    "torch.tanh(x)",
    "torch.atanh(x)",
    "torch.sinh(x)",
    "torch.pow(positive, 0.5)",
    "x.clamp(0.5, -0.5)",
)
if ENGINE == "relay":  # whose builds take three times as long
    SWEPT = tuple(
        pytest.param(name, marks=pytest.mark.exhaustive if i % 2 else ())
        for i, name in enumerate(SWEPT)
    )


@pytest.mark.parametrize("name", SWEPT)
def test_an_argument_that_is_not_the_default_is_right_or_refused(name):
    entry = next(c for c in defaults.calls() if c.formatted_name == name)
    backend, rows = load_engine(ENGINE), []
    for job in operators.jobs(entry, 3):
        rows += operators.look(backend, QUICK, entry, job, operators.PHASES[:2])
    assert not faults(rows)
    assert {r["dtype"] for r in rows if r.get("verdict") == "right"} == {"float32", "float64"}


@pytest.mark.exhaustive
def test_all_operators_are_right_or_refused(tmp_path):
    phases = [word for p in operators.PHASES[:2] for word in ("--phase", p)]
    program = [sys.executable, operators.__file__, "--engine", ENGINE, *phases]
    subprocess.run([*program, "--folder", tmp_path], capture_output=True, check=False)
    rows = operators.read(tmp_path / f"{ENGINE}.jsonl")
    asked = {e.formatted_name for e in operators.database()}
    assert {r["op"] for r in rows if r.get("end")} == asked
    assert not faults(rows)
    rows = [r for r in rows if "verdict" in r]
    for phase, least in RIGHT[ENGINE].items():
        found = Counter(operators.verdicts(rows, phase, "float32").values())
        assert found["right"] + found["elements"] >= least, found
