"""`baseline` and `check` as a gate: exit statuses, what fails, and what a baseline fixes."""

import json

import pytest

from command_line import document, run
from page_session import FAILING_SEED, SLOW_SEED, WRONG_SEED

MODEL = ["mlp", "--passes", "cse|fold"]


@pytest.fixture
def base(tmp_path):
    file = tmp_path / "base.json"
    document("baseline", *MODEL, "-o", str(file))
    return file


def changed(base, **fields):
    base.write_text(json.dumps({**json.loads(base.read_text()), **fields}))


def test_check_fails_only_on_what_it_is_told_to():
    wrong = ["mlp", "--training", "--seed", str(WRONG_SEED), "--strategy", "keep_all"]
    assert not document("check", *wrong)["passed"]
    assert document("check", *wrong, "--fail-on", "wrong", status=3)["fails"]
    assert document("check", *wrong, "--fail-on", "error")["fails"] is False
    assert not document("check", "mlp", "--fail-on", "wrong,error")["fails"]
    error = document("check", "mlp", "--fail-on", "fusion", status=2)["error"]
    assert "Without a baseline, fusion cannot be checked" in error["message"]
    assert run("check", "mlp", "--fail-on", "speeed").returncode == 2
    for alone in (["--update"], ["--speed"], ["--threads", "2"]):
        assert document("check", "mlp", *alone, status=2)["error"]["where"] == alone[0]


def test_a_model_is_as_its_baseline_until_something_differs(base):
    held = ["check", "mlp", "--baseline", str(base)]
    data = document(*held)  # the pipeline is the baseline's
    assert (data["differences"], data["fails"], data["now"]["pipeline"]) == ([], False, "cse|fold")
    assert "Nothing differs from the baseline." in run(*held).stdout
    operators = json.loads(base.read_text())["operators"]
    changed(base, operators={**operators, "layers.9": {"nn.relu": 1}})
    data = document(*held, status=3)
    sentence = "operators: 3 instead of 4; the module layers.9 is gone, with its one operator "
    assert data["failing"] == [sentence + "(nn.relu)"]
    text = run(*held)
    assert text.returncode == 3 and "One difference fails" in text.stdout
    other = run(*held, "--fail-on", "wrong,fusion")
    assert other.returncode == 0 and "(not in --fail-on)" in other.stdout
    assert document(*held, "--update")["updated"]
    assert document(*held)["differences"] == []


def test_what_is_slower_is_timed_again_before_it_is_told(base):
    changed(base, options={"seed": SLOW_SEED})
    data = document("check", "mlp", "--baseline", str(base), status=3)
    assert [d["kind"] for d in data["differences"]] == ["compile", "compile"]
    assert "the pass `fold` takes 100 ms instead of 10 ms" in data["failing"][1]


def test_a_pass_that_fails_now_is_a_difference_and_never_a_baseline(base):
    broken = "cse|simplify_inference"
    changed(base, options={"seed": FAILING_SEED}, passes=broken)
    held = ["check", "mlp", "--baseline", str(base)]
    (said,) = document(*held, status=3)["failing"]
    assert said.startswith("crash: it can no longer be compiled and run: Step 2, simplify_inf")
    before = base.read_text()
    assert document(*held, "--update", status=1)["error"]["kind"] == "pass"
    assert base.read_text() == before


def test_a_baseline_of_something_else_is_refused(base):
    held = ["--baseline", str(base)]
    for given, words in (
        (["bert_layer"], "another model: mlp. This check has bert_layer"),
        (["mlp", "--batch", "3"], "another batch: None. This check has 3"),
        (["mlp", "--engine", "relax"], "another engine: relay. This check has relax"),
        (["mlp", "--training"], "another training: False. This check has True"),
    ):
        assert words in document("check", *given, *held, status=2)["error"]["message"]
    base.write_text("{}")
    assert "not a baseline" in document("check", "mlp", *held, status=1)["error"]["message"]
    base.unlink()
    assert "Cannot read" in document("check", "mlp", *held, status=1)["error"]["message"]


def test_a_training_baseline_has_what_each_strategy_saves(tmp_path):
    file = tmp_path / "base.json"
    data = document("baseline", "mlp", "--training", "--speed", "-o", str(file))
    assert data["captures"]["keep_all"]["count"] == 2
    assert set(data["speed"]) == {"forward", "forward_backward"}
    assert document("check", "mlp", "--baseline", str(file), "--speed")["differences"] == []
    without = document("check", "mlp", "--baseline", str(file))
    assert "none were measured now; add --speed" in without["notes"][0]
