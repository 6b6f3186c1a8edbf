"""`pipelines`: TVM's own pipelines over a module, and which pass is to blame."""

import json
from types import SimpleNamespace

import pytest

from answers import engine
from command_line import document, run
from page_session import forward_graph
from place import ROOT
from relascope.commands.main import main
from relascope.core.errors import EngineError
from relascope.engine.jobs import bulk
from relascope.engine.protocol.accuracy import Comparison
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import read_pipeline
from relascope.viz.rows.gate import pipelines as rows

VECTORS = ROOT / "corpus/relax/broken/matmul_of_vectors.relax"


FEW = ("default", "tvm:zero", "tvm:default", "tvm:target", "tvm:target|-FuseOps")
FEW += ("CombineParallelMatmul|tvm:zero",)


@pytest.mark.engine
@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_every_pipeline_is_tried_and_a_second_run_goes_on(whole, tmp_path, capsys, monkeypatch):
    def tasks(*about):
        every = [*bulk.through_tvms(*about)]
        assert len(every) > 30
        return [t for t in every if whole or t.name in FEW]

    monkeypatch.setattr("relascope.commands.gate.bulk.through_tvms", tasks)
    lines = tmp_path / "lines.jsonl"
    given = ["pipelines", str(VECTORS), "--engine", "relax", "-o", str(lines), "--workers", "1"]
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


def line(pipeline, outcome, culprits=(), **more):
    return {"pipeline": pipeline, "outcome": outcome, "culprits": culprits, "verdict": "", **more}


def test_culprits_are_named_and_what_was_run_beside_the_sample_is_said_once():
    official = [
        line("tvm:zero", "right"),
        line("tvm:target", "wrong", ["FoldConstant"], max_rel=0.5),
    ]
    others = [
        line("tvm:target|-FoldConstant", "right"),
        line("tvm:target|-FuseOps", "wrong", max_rel=0.5),
        line("ToMixedPrecision|tvm:zero", "wrong", max_rel=1e-3),
        line("AdjustMatmulOrder|tvm:zero", "type changed"),
        line("DeadCodeElimination|tvm:zero", "right"),
    ]
    assert rows.culprits(official, others) == [
        "tvm:target: first bad pass: FoldConstant.",
        "tvm:target matches without FoldConstant.",
        "ToMixedPrecision in front of tvm:zero: differs by 1.0e-03 of the scale. "
        "It lowers the precision on purpose.",
        "AdjustMatmulOrder in front of tvm:zero: type changed.",
    ]
    left = "Not run: the sides of 1 `if` in recursive functions."
    lines = [line(n, "right", key=n, seconds=0.1, also=(left,)) for n in ("tvm:zero", "tvm:target")]
    said = rows.sections(rows.document(lines, {"tvm:zero", "tvm:target"}, False))
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

    opened = SimpleNamespace(best="llvm", against="PyTorch", graph=forward_graph())
    answers = {"applications": (), "graph_after": opened.graph, "inside": (), "step": ()}
    ask = engine(check=check, load=opened, describe=opened, **answers)
    source, pipeline = ModelSource("mlp", dtype="float64"), read_pipeline("relay", "FuseOps")
    row = bulk.run_task(ask, bulk.Task("relay", "mlp", source, "tvm:O0", pipeline, search=whole))
    assert rows.result(row) == result
    assert row["culprits"] == (["FuseOps"] if whole else [])


def test_tvms_pipelines_are_taken_wherever_a_pipeline_is():
    lines = document("bulk", "mlp", "--pipelines", "cse", "--pipelines", "tvm:O3|-FuseOps")["rows"]
    assert [r["pipeline"] for r in lines] == ["cse", "FoldConstant|-FuseOps"]
    found = document("diff", "mlp", "mlp", "--passes", "tvm:O3", "--passes-b", "cse|tvm:O3")
    assert [found[side]["pipeline"] for side in "ab"] == [
        "FoldConstant|FuseOps",
        "cse|FoldConstant|FuseOps",
    ]
    assert "known: tvm:O3. (--passes)" in run("check", "mlp", "--passes", "tvm:O9").stderr
