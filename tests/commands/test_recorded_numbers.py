"""A person's script is recorded with its wrong pass, which the command line and the page name."""

import sys
from pathlib import Path

import pytest

from command_line import document
from page import press, whole_page, words
from relascope.viz.sessions import store

pytestmark = pytest.mark.engine

SCRIPTS = Path(__file__).parents[1]
BOOT = "from relascope.engine.relay.tvm.boot import boot; boot(); "


@pytest.fixture(
    scope="module", params=[pytest.param("relay", marks=pytest.mark.exhaustive), "relax"]
)
def compiled(request, tmp_path_factory):
    script = SCRIPTS / request.param / "support" / "wrong_pass.py"
    path = tmp_path_factory.mktemp("recorded") / "run.rsc"
    program = [sys.executable, str(script)]
    if request.param == "relay":  # whose TVM lies in another package
        program[1:] = ["-c", f"{BOOT}import runpy; runpy.run_path({str(script)!r})"]
    document("record", "-o", str(path), "--level", "modules", "--json", "--", *program)
    return str(path)


def test_the_command_line_bisects_and_reduces(compiled, tmp_path):
    found = document("open", compiled, "--errors", "--reduce", str(tmp_path / "report"), real=True)
    rows = {r["pass"]: r["error"]["verdict"] for r in found["errors"][0]["rows"]}
    assert rows.pop("ReluAway") == "wrong" and set(rows.values()) <= {"right"}
    assert found["bisection"]["culprit"]["pass"] == "ReluAway"
    assert found["reduction"]["nodes"] == 2
    assert "report.py" in found["reduction"]["report"]["files"]


def test_a_test_of_ones_own_decides_of_recorded_modules(compiled, tmp_path):
    path = tmp_path / "mine.sh"
    path.write_text('#!/bin/sh\ngrep -q "relu" "$1"\n')
    path.chmod(0o755)
    found = document("bisect", compiled, "--test", str(path), real=True)
    assert found["culprit"]["pass"] == "ReluAway"
    assert "makes the test fail: exit status 1" in found["verdict"]
    again = document("open", compiled, "--bisect", "--test", str(path), real=True)["bisection"]
    assert again.keys() | {"report"} == found.keys() and again["verdict"] == found["verdict"]


@pytest.mark.exhaustive
def test_kernels_that_are_not_run_are_refused_with_the_flag_that_runs_them(tmp_path):
    script, path = tmp_path / "script.py", str(tmp_path / "run.rsc")
    ours = (SCRIPTS / "relax" / "support" / "wrong_pass.py").read_text()
    script.write_text(ours.replace("Sequential(passes)(bound)", "Sequential([])(bound)"))
    program = [sys.executable, str(script)]
    document("record", "-o", path, "--level", "modules", "--json", "--", *program)
    error = document("open", path, "--errors", real=True, status=1)["error"]
    assert "contains kernels" in error["message"] and "--run-kernels" in error["hint"]
    rows = document("open", path, "--errors", "--run-kernels", real=True)["errors"][0]["rows"]
    assert rows and {r["error"]["verdict"] for r in rows} == {"right"}


def test_the_page_does_so_too(compiled, monkeypatch):
    with monkeypatch.context() as opening:  # engines in the same environment are forked from one
        opening.setenv(store.OPEN, compiled)
        page = whole_page().run()
    assert not [b for b in page.button if b.key == "bisect_button"], "no engine is started yet"
    press(page, "recorded_compare")
    errors = page.dataframe[0].value
    (wrong,) = errors[errors["verdict"] == "wrong"]["pass"]
    assert wrong.endswith(" ReluAway")
    press(page, "bisect_button")
    assert "ReluAway, makes it wrong" in words(page)
    press(page, "reduce_button")
    assert "ReluAway: the fault shows with 2 of the" in words(page)
