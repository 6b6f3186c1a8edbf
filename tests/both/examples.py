"""Each pass on its small program: what the documentation shows, and that numbers stay.

A file that imports this defines `otherwise`: passes that change what is computed, by a function of
a `Run` and the dtype that asserts what their example computes afterwards."""

import re
from io import StringIO

import numpy as np
import pytest
import torch

from answers import quiet, refused
from gradients import runtime
from limits import EPSILON, OUTPUT, rounding
from place import ROOT
from quick import ENGINE, QUICK, rare
from relascope.commands import text as texts
from relascope.core.errors import EngineError
from relascope.engine.building.options import BuildOptions
from relascope.engine.in_process import load_engine
from relascope.engine.protocol.plain import plain
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import default_pipeline, info, names
from relascope.passes.pipeline import Step
from relascope.viz.rows.script import step_script

PAGES = {"relay": "docs/passes.md", "relax": "docs/passes-relax.md"}
LIMIT = {"float32": OUTPUT, "float64": EPSILON}
BACKEND = load_engine(ENGINE)
IN_FLOAT32 = ("mixed_precision", "fast_math")
"""Passes that do something else in float32 than in float64, whose limits are the narrower."""


def apply(entry, example):
    return entry.applied(example.program, Step(entry.name, True, example.params))


@pytest.mark.parametrize("name", names(ENGINE))
def test_the_pass_does_something_to_its_example_which_is_documented(session, otherwise, name):
    text = (ROOT / PAGES[ENGINE]).read_text(encoding="utf-8")
    section = re.search(rf"^### {name}$(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    documented = re.search(r"^```\n(.*?)\n```$", section[1], re.MULTILINE | re.DOTALL)[1]
    example = session.example(name, progress=quiet)
    assert documented == texts.example_block(plain(example))
    assert example.before != example.after
    assert bool(example.differs) == (name in otherwise)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        (n, d) if d == "float64" or n in IN_FLOAT32 else rare(n, d)
        for n in names(ENGINE)
        for d in LIMIT
    ],
)
def test_the_example_computes_the_same_after_the_pass(otherwise, name, dtype):
    if (ENGINE, name, dtype) == ("relax", "mixed_precision", "float64"):
        with pytest.raises(EngineError, match="needs float32"):
            Run(name, dtype)
        return
    run = Run(name, dtype)
    otherwise.get(name, lambda run, dtype: assert_close(run.after, run.before, dtype))(run, dtype)


def test_an_exported_script_runs_passes_one_by_one():
    pipeline = default_pipeline(ENGINE, False).switched(1, False)
    text = step_script(ENGINE, ModelSource("mlp"), pipeline)
    given = ('ModelSource("mlp"))', "run.check()"), ('ModelSource("mlp"), out)', "run.check(QUICK)")
    for written, ours in zip(*given, strict=True):
        assert written in text
        text = text.replace(written, ours)
    names = {"out": (out := StringIO()), "QUICK": QUICK}
    with pytest.raises(SystemExit) as end:
        exec(text, names)
    assert end.value.code == 0
    run = names["run"]
    with refused(says="no_such_pass"):
        run.do("no_such_pass")
    said = out.getvalue().splitlines()
    assert said[0].split()[::2] == ["imported", "nodes"]
    assert said[-1].startswith("right: one tensor against PyTorch in float32")
    assert [line.split()[0] for line in said[1:-1]] == [s.name for s in pipeline if s.enabled]
    assert said[-2].split()[1] == str(len(run.graph))
    assert run.mod.functions


class Run:
    """An example's program before and after the pass, on inputs drawn, and parameters as it has
    them; results are NumPy arrays."""

    def __init__(self, name, dtype):
        example = BACKEND.examples[name](dtype)
        program, after = example.program, apply(info(ENGINE, name), example)
        rng = np.random.default_rng(5)
        graphs = [BACKEND.to_graph(p)[0] for p in (program, after)]
        self.values = {}
        for node in (n for g in graphs for n in g if n.id in g.inputs):
            (kind,) = node.outputs
            drawn = rng.standard_normal(kind.shape) * (1 if "float" in kind.dtype else 50)
            drawn = np.asarray(drawn).astype(kind.dtype)
            self.values.setdefault(node.name, torch.from_numpy(drawn))
        for known, array in {**after.params, **program.params}.items():
            self.values[known] = torch.from_numpy(array.numpy())
        self.before, self.after = (self._run(p) for p in (program, after))

    def _run(self, program):
        # Few of TVM's own passes run in building, so that they cannot make good what ours did.
        built = runtime.assemble(program, None, BuildOptions(QUICK, opt_level=1))
        outputs, gradients = built.forward(self.values)
        return [t.numpy() for t in (*outputs, *gradients.values())]

    def __getitem__(self, name):
        return self.values[name].numpy()


def reads_bits(run, dtype):
    bits = np.unpackbits(run["dropout_mask_0_bits"], axis=0, bitorder="little").reshape(4, 4)
    scaled = run["x"] * (bits if ENGINE == "relax" else bits / np.dtype(dtype).type(0.9))
    expected = scaled if ENGINE == "relax" else np.maximum(scaled, 0)
    assert_close(run.after, [expected.astype(dtype)], dtype)


def is_rounded(run, dtype):
    assert_close(run.after, run.before, dtype, rounding("float16", 1))
    assert any((a != b).any() for a, b in zip(run.after, run.before, strict=True))


def assert_close(ours, theirs, dtype, limit=None):
    """Equal shapes and dtypes, and values within rounding of the dtype, or another limit."""
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        scale = max(float(np.abs(b).max()), 1e-30)
        assert float(np.abs(a - b).max()) <= (limit or LIMIT[dtype]) * scale
