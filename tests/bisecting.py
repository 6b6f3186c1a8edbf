"""Planting faulty passes into pipelines, and searching for them with a session of this process."""

from pathlib import Path

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
