"""`pipelines`: TVM's own pipelines over a module, and which pass is to blame."""

import json

import pytest

from relascope.commands.main import main
from relascope.viz.rows.gate import pipelines as rows

VECTORS = """
from tvm.script import ir as I
from tvm.script import relax as R

@I.ir_module
class Module:
    @R.function
    def main(
        x: R.Tensor((16,), "float32"),
        a: R.Tensor((16, 32), "float32"),
        b: R.Tensor((16, 32), "float32"),
    ) -> R.Tensor((32,), "float32"):
        with R.dataflow():
            y = R.add(R.matmul(x, a), R.matmul(x, b))
            R.output(y)
        return y
"""


@pytest.mark.engine
def test_every_pipeline_is_tried_and_a_second_run_goes_on(tmp_path, capsys):
    model, lines = tmp_path / "vectors.relax", tmp_path / "lines.jsonl"
    model.write_text(VECTORS, encoding="utf-8")
    given = ["pipelines", str(model), "--engine", "relax", "-o", str(lines), "--workers", "1"]
    assert main([*given, "--fail"]) == 3  # ours has TVM's faulty pass
    said = capsys.readouterr().out
    assert "CombineParallelMatmul in front of tvm:zero: crash." in said
    assert "default: first bad pass: combine_matmul." in said
    assert main([*given, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    results = {r["pipeline"]: r["result"] for r in found["rows"]}
    assert found["resumed"] == len(results) > 30
    assert {results[f"tvm:{n}"] for n in ("zero", "default", "target")} == {"match"}
    assert results["tvm:target|-FuseOps"] == "match"


def line(pipeline, outcome, culprits=(), **more):
    return {"pipeline": pipeline, "outcome": outcome, "culprits": culprits, "verdict": "", **more}


def test_culprits_are_named_by_what_cures_and_what_breaks():
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
        "It computes in less precision, on purpose.",
        "AdjustMatmulOrder in front of tvm:zero: type changed.",
    ]
