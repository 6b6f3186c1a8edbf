"""The tests of examples that both IRs share: the documented text, and how numbers are compared.

A file that imports them defines `otherwise`, the passes that change what is computed."""

import re
from io import StringIO

import numpy as np
import pytest
import torch

from answers import quiet, refused
from limits import EPSILON, OUTPUT
from place import ROOT
from quick import ENGINE, QUICK
from relascope.commands import text as texts
from relascope.engine.protocol.plain import plain
from relascope.engine.protocol.source import ModelSource
from relascope.engine.stepwise import Stepwise
from relascope.passes.catalogue import default_pipeline, info, names
from relascope.passes.pipeline import Step

PAGES = {"relay": "docs/passes.md", "relax": "docs/passes-relax.md"}
LIMIT = {"float32": OUTPUT, "float64": EPSILON}


def apply(entry, example):
    return entry.applied(example.program, Step(entry.name, True, example.params))


@pytest.mark.parametrize("name", names(ENGINE))
def test_the_documentation_shows_what_the_pass_does(session, name):
    text = (ROOT / PAGES[ENGINE]).read_text(encoding="utf-8")
    section = re.search(rf"^### {name}$(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    documented = re.search(r"^```\n(.*?)\n```$", section[1], re.MULTILINE | re.DOTALL)[1]
    assert documented == texts.example_block(plain(session.example(name, progress=quiet)))


@pytest.mark.parametrize("name", names(ENGINE))
def test_the_pass_does_something_to_its_example(session, otherwise, name):
    example = session.example(name, progress=quiet)
    assert example.before != example.after
    assert bool(example.differs) == (name in otherwise)


def test_a_script_runs_passes_one_by_one():
    out = StringIO()
    run = Stepwise(ENGINE, ModelSource("mlp"), out)
    imported = len(run.graph)
    for step in default_pipeline(ENGINE, False):
        if step.enabled:
            run.do(step.name, **dict(step.params))
    with refused(says="no_such_pass"):
        run.do("no_such_pass")
    assert run.check(QUICK)
    said = out.getvalue().splitlines()
    assert said[0].split() == ["imported", str(imported), "nodes"]
    assert said[-1].startswith("right: one tensor against PyTorch in float32")
    assert [line.split()[0] for line in said[1:-1]] == [step.name for step in run.pipeline]
    assert said[-2].split()[1] == str(len(run.graph))
    assert run.mod.functions


class Run:
    """An example's program before and after the pass, on inputs drawn, and parameters as it has
    them; results are NumPy arrays. `build` makes of a program what runs."""

    def __init__(self, backend, name, dtype, build=None):
        self._build = build or (lambda p: backend.build(p, None, QUICK))
        example = backend.example(name, dtype)
        program, after = example.program, apply(info(backend.ir, name), example)
        rng = np.random.default_rng(5)
        graphs = [backend.to_graph(p)[0] for p in (program, after)]
        self.values = {}
        for node in (n for g in graphs for n in g if n.id in g.inputs):
            (kind,) = node.outputs
            drawn = rng.standard_normal(kind.shape) * (1 if "float" in kind.dtype else 50)
            drawn = np.asarray(drawn).astype(kind.dtype)
            self.values.setdefault(node.name, torch.from_numpy(drawn))
        for known, array in {**after.params, **program.params}.items():
            self.values[known] = torch.from_numpy(array.numpy())
        self.program, self.program_after = program, after
        self.before, self.after = (self._run(p) for p in (program, after))

    def _run(self, program):
        outputs, gradients = self._build(program).forward(self.values)
        return [t.numpy() for t in (*outputs, *gradients.values())]

    def __getitem__(self, name):
        return self.values[name].numpy()


def assert_close(ours, theirs, dtype, limit=None):
    """Equal shapes and dtypes, and values within rounding of the dtype, or another limit."""
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        scale = max(float(np.abs(b).max()), 1e-30)
        assert float(np.abs(a - b).max()) <= (limit or LIMIT[dtype]) * scale
