"""The tests of narrowing that both engines share: planted faults come down to a few operators.

A file that imports them defines `case`. One report is run in a process of its own, which finds
nothing of relascope but what lies in the report; the others run in this one."""

import contextlib
import io
import os
import re
import runpy
import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

import bisecting
from answers import asking, ran
from bisecting import Case, faults, model_of, search, slow_pipeline, small  # noqa: F401
from quick import ENGINE, rare
from relascope.engine.faults import bundle, pasted, show
from relascope.engine.jobs import reduce
from relascope.engine.jobs.own_test import OwnTest
from relascope.passes.pipeline import Pipeline

MOST = {**dict.fromkeys(bisecting.FAULTS, 1), "eps_outside": 2}
"""How many operators may be left of each fault."""


def written(report, folder):
    for name, content in report.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def run(folder, fix=""):
    """Run a report's passes in this process; the exit status and what it prints."""
    said = io.StringIO()
    sys.modules.pop("faults", None)  # which each report has of its own
    with (
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
        patch.object(sys, "argv", [str(folder / "report.py")]),
        patch.object(sys, "path", list(sys.path)),
        tempfile.TemporaryDirectory() as notes,
    ):
        fault = runpy.run_path(str(folder / "report.py"), run_name="report")["FAULT"]
        show.PassProcess(fault, fix, Path(notes) / "notes").run()
        status = int((Path(notes) / "notes").read_text().split()[-1])
    return status, said.getvalue()


def run_alone(folder, *options):
    """Run a report by itself; its exit status and what it prints."""
    (folder / "torch.py").write_text("raise ImportError")  # a report needs no torch
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "TVM_LIBRARY_PATH")}
    done = ran(sys.executable, "report.py", *options, cwd=folder, env=env)
    return done.returncode, done.stdout + done.stderr


def fixed(folder, fault):
    """Let the fault of a report's own pass do nothing."""
    file = folder / "faults.py"
    file.write_text(file.read_text() + f"\n\ndef {fault}(program):\n    return program\n")


def check_script(folder, fault, error, said):
    """Run the script of a report's text: it fails with the pass, and ends well without."""
    text = (folder / "README.md").read_text().partition("### Steps to reproduce")[2]
    code = re.search(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[1]
    call = f"program = {fault}(program)\n"
    assert code.count(call) == 1
    file = folder / "script.py"
    file.write_text(code)
    with pytest.raises(error, match=said):
        runpy.run_path(str(file))
    file.write_text(code.replace(call, ""))
    runpy.run_path(str(file))


def narrowed(session, source, pipeline, **options):
    found = search(session, source, Pipeline.parse(pipeline), **options)
    command = f"relascope reduce {source.model}"
    return reduce.narrow(asking(session), session.ir, found, command=command)


# Their reports differ: one is run alone, one has a constant. Each engine has one of the two.
FIRST = "softmax_axis" if ENGINE == "relay" else "weight_transposed"
FAULTS = [f if f == FIRST else rare(f) for f in MOST]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_local_fault_comes_down_to_its_operator(case, session, tmp_path, fault):
    # A weight that is bound is a constant, which a report has to keep apart from the text.
    before = {"eps_outside": "decompose_layer_norm", "weight_transposed": "bind"}.get(fault, "cse")
    source = small(tmp_path, model_of(fault), dtype="float64")
    made = narrowed(session, source, f"{before}|{fault}|dce")
    assert made.minimal
    assert len(made.operators) <= MOST[fault] < made.total
    assert len(made.log) <= 10
    assert (made.shown.outcome, made.where.first) == ("wrong", 1)
    words = reduce.verdict(case.ir, made)
    assert f"{fault}: the fault shows with {len(made.piece.nodes)} of the" in words

    folder = written(made.report, tmp_path / "report")
    alone = fault == "softmax_axis"
    status, said = (run_alone if alone else run)(folder)
    assert status == 1, said
    assert not alone or "The fault shows." in said
    assert "(before the pass it is 0.0e+00 from the stored value)" in said
    if alone:
        fixed(folder, fault)
        status, said = run(folder)
        assert status == 0, said

    text = (folder / "README.md").read_text()
    assert text.startswith(f"# [{case.ir.capitalize()}] {fault} changes the result of ")
    assert f"{made.shown.max_rel:.3e}" in text
    told = "PyTorch 2.", "Operating system: ", "Processor: ", "### The first bad pass\n\nStep 2, "
    rows = re.findall(r"^\| 0 \| \[.*\] \| (\S+) \| (\S+) \|$", text, re.MULTILINE)
    off = max(abs(float(expected) - float(seen)) for expected, seen in rows)
    assert off == pytest.approx(made.shown.max_abs, rel=1e-5)
    assert all(t in text for t in (*told, f"relascope reduce {Path(source.model).name}\n"))
    assert str(tmp_path) not in text + (folder / "report.py").read_text()
    assert made.report.before != made.report.after
    for part in (made.report.after, made.operators[0], "python report.py"):
        assert part.rstrip() in text
    check_script(folder, fault, AssertionError, "Not equal to tolerance")

    # It has what it needs, and says where it cannot be run.
    names = set(made.report.files)
    assert {"README.md", "report.py", "values.npz", "faults.py"} <= names
    assert f"relascope/passes/{case.ir}/ir/rewrite.py" in names
    other = "relax" if case.ir == "relay" else "relay"
    assert not [n for n in names if other in n or Path(n).is_absolute() or ".." in n]
    assert sum(map(len, made.report.files.values())) < 150_000
    (folder / "values.npz").unlink()
    status, said = run(folder)
    assert (status, "values.npz" in said) == (2, True)


def test_a_pass_that_raises_comes_down_to_one_operator(case, session, tmp_path):
    made = narrowed(session, small(tmp_path), "cse|raises|dce")
    assert not made.where.building
    assert len(made.operators) == 1
    folder = written(made.report, tmp_path / "report")
    status, said = run(folder)
    assert status == 1, said
    assert re.search(r"ValueError: no good after \d parameters", said)
    assert made.shown.error.message in (folder / "README.md").read_text()
    check_script(folder, "raises", ValueError, r"no good after \d parameters")


@pytest.mark.parametrize(
    ("where", "name", "value", "why"),
    [
        (pasted, "FEW", 0, "it may need its own numbers, too many"),
        (bundle, "siblings", lambda files: [*files, Path(pasted.__file__)], "have several files"),
        (pasted, "_MOST", 0, "program or pass is too long"),
    ],
)
def test_without_a_script_a_report_says_what_to_attach_and_why(
    case, session, tmp_path, monkeypatch, where, name, value, why
):
    monkeypatch.setattr(where, name, value)
    monkeypatch.setattr(pasted, "_SHORT", 0)
    told = narrowed(session, small(tmp_path), "raises").report.files["README.md"].decode()
    assert re.search(f"Attach the folder of this report as an archive, because .*{why}", told)
    assert "```python\nimport numpy" not in told and "python report.py" in told


def test_a_persons_own_test_decides_what_is_kept(case, session, tmp_path):
    script = tmp_path / "mine.py"
    script.write_text(
        f"#!{sys.executable}\n"
        "import sys, numpy\n"
        "text, values = open(sys.argv[1]).read(), numpy.load(sys.argv[1].rsplit('.')[0] + '.npz')\n"
        "assert 'main' in text and all(numpy.isfinite(v).all() for v in values.values())\n"
        "print(*(f'{n}{list(v.shape)}' for n, v in values.items()))\n"
        "sys.exit(text.count('float16') > 0)\n"
    )
    script.chmod(0o755)
    test = OwnTest.of(script)
    made = narrowed(session, small(tmp_path), "bind|in_float16|dce", kind="bad", test=test)
    assert (made.bisection.kind, made.where.first) == ("bad", 1)
    assert len(made.operators) == 1
    folder = written(made.report, tmp_path / "report")
    (folder / "test.py").chmod(0o755)
    modules = [next(folder.glob(f"{n}.[jr]*"), folder / f"{n}.py") for n in ("module", "before")]
    for judged, status in zip(modules, (1, 0), strict=True):
        again = ran(folder / "test.py", judged)
        assert (again.returncode, again.stderr) == (status, "")
    assert again.stdout == made.shown.test.output.replace("module", "before")
    # Both are what TVM reads, with a value for every argument.
    for file in modules:
        mod = session.backend.replay.read(file.read_text(), "", {})
        arguments = session.backend.replay.signature(mod)[0]
        assert set(np.load(file.with_suffix(".npz"))) == set(arguments)
    text = (folder / "README.md").read_text()
    assert text.startswith(f"# [{case.ir.capitalize()}] in_float16 makes a test fail on ")
    assert "exit status 1" in text and "chmod +x test.py" in text
    assert str(tmp_path) not in text


def test_a_slow_pass_comes_down_to_one_layer(case, session, tmp_path, monkeypatch):
    source = small(tmp_path, model_of("slow"))
    pipeline, index = slow_pipeline(case, monkeypatch)
    made = narrowed(session, source, str(pipeline), kind="slow", factor=10, threads=1, repeats=3)
    assert made.where.first == index
    assert 1 <= len(made.operators) < made.total
    assert made.shown.ratio > made.where.limit
    folder = written(made.report, tmp_path / "report")
    status, said = run(folder)
    assert (status, "times as long" in said) == (1, True)
    text = (folder / "README.md").read_text()
    assert "as an archive, because the measurement must run as before" in text
