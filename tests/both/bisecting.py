"""The tests of bisection that both engines share: planted faults are found, without a hint.

A file that imports them defines `case`, what is the engine's own, and `session`."""

import ctypes
import gc
import io
import itertools
import math
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import corpus
from answers import asking, refused
from limits import LIMITS, OUTPUT
from quick import ENGINE, QUICK
from relascope.core.errors import EngineError
from relascope.engine.faults import files
from relascope.engine.jobs import bisect as bisection
from relascope.engine.jobs import reduce
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.session import silent
from relascope.engine.protocol.source import INPUTS, source_from_file
from relascope.passes import catalogue
from relascope.passes.catalogue import default_pipeline, read_pipeline, user, with_tvms
from relascope.passes.pipeline import Pipeline, Step
from traces import Fn, Parts, save

# Those of an inference pipeline.
FAULTS = ("gelu_tanh", "in_float16", "weight_transposed", "residual_dropped", "softmax_axis")


WIDE = ("large", "edges")  # kinds of inputs whose integers are


@dataclass(frozen=True)
class Case:
    """After which step of the inference pipeline each fault is planted; a way to the gradient."""

    ir: str
    spots: dict[str, str]
    training: str


def residual():
    """A layer norm, a square layer and gelu, with a residual: (3, 8) to (3, 8)."""
    parts = {"norm": nn.LayerNorm(8), "fc": nn.Linear(8, 8)}
    return Parts(lambda m, x: x + nn.functional.gelu(m.fc(m.norm(x))), **parts)


def tiny():
    """A layer and gelu: (3, 8) to (3, 8)."""
    return nn.Sequential(nn.Linear(8, 8, bias=False), nn.GELU())


def attention():
    """Without heads: (3, 8) to (3, 8)."""
    return Fn(lambda x, w: torch.softmax(x @ w @ x.T, -1) @ x, (8, 8))


def wide():
    """Two layers whose products take most of the time: (32, 256) to (32, 256)."""
    return nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256))


def small(folder, make=residual, **options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module, x = make(), torch.randn(32, 256) if make is wide else torch.randn(3, 8)
    return source_from_file(save(module, (x,), folder / f"{make.__name__}.pt"), **options)


def model_of(fault):
    return {"softmax_axis": attention, "slow": wide}.get(fault, residual)


def offer(monkeypatch, file):
    monkeypatch.setattr(catalogue, "CATALOGUE", dict(catalogue.CATALOGUE))
    monkeypatch.setenv(user.VARIABLE, "")
    user.name_files([str(file)])


def planted(ir, fault, after):
    """The default inference pipeline with a fault after the first step of a name, and its index."""
    steps = list(default_pipeline(ir, False))
    index = [s.name for s in steps].index(after) + 1
    return Pipeline((*steps[:index], Step(fault), *steps[index:])), index


def search(session, source, pipeline, **options):
    question = bisection.Question(source, pipeline, QUICK, **options)
    return bisection.bisect(asking(session), session.ir, question)


@pytest.fixture(autouse=True)
def faults(case, monkeypatch):
    offer(monkeypatch, Path(__file__).parents[1] / case.ir / "support" / "faults.py")


def most(pipeline):
    """How many compiles a search may take."""
    return math.ceil(math.log2(sum(s.enabled for s in pipeline))) + 2


# In Relay, whose builds take longer: behind a pass that fuses, and what only float64 tells apart.
RARE = pytest.mark.exhaustive if ENGINE == "relay" else ()
SLOWER = "in_float16", "weight_transposed", "softmax_axis"


@pytest.mark.parametrize(
    "fault", [pytest.param(f, marks=RARE if f in SLOWER else ()) for f in FAULTS]
)
def test_a_faulty_pass_is_found(case, session, tmp_path, fault):
    pipeline, index = planted(case.ir, fault, case.spots[fault])
    dtype = "float32" if fault == "gelu_tanh" else "float64"  # which is not looked at again
    result = search(session, small(tmp_path, model_of(fault), dtype=dtype), pipeline)
    assert (result.kind, result.culprits.suspects) == ("wrong", (index,))
    assert result.compiles <= most(pipeline)
    assert dtype == "float64" or not result.double.passed
    words = bisection.verdict(case.ir, result)
    assert words.startswith(f"Step {index + 1}, {fault}, makes it ")
    assert "wrong, not rounded" in words


def test_an_eps_in_the_wrong_place_on_the_way_to_the_gradient(case, session, tmp_path):
    pipeline = Pipeline.parse(case.training)
    index = [s.name for s in pipeline].index("eps_outside")
    result = search(session, small(tmp_path, training=True, dtype="float64"), pipeline)
    assert (result.kind, result.culprits.suspects) == ("wrong", (index,))
    assert result.compiles <= most(pipeline)
    on = [{s.name for s in t.pipeline if s.enabled} for t in result.log]
    assert all({"root_grad_out", "gradient"} <= names for names in on)


def slow_pipeline(case, monkeypatch):
    """The inference pipeline with a pass that makes it slow, and its index.

    From here on the test measures CPU time, so that what else the machine does decides nothing."""
    calls = itertools.count()  # that clock may stand still for a short run
    cpu_time = time.process_time
    monkeypatch.setattr(time, "perf_counter", lambda: cpu_time() + 1e-5 * next(calls))
    return planted(case.ir, "slow", case.spots["slow"])


def test_a_pass_that_makes_it_slow_is_found(case, session, tmp_path, monkeypatch):
    source = small(tmp_path, wide)
    pipeline, index = slow_pipeline(case, monkeypatch)
    result = search(session, source, pipeline, kind="slow", factor=10, threads=1, repeats=3)
    assert (result.kind, result.culprits.suspects) == ("slow", (index,))
    assert [t.outcome for t in result.log].count("slow") == 2  # the whole, beside one of the others
    assert bisection.verdict(case.ir, result).startswith(f"Step {index + 1}, slow, makes it ")


def test_a_pass_that_raises_or_breaks_one_run_in_two_is_found(case, session, tmp_path):
    pipeline, index = planted(case.ir, "raises", "fold")
    result = search(session, small(tmp_path), pipeline)
    assert (result.kind, result.culprits.suspects) == ("crash", (index,))
    assert "no good after 4 parameters" in bisection.verdict(case.ir, result)
    right = search(session, small(tmp_path), pipeline.switched(index, False))
    assert (right.kind, right.culprits.suspects, right.compiles) == ("", (), 2)
    pipeline = Pipeline.parse("cse|breaks_every_second_run|dce")
    result = search(session, small(tmp_path, dtype="float64"), pipeline, runs=2)
    assert (result.kind, result.culprits.suspects) == ("wrong", (1,))
    assert (result.log[0].runs, result.log[0].bad) == (2, 1)
    assert " in 1 of 2 runs" in bisection.verdict(case.ir, result)


def test_every_module_of_a_pipeline_is_text_that_a_test_can_run(case, session, tmp_path):
    source = small(tmp_path)
    plain = session.check(BuildRequest(source, Pipeline(), QUICK), progress=silent)
    assert plain[0].max_rel < OUTPUT
    read, text = [], b""
    target = {"relay": QUICK, "relax": {"kind": "llvm", "opt-level": 0}}[case.ir]
    pipeline = default_pipeline(case.ir, False)
    for index in (-1, *range(len(pipeline))):
        if index >= 0 and not pipeline.steps[index].enabled:
            continue
        made = session.written(source, pipeline.upto(index), progress=silent)
        name, _, ending = made.name.partition(".")
        assert name == ("before" if index < 0 else "module")
        # Relay's text rounds the numbers inside fused functions, so that it is not read back.
        fused = case.ir == "relay" and index >= 0 and pipeline.steps[index].name == "fuse"
        assert ending == ("json" if fused else {"relay": "relay", "relax": "py"}[case.ir])
        if made.module == text:  # the step changed nothing
            continue
        text = made.module
        texts = ("", text.decode()) if fused else (text.decode(), "")
        mod = session.backend.replay.read(*texts, {})
        read.append((mod, dict(np.load(io.BytesIO(made.values)))))
    assert len(read) > 3
    results = []
    for mod, values in (*read[:-1:3], read[-1]):
        run = session.backend.replay.runner(mod, values, target, False)
        run()
        results.append(run.results()[0])
        assert np.abs(results[-1] - results[0]).max() < OUTPUT


def test_values_that_are_too_large_to_hand_to_a_test_are_refused(session, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_MOST", 300)
    with pytest.raises(EngineError, match="a test gets at most"):
        session.written(small(tmp_path), Pipeline(), progress=silent)


def test_integers_and_views_of_every_kind_are_computed_as_pytorch_does(session, tmp_path):
    def looked_up(m, ids, places, free, x):
        return m.table(ids) + m.rows[places], free * 3 - 1, x.transpose(0, 1).reshape(-1)

    torch.manual_seed(0)
    module = Parts(looked_up, table=nn.Embedding(10, 4), rows=nn.Parameter(torch.randn(6, 4)))
    given = (*(torch.randint(0, n, (4, 6)) for n in (10, 6, 5)), torch.randn(4, 6))
    plain = source_from_file(save(module, given, tmp_path / "integers.pt"), dtype="float64")
    for kind in INPUTS:
        source = replace(plain, values=kind)
        for one in session.check(BuildRequest(source, Pipeline(), QUICK), progress=silent):
            assert one.max_rel < LIMITS["float64"][0], (kind, one)
        ids, places, free, x = session.programs.loaded(source, silent).model.inputs
        assert (int(ids.min()) >= 0) and (int(free.abs().max()) > 2**53) == (kind in WIDE)
        assert (int(places.min()) < 0) == (not x.is_contiguous()) == (kind == "edges")


def test_what_a_pass_itself_takes_is_found_and_narrowed(case, session, tmp_path):
    source, pipeline = small(tmp_path), Pipeline.parse("sleeps|leaks")
    gc.collect()  # what earlier tests left would count as given back
    ctypes.CDLL(None).malloc_trim(0)
    memory = search(session, source, pipeline, kind="memory", memory=96)
    assert (memory.kind, memory.culprits.suspects) == ("memory", (1,))
    quick = Pipeline.parse("eps_outside|sleeps")
    slow = search(session, source, quick, kind="slow", factor=1e9, repeats=2, seconds=0.2)
    assert (slow.kind, slow.culprits.suspects) == ("long", (1,))
    ran = bisection.verdict(case.ir, search(session, source, quick))
    assert "The longest pass, step 2, sleeps, took " in ran
    made = reduce.narrow(asking(session), case.ir, memory, most=4)
    assert made.shown.outcome == "memory"
    assert " MiB on " in made.report.title
    assert b"MiB of memory stay" in made.report.files["README.md"]
    assert "MiB stay" in reduce.verdict(case.ir, made)
    nothing = bisection.verdict(case.ir, search(session, source, pipeline))
    assert "most memory stayed after step 2, leaks: " in nothing


UNREAD = ("slice_without_axes",)
"""Cases of the corpus over which TVM's own reader fails."""


def test_every_case_of_the_corpus_is_opened_and_names_passes_of_its_pipeline(case, session):
    known = session.pipelines(progress=silent).pipelines
    of_engine = [c for c in corpus.cases() if c.engine == case.ir]
    assert len(of_engine) > 15
    for one in of_engine:
        head = one.head
        steps = read_pipeline(case.ir, with_tvms(case.ir, head["pipeline"], known))
        assert head.get("culprit", steps.steps[0].name) in {s.name for s in steps}, one.name
        fine = head["verdict"] in ("right", "refused")
        assert fine == (one.path.parent.name == "mended"), one.name
        assert not (fine and "culprit" in head), one.name
        if "before" in head:  # of what was mended: what it was, by which pass, and until when
            verdict, culprit, version = head["before"].split()
            assert verdict in corpus.VERDICTS and culprit in {s.name for s in steps}, one.name
            assert fine and version < head["versions"], one.name
        source = source_from_file(one.path)
        if one.name in UNREAD or head["verdict"] == "refused":
            with refused("reader" if one.name in UNREAD else "file", one.name):
                session.load(source, progress=silent)
        else:
            assert session.load(source, progress=silent).graph.nodes, one.name
