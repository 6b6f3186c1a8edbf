"""The tests of bisection that both engines share: planted faults are found, without a hint.

A file that imports them defines `case`, what is the engine's own, and `session`.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn
from traces import save
from truths import asking

from engine import bisection
from engine.source import source_from_file
from passes import catalogue, user
from passes.catalogue import default_pipeline
from passes.pipeline import Pipeline, Step

# Those of an inference pipeline.
FAULTS = ("gelu_tanh", "in_float16", "weight_transposed", "residual_dropped")


@dataclass(frozen=True)
class Case:
    """After which step of the inference pipeline each fault is planted; a way to the gradient."""

    ir: str
    spots: dict[str, str]
    training: str


class Small(nn.Module):
    """A square layer, gelu, layer norm and a residual: (3, 8) to (3, 8)."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        return x + nn.functional.gelu(self.fc(self.norm(x)))


def small(folder, **options):
    """A source of it, in a file."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module, x = Small(), torch.randn(3, 8)
    return source_from_file(save(module, (x,), folder / "small.pt"), **options)


def offer(monkeypatch, file):
    """Offer the passes of a file next to a test; only while the test runs."""
    monkeypatch.setattr(catalogue, "CATALOGUE", dict(catalogue.CATALOGUE))
    monkeypatch.setenv(user.VARIABLE, "")
    user.name_files([str(Path(__file__).parent / file)])


def planted(ir, fault, after):
    """The default inference pipeline with a fault after the first step of a name, and its index."""
    steps = list(default_pipeline(ir, False))
    index = [s.name for s in steps].index(after) + 1
    return Pipeline((*steps[:index], Step(fault), *steps[index:])), index


def search(session, source, pipeline, **options):
    """Bisect, on the CPU."""
    question = bisection.Question(source, pipeline, "llvm", **options)
    return bisection.bisect(asking(session), session.ir, question)


@pytest.fixture(autouse=True)
def faults(case, monkeypatch):
    offer(monkeypatch, f"{case.ir}/faults.py")


def _most(pipeline):
    return math.ceil(math.log2(sum(s.enabled for s in pipeline))) + 2


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_pass_is_found(case, session, tmp_path, fault):
    pipeline, index = planted(case.ir, fault, case.spots[fault])
    dtype = "float32" if fault == "gelu_tanh" else "float64"  # which is not looked at again
    result = search(session, small(tmp_path, dtype=dtype), pipeline)
    assert (result.kind, result.found.suspects) == ("wrong", (index,))
    assert result.compiles <= _most(pipeline)
    assert dtype == "float64" or not result.double.passed
    words = bisection.verdict(case.ir, result)
    assert words.startswith(f"Step {index + 1}, {fault} ")
    assert "wrong, not rounded" in words


def test_an_eps_in_the_wrong_place_on_the_way_to_the_gradient(case, session, tmp_path):
    pipeline = Pipeline.parse(case.training)
    index = [s.name for s in pipeline].index("eps_outside")
    source = small(tmp_path, training=True, dtype="float64")
    result = search(session, source, pipeline)
    assert (result.kind, result.found.suspects) == ("wrong", (index,))
    assert result.compiles <= _most(pipeline)
    on = [{s.name for s in t.pipeline if s.enabled} for t in result.log]
    assert all({"root_grad_out", "gradient"} <= names for names in on)


def test_a_pass_that_raises_is_found_and_the_session_goes_on(case, session, tmp_path):
    pipeline, index = planted(case.ir, "raises", "fold")
    result = search(session, small(tmp_path), pipeline)
    assert (result.kind, result.found.suspects) == ("crash", (index,))
    assert "no good after 4 parameters" in bisection.verdict(case.ir, result)
    right = search(session, small(tmp_path), pipeline.switched(index, False))
    assert (right.kind, right.found.suspects, right.compiles) == ("", (), 1)
