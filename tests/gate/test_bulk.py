"""Many models through many pipelines, and TVM's own over a module: which pass is to blame."""

import json
from functools import partial
from types import SimpleNamespace

import pytest

from answers import engine
from command_line import document, run
from page_session import BROKEN_SEED, FAILING_SEED, WRONG_SEED, forward_graph, session_of
from place import ROOT
from relascope.commands.gate.bulk import culprits, document_of, in_threads
from relascope.commands.main import main
from relascope.core.errors import EngineError
from relascope.engine.client import EngineClient
from relascope.engine.jobs.bulk import Task, run_task, through_tvms
from relascope.engine.limits import NO_LIMITS
from relascope.engine.protocol.accuracy import Comparison
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import read_pipeline
from relascope.viz.rows.gate import pipelines as tvms


def task(number=0, pipeline="cse|fold|dce", seed=0):
    source = ModelSource(f"model{number}", seed=seed)
    return Task("relay", f"model{number}", source, pipeline, read_pipeline("relay", pipeline))


def row(model, outcome, *culprits):
    return {"model": model, "pipeline": "p", "outcome": outcome, "culprits": list(culprits)}


def test_the_table_of_culprits_counts_models_once_each():
    found = "a wrong fold; a crash fold; b wrong fold; b slow cse; c wrong dce cse; d crash"
    rows = [row(*line.split()) for line in f"{found}; e right".split(";")]
    assert [tuple(r.values()) for r in culprits(rows)] == [
        ("fold", 2, 0, 0, 0, ["a", "b"]),
        ("(not found)", 1, 0, 0, 0, ["d"]),
        ("cse", 0, 1, 0, 1, ["b", "c"]),
        ("dce", 0, 0, 0, 1, ["c"]),
    ]
    data = document_of(rows, ["slow"])
    assert data["fails"] and data["outcomes"]["wrong"] == 3
    assert not document_of(rows, ["not opened"])["fails"]


def session(deaths=0):
    """An engine whose pass `fold` breaks a model, and which ends so many times."""
    left = [*range(deaths)]

    def check(request, *captures):
        if left:
            left.pop()
            raise EngineError("engine", "The engine was killed.")
        wrong = any(s.name == "fold" and s.enabled for s in request.pipeline)
        size = 1.0 if wrong and request.source.seed == WRONG_SEED else 1e-17
        return (Comparison("output 0", size, size, 1.0, request.source.dtype),)

    return answering(check)


def answering(check):
    """An engine whose programs are what `check` says."""
    info = SimpleNamespace(best="llvm", against="PyTorch", graph=forward_graph())
    answers = {"applications": (), "inside": (), "step": (), "graph_after": info.graph}
    return engine(check=check, load=info, describe=info, **answers)


def test_a_bad_line_is_bisected_once_and_a_killed_engine_is_asked_again():
    found = run_task(session(), task(seed=WRONG_SEED))
    assert (found["outcome"], found["culprits"], found["tries"]) == ("wrong", ["fold"], 1)
    assert "Step 2, fold" in found["verdict"]
    for deaths, outcome in ((1, "right"), (99, "crash")):
        found = run_task(session(deaths), task())
        assert (found["outcome"], found["tries"]) == (outcome, 2)


def test_lines_are_written_as_they_come_and_the_same_command_goes_on(tmp_path):
    file = tmp_path / "lines.jsonl"
    given = ["bulk", "mlp", "bert", "--pipelines", "cse", "--pipelines", "cse|fold"]
    given += ["-o", str(file), "--workers", "1"]
    data = document(*given)
    assert data["outcomes"] == {"right": 4} and data["resumed"] == 0
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:2], lines[2][:20]]))  # torn off in the third
    again = document(*given)
    assert again["resumed"] == 2 and again["outcomes"] == {"right": 4}
    for one, other in zip(again["rows"], data["rows"], strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}
    kept = [json.loads(x) for x in file.read_text().splitlines() if x.endswith("}")]
    assert len(kept) == 4
    assert "4 right; 4 of them from before." in run(*given).stdout
    assert document(*given, "--slow")["resumed"] == 0  # another question


def test_what_cannot_be_read_is_said_before_anything_runs(tmp_path):
    for given, status, words in (
        ((str(tmp_path),), 2, "no model in this folder"),
        (("mlp", "--pipelines", "nonsense"), 2, "'nonsense'"),
        (("mlp", "--pipelines", f"@{tmp_path}/no"), 1, "The file of pipelines cannot be read."),
    ):
        assert words in document("bulk", *given, status=status)["error"]["message"]
    (tmp_path / "some").write_text("# two\ncse\n\ncse|dce\n")
    data = document("bulk", "mlp", "--pipelines", f"@{tmp_path}/some", "--workers", "1")
    assert [r["pipeline"] for r in data["rows"]] == ["cse", "cse|dce"]


def test_outcomes_of_models_that_do_not_open_or_whose_pass_fails():
    failing = task(1, "cse|simplify_inference", seed=FAILING_SEED)
    tasks = [task(0, seed=BROKEN_SEED), failing, task(2)]
    connect = partial(EngineClient, session=session_of("relay"))
    found = {t.model: r for t, r in in_threads(tasks, connect, NO_LIMITS, 2)}
    assert [found[f"model{n}"]["outcome"] for n in (0, 2)] == ["not opened", "right"]
    assert "frobnicate" in found["model0"]["verdict"]


FEW = ("default", "tvm:zero", "tvm:default", "tvm:target", "tvm:target|-FuseOps")
FEW += ("CombineParallelMatmul|tvm:zero",)


@pytest.mark.engine
@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_every_pipeline_is_tried_and_a_second_run_goes_on(whole, tmp_path, capsys, monkeypatch):
    def tasks(*about):
        every = [*through_tvms(*about)]
        assert len(every) > 30
        return [t for t in every if whole or t.name in FEW]

    monkeypatch.setattr("relascope.commands.gate.bulk.through_tvms", tasks)
    lines = tmp_path / "lines.jsonl"
    model = str(ROOT / "corpus/relax/broken/matmul_of_vectors.relax")
    given = ["pipelines", model, "--engine", "relax", "-o", str(lines), "--workers", "1"]
    assert main([*given, "--fail"]) == 3  # ours has TVM's faulty pass
    said = capsys.readouterr().out
    assert "CombineParallelMatmul in front of tvm:zero: crash." in said
    assert "default: first bad pass: combine_matmul." in said
    assert main([*given, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    results = {r["pipeline"]: r["result"] for r in found["rows"]}
    assert found["resumed"] == len(results) >= len(FEW)
    assert {results[f"tvm:{n}"] for n in ("zero", "default", "target")} == {"match"}
    assert results["tvm:target|-FuseOps"] == "match"


def tried(pipeline, outcome, culprits=(), **more):
    return {"pipeline": pipeline, "outcome": outcome, "culprits": culprits, "verdict": "", **more}


def test_culprits_are_named_and_what_was_run_beside_the_sample_is_said_once():
    bad = tried("tvm:target", "wrong", ["FoldConstant"], max_rel=0.5)
    others = [
        tried("tvm:target|-FoldConstant", "right"),
        tried("tvm:target|-FuseOps", "wrong", max_rel=0.5),
        tried("ToMixedPrecision|tvm:zero", "wrong", max_rel=1e-3),
        tried("AdjustMatmulOrder|tvm:zero", "type changed"),
        tried("DeadCodeElimination|tvm:zero", "right"),
    ]
    assert tvms.culprits([tried("tvm:zero", "right"), bad], others) == [
        "tvm:target: first bad pass: FoldConstant.",
        "tvm:target matches without FoldConstant.",
        "ToMixedPrecision in front of tvm:zero: differs by 1.0e-03 of the scale. "
        "It lowers the precision on purpose.",
        "AdjustMatmulOrder in front of tvm:zero: type changed.",
    ]
    left = "Not run: the sides of 1 `if` in recursive functions."
    names = "tvm:zero", "tvm:target"
    lines = [tried(n, "right", key=n, seconds=0.1, also=(left,)) for n in names]
    said = tvms.sections(tvms.document(lines, {*names}, False))
    assert [one["text"] for one in said[1:]] == ["Every pipeline matches.", left]


@pytest.mark.parametrize(
    ("shows", "result"),
    [
        (EngineError("type", "FuseOps left a program that is not well-formed: x."), "ill-formed"),
        (EngineError("type", "FuseOps changed the type of a result."), "type changed"),
        (EngineError("pass", "No."), "crash"),
        (Comparison("y", 0.5, 0.5, 1.0, "float64"), "differs by 5.0e-01 of the scale"),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_a_pipeline_is_called_by_what_it_does_whether_it_is_bisected_or_not(shows, result, whole):
    def check(request):
        if not any(s.enabled for s in request.pipeline):
            return (Comparison("y", 0.0, 0.0, 1.0, "float64"),)
        if isinstance(shows, EngineError):
            raise shows
        return (shows,)

    source, pipeline = ModelSource("mlp", dtype="float64"), read_pipeline("relay", "FuseOps")
    row = run_task(answering(check), Task("relay", "mlp", source, "tvm:O0", pipeline, search=whole))
    assert tvms.result(row) == result
    assert row["culprits"] == (["FuseOps"] if whole else [])


def test_tvms_pipelines_are_taken_wherever_a_pipeline_is():
    lines = document("bulk", "mlp", "--pipelines", "cse", "--pipelines", "tvm:O3|-FuseOps")["rows"]
    assert [r["pipeline"] for r in lines] == ["cse", "FoldConstant|-FuseOps"]
    found = document("diff", "mlp", "mlp", "--passes", "tvm:O3", "--passes-b", "cse|tvm:O3")
    both = ["FoldConstant|FuseOps", "cse|FoldConstant|FuseOps"]
    assert [found[side]["pipeline"] for side in "ab"] == both
    assert "known: tvm:O3. (--passes)" in run("check", "mlp", "--passes", "tvm:O9").stderr
