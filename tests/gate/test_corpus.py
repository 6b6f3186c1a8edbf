"""The corpus of TVM's faults: the score counts what relascope says of each case.

That every case is opened is asked in each engine's own process (tests/both/bisecting.py).
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import corpus
from engines import shared
from relascope.engine.jobs import bisect, reduce
from relascope.engine.protocol.source import source_from_file
from relascope.passes.catalogue import read_pipeline


@pytest.mark.engine
@pytest.mark.parametrize(
    ("ir", "names"),
    [
        pytest.param(
            *("relax", ("matmul_by_vectors", "order_out_dtype")), marks=pytest.mark.exhaustive
        ),
        ("relax", ("plan_across_branches", "take_clip")),  # inside the branches of an `if`
        ("relax", ("fuse_before_size", "conv_of_open_size")),  # what is imported fails otherwise
        ("relay", ("zero_by_zero", "squeeze_of_no_axis")),  # TVM's own build crashes before, too
    ],
)
def test_a_fault_is_named_and_reduced_and_a_control_is_right(ir, names):
    rows = [corpus.judged(c, shared(ir)) for c in corpus.cases(names)]
    assert [r["found"] for r in rows] == [r["expected"] for r in rows]
    assert corpus.missed(rows) == []
    assert corpus.score(rows)["few"] == corpus.score(rows)["controls"] == (1, 1)


@pytest.mark.engine
def test_a_report_has_a_script_to_paste_that_needs_tvm_alone(tmp_path):
    (case,) = corpus.cases(["batch_norm_training"])
    ask = shared("relax").call
    pipeline = read_pipeline("relax", case.head["culprit"])
    question = bisect.Question(source_from_file(case.path), pipeline, "llvm", threads=1)
    made = reduce.narrow(ask, "relax", bisect.bisect(ask, "relax", question))
    (text,) = re.findall(
        r"^```python\n(.*?)^```", made.report.files["README.md"].decode(), re.M | re.S
    )
    script = tmp_path / "script.py"
    for fixed in (False, True):
        line = "after = relax.transform.DecomposeOpsForInference()(before)"
        assert text.count(line) == 1
        script.write_text(text.replace(line, "after = before") if fixed else text)
        done = subprocess.run([sys.executable, "-I", script], capture_output=True, text=True)
        assert (done.returncode, "Not equal to tolerance" in done.stderr) == (not fixed, not fixed)


@pytest.mark.engine
def test_an_operator_that_no_pass_lowers_is_a_fault_of_the_whole_pipeline():
    (case,) = corpus.cases(["legalize_before_fold"])
    found = corpus.judged(case, shared("relax"))
    assert (found["found"], found["named"]) == ("crash", "import")
    assert "No pass lowers what TVM is left with: R.add" in found["said"]


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


def test_a_header_that_lacks_a_field_is_refused(tmp_path: Path):
    (tmp_path / "one.relay").write_text("// thread: none\n// verdict: right\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"one\.relay lacks expected, pipeline, versions"):
        corpus.cases(root=tmp_path)
    with pytest.raises(ValueError, match="has no nothing_like_it"):
        corpus.cases(["nothing_like_it"])
