"""The numbers of a recorded compile, in the TVM of each engine: errors, bisection."""

import runpy
import sys
from functools import partial

import numpy as np
import pytest
import tvm

from answers import asking
from quick import ENGINE, QUICK
from relascope import recording
from relascope.core.errors import EngineError
from relascope.engine.jobs import bisect
from relascope.engine.jobs.accuracy import OURS
from relascope.engine.jobs.bisect import Question
from relascope.recorder.reading import read
from relascope.viz.rows.recorded_numbers import RecordedNumbers, ir_of, parts, same_tvm

OWN = {"relax": ["ReluAway"], "relay": ["InferType", "ReluAway"]}[ENGINE]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    path = tmp_path_factory.mktemp("recorded") / "run.rsc"
    with recording(path, "modules"):
        runpy.run_path(_script())
    return read(path)


def _script():
    folder = next(p for p in sys.path if p.endswith(f"tests/{ENGINE}/support"))
    return f"{folder}/wrong_pass.py"


@pytest.fixture
def ask(session):
    return asking(session)


def test_parts_are_what_takes_and_returns_the_same(compiled):
    assert ir_of(compiled) == ENGINE
    first, *rest = parts(compiled)
    assert [run.name for run in first.runs] == OWN
    if ENGINE == "relay":  # the weights are bound by then
        (second,) = rest
        assert {"AlterOpLayout", "FuseOps", "LabelOps"} <= {run.name for run in second.runs}
    else:
        assert not rest and "running them was not allowed" in first.end
        assert "LegalizeOps" in first.end


def test_the_wrong_pass_is_seen_in_the_errors_and_found(compiled, ask, tmp_path):
    part, held = parts(compiled)[0], RecordedNumbers(compiled, tmp_path)
    rows = held.errors(ask, part, QUICK, OURS)
    verdicts = [(r["pass"], r["error"]["verdict"]) for r in rows]
    assert verdicts == [*((name, "right") for name in OWN[:-1]), ("ReluAway", "wrong")]
    assert rows[-1]["error"]["max_rel"] > 1e-3
    assert rows[-1]["step_error"]["max_rel"] == pytest.approx(rows[-1]["error"]["max_rel"])
    ((_, found),), _ = held.search(ask, ENGINE, (part,), partial(Question, target=QUICK))
    (suspect,) = found.culprits.suspects
    assert part.runs[suspect].number == rows[-1]["number"]
    said = bisect.verdict(ENGINE, found)
    assert said.startswith(f"Pass {rows[-1]['number']}, ReluAway, makes it wrong: ")
    assert "float64" not in said


@pytest.mark.exhaustive
def test_inputs_are_drawn_or_given(compiled, ask, tmp_path):
    part = parts(compiled)[0]
    inputs = {"x": np.full((4, 16), 0.5, "float32")}
    if ENGINE == "relay":
        inputs |= {"w": np.full((16, 16), 0.25, "float32"), "b": np.ones(16, "float32")}
    np.savez(tmp_path / "in.npz", **inputs)
    held = RecordedNumbers(compiled, tmp_path, tensors=(tmp_path / "in.npz",))
    found = [row["error"] for row in held.errors(ask, part, QUICK, OURS)]
    if ENGINE == "relay":  # nothing is negative: relu is abs
        assert [error["verdict"] for error in found] == ["right"] * 2
    else:
        (other,) = RecordedNumbers(compiled, tmp_path, seed=3).errors(ask, part, QUICK, OURS)
        assert found[0]["max_rel"] != other["error"]["max_rel"]


@pytest.mark.exhaustive
def test_what_cannot_be_compared_is_refused(compiled):
    with pytest.raises(EngineError, match=f"recorded with TVM {tvm.__version__}, but the engine"):
        same_tvm(compiled, "0.99.0")
    same_tvm(compiled, str(tvm.__version__))


def test_with_its_kernels_there_are_numbers_to_the_last_pass(compiled, ask, tmp_path):
    if ENGINE == "relay":
        assert parts(compiled, kernels=True) == parts(compiled)  # kernels end Relay's modules
        return
    (part,) = parts(compiled, kernels=True)
    rows = RecordedNumbers(compiled, tmp_path, kernels=True).errors(ask, part, QUICK, OURS)
    assert not part.end and [r["failure"] for r in rows] == [None] * len(rows)
    last = {r["pass"]: r["error"]["verdict"] for r in rows}
    assert rows[-1]["pass"] == "AttachGlobalSymbol" and "StaticPlanBlockMemory" in last
    asked = ask, ENGINE, (part,), partial(Question, target=QUICK)
    with pytest.raises(EngineError, match="which is shown but not run"):
        RecordedNumbers(compiled, tmp_path).search(*asked)
