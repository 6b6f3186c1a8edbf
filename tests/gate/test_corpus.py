"""The corpus of TVM's faults: the score counts what relascope says of each case.

That every case is opened is asked in each engine's own process (tests/both/bisecting.py)."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

import corpus
from answers import answer, ran
from engines import shared
from quick import rare
from relascope.engine.jobs import reduce
from relascope.engine.protocol.fault import Account, Suspicion
from relascope.engine.protocol.source import source_from_file
from relascope.passes.catalogue import read_pipeline
from relascope.passes.search.reduce import whole


@pytest.mark.engine
@pytest.mark.parametrize(
    ("ir", "names"),
    [
        ("relax", ("plan_across_branches", "take_clip")),  # inside the branches of an `if`
        rare("relax", ("matmul_by_vectors", "order_out_dtype")),
        # Where what is imported fails otherwise, and where TVM's own build crashes before, too:
        # the searches by themselves are asked about both (tests/commands).
        rare("relax", ("fuse_before_size", "conv_of_open_size")),
        rare("relay", ("zero_by_zero", "squeeze_of_no_axis")),
    ],
)
def test_a_fault_is_named_and_reduced_and_a_control_is_right(ir, names, tmp_path, monkeypatch):
    made, narrow = [], reduce.narrow
    monkeypatch.setattr(reduce, "narrow", lambda *a, **k: made.append(narrow(*a, **k)) or made[-1])
    rows = [corpus.judged(c, shared(ir)) for c in corpus.cases(names)]
    assert [r["found"] for r in rows] == [r["expected"] for r in rows]
    assert corpus.missed(rows) == []
    assert corpus.score(rows)["few"] == corpus.score(rows)["controls"] == (1, 1)
    assert "-schedules=" not in made[0].report.files["README.md"].decode()
    if (name := names[0]) in SEEN:  # with a script to paste that needs TVM alone
        (culprit,) = (r["culprit"] for r in rows if r["case"].endswith(name))
        fails_while_the_pass_runs(tmp_path, ir, made[0].report, culprit, SEEN[name], True)


SEEN = {"zero_by_zero": "Divide by zero", "plan_across_branches": "Var storage is not defined"}


CHILD = "from relascope.engine.relay.tvm import boot; import json; boot.boot(); "
CHILD += "print(json.dumps(boot.child_environment()))"


def fails_while_the_pass_runs(folder, ir, report, culprit, said, and_only_then=False):
    text = report.files["README.md"].decode()
    (code,) = re.findall(r"^```python\n(import.*?)^```", text, re.MULTILINE | re.DOTALL)
    without, count = re.subn(rf"(after = ).*{culprit}\(.*?\)\((\w+)\)\n", r"\1\2\n", code)
    assert count == 1
    (folder / "torch.py").write_text("raise ImportError")  # TVM imports it where it finds it
    for source, status in ((code, 1), (without, 0))[: 1 + and_only_then]:
        (folder / "script.py").write_text(source)
        env = {**os.environ, **(answer(CHILD) if ir == "relay" else {})}
        done = ran(sys.executable, "-s", folder / "script.py", cwd=folder, env=env)
        assert (done.returncode, said in done.stderr) == (status, bool(status)), done.stderr
    return code


@pytest.mark.engine
@pytest.mark.exhaustive
def test_a_script_draws_many_numbers_and_runs_passes_in_order(tmp_path):
    (case,) = corpus.cases(["batch_norm_training"])
    path = tmp_path / "mod.relax"
    path.write_text(case.path.read_text().replace("(2, 3, 4, 4)", "(2, 3, 16, 16)"))
    source, ask = source_from_file(path), shared("relax").call
    pipeline = read_pipeline("relax", "FoldConstant|DecomposeOpsForInference")
    where = Suspicion(pipeline, 0, 1, "wrong", "llvm", 1e-5)
    piece = whole(ask("suspects", source, where).graph)
    account = Account("mod.relax", ask("narrow", source, where, piece), "", True)
    report = ask("report", source, where, piece, account)
    seen = "Not equal to tolerance"
    code = fails_while_the_pass_runs(tmp_path, "relax", report, "DecomposeOpsForInference", seen)
    assert "FoldConstant()(before)" in code and "DecomposeOpsForInference()(after)" in code
    assert "'x': rng.standard_normal((2, 3, 16, 16)).astype('float32')" in code
    assert "'gamma': np.array([" in code


@pytest.mark.engine
def test_an_operator_that_no_pass_lowers_is_a_fault_of_the_whole_pipeline():
    (case,) = corpus.cases(["legalize_before_fold"])
    found = corpus.judged(case, shared("relax"))
    assert (found["found"], found["named"]) == ("crash", "import")
    assert "No pass lowers an operator that is left: R.add" in found["said"]


def row(expected, found, culprit="", named="", **more):
    return {"expected": expected, "found": found, "culprit": culprit, "named": named, **more}


def test_what_is_missed_is_said():
    good = row("wrong", "wrong", "A", "A", nodes=2, status=1)
    then = row("right", "right", before="wrong A 0.26", earlier="wrong A")
    assert corpus.missed([good, then]) == []
    assert corpus.missed([good, row("right", "right"), row("crash", "not opened", "A")]) == []
    for bad, said in (
        (row("wrong", "right", "A"), "called right and wrong in truth"),
        (row("wrong", "crash", "A", "A", nodes=2, status=1), "symptom seen"),
        (row("wrong", "wrong", "A", "A or B", nodes=2, status=1), "culprit named"),
        (row("wrong", "wrong", "A", "A", nodes=6, status=1), "reduced"),
        (row("wrong", "wrong", "A", "A", nodes=2, status=0), "reduced"),
        (row("right", "wrong", named="A"), "called right, of those right"),
        (row("right", "right", before="wrong A 0.26", earlier="wrong B"), "found, with the pass"),
    ):
        assert any(m.startswith(said) for m in corpus.missed([bad])), said


def test_the_command_keeps_the_score_with_an_earlier_tvms(tmp_path, monkeypatch, capsys):
    def judged(case, client):
        more = {"thread": "t", "seconds": 1.0, "before": case.head["before"]}
        return row("right", "right", case=case.name, engine=client.ir, **more)

    python, page = tmp_path / "python", tmp_path / "README.md"
    told = {"rows": [{"case": "take_clip", "found": "wrong", "named": "ReorderTakeAfterMatmul"}]}
    python.write_text(f"#!/bin/sh\necho '{json.dumps(told)}' > $5\n")
    python.chmod(0o755)
    page.write_text(corpus.PAGE.read_text())
    monkeypatch.setattr(corpus, "judged", judged)
    monkeypatch.setattr(corpus, "PAGE", page)
    asked = f"corpus.py take_clip -o {tmp_path}/rows.json --page --tvm {python}"
    monkeypatch.setattr(sys, "argv", asked.split())
    assert corpus.main() == 0
    assert "Every bar is met." in capsys.readouterr().out
    earlier = "wrong ReorderTakeAfterMatmul"
    line = f"| take_clip | t | right | right |  |  |  |  |  | 1 | {earlier} 0.26 | {earlier} |"
    assert line in page.read_text()
    assert json.loads((tmp_path / "rows.json").read_text())["rows"][0]["earlier"] == earlier


def test_a_header_that_lacks_a_field_is_refused(tmp_path: Path):
    (tmp_path / "one.relay").write_text("// thread: none\n// verdict: right\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"one\.relay lacks expected, pipeline, versions"):
        corpus.cases(root=tmp_path)
    with pytest.raises(ValueError, match="has no nothing_like_it"):
        corpus.cases(["nothing_like_it"])
