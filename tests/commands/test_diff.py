"""`diff`: two of anything, without a TVM: models of the stand-in engine, and recordings."""

import json

import pytest

from command_line import document, page_of, run
from crafted.recorded import HOSTILE, recorded
from graphs import graph_of
from relascope.core.errors import EngineError
from relascope.engine.protocol.results import StepRecord
from relascope.engine.protocol.source import file_digest
from relascope.viz.compare.runs import ComparedRun, compare, step_rows
from relascope.viz.sessions import replay, store
from relascope.viz.sessions.state import ModelChoice, Session


def test_the_status_is_0_where_both_are_the_same_and_1_where_they_part_at_a_pass():
    found = document("diff", "mlp", "mlp")
    assert found["same"] and found["first_difference"] is None
    assert found["end"]["counts"] | {"same": 0} == dict.fromkeys(found["end"]["counts"], 0)
    assert run("diff", "mlp", "mlp").stdout.startswith("They are the same.")
    asked = ("diff", "mlp", "mlp", "--passes", "default", "--passes-b", "default|-fold")
    found = document(*asked, status=1)
    assert (found["same"], found["first_difference"]["pass"]) == (False, "fold")
    assert {r["pass"] for r in found["steps"] if r["only"]} == {"fold"}
    assert "-fold" in found["b"]["pipeline"] and "-fold" not in found["a"]["pipeline"]
    said = run(*asked).stdout
    assert said.startswith("They diverge at fold")
    assert "The first difference is at fold. Only A has it." in said


def test_recordings_need_no_engine(tmp_path):
    one, page = str(recorded(tmp_path / "a.rsc")), tmp_path / "both.html"
    both = "diff", one, str(recorded(tmp_path / "b.rsc", passes=2))
    assert document("diff", one, one)["same"]
    found = document(*both, status=1)
    assert {r["pass"] for r in found["steps"] if r["only"] == "b"} == {"tir.Pass0", "tir.Pass1"}
    assert "took longer" not in found["verdict"]
    assert run(*both, "-o", str(page)).returncode == 1
    assert "<title>" in page.read_text() and "a.rsc and" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("diff", "mlp", "nowhere"), "There is no sample or file of this name."),
        (("diff", "mlp", "mlp", "--passes-b", "default|nonsense"), "nonsense"),
        (("diff", "RECORDING", "mlp", "--measure"), "has no model to build or run."),
    ],
)
def test_what_cannot_be_compared_is_said(arguments, said, tmp_path):
    path = str(recorded(tmp_path / "a.rsc"))
    done = run(*(path if a == "RECORDING" else a for a in arguments), "--json")
    assert done.returncode in (1, 2)
    assert said in json.loads(done.stdout)["error"]["message"]


def ran(*steps):
    graph = graph_of("n0=x; n1 exp n0; n2 log n1")
    return ComparedRun("run", "relay", steps, lambda i: graph)


def test_a_slower_or_idle_pass_is_no_difference_and_a_failure_on_one_side_is():
    def step(name, seconds, changed=1, error=None):
        return StepRecord(name, True, changed, 0, 0, 2, seconds, error=error)

    found = compare(*(ran(step("cse", 0.01), step("fold", s)) for s in (0.01, 0.2)))
    assert found["same"]
    assert [r["slower"] for r in found["steps"]] == [None, "b"]
    assert found["verdict"] == "They are the same, but fold took longer in B, run once each."
    assert compare(ran(step("cse", 0.0, 0)), ran())["same"]
    failed = ran(step("cse", 0.0, error=EngineError("pass", "no rule for erf")))
    first = compare(ran(step("cse", 0.0)), failed)["first_difference"]
    assert first["why"] == "It fails in B: no rule for erf"


def test_long_lists_of_steps_are_aligned_in_pieces():
    names = [f"p{n % 50}" for n in range(3000)]
    others = [*names[:10], "x", *names[10:2000], *names[2001:]]
    sides = (ran(*(StepRecord(n, True, 0, 0, 0, 2, 0.0) for n in s)) for s in (names, others))
    only = [(r["pass"], r["only"]) for r in step_rows(*sides) if r["only"]]
    assert only == [("x", "b"), ("p0", "a")]


def test_places_in_memory_are_no_difference_and_other_code_is(tmp_path):
    def of(name, place, code):
        return str(recorded(tmp_path / f"{name}.rsc", place=place, code=code))

    a = of("a", "0x7f00aabbccdd", "store i32 0 !{0x55c0805a1d60}")
    b = of("b", "0x7f11aabbccdd", "store i32 0 !{0x55f58c8ff4d0}")
    c = of("c", "0x7f11aabbccdd", "store i32 1 !{0x55f58c8ff4d0}")
    assert document("diff", a, b)["same"]
    found = document("diff", a, c, status=1)
    assert found["other_code"] and found["first_difference"] is None
    assert found["verdict"].startswith("At the end")


def test_a_session_of_a_recording_and_what_a_pass_did_before_those_around_it(tmp_path):
    path = recorded(tmp_path / "a.rsc")
    replay.write(tmp_path / "a.zip", Session(model=ModelChoice("a.rsc", file_digest(path))), path)
    assert document("diff", str(path), str(tmp_path / "a.zip"))["same"]
    names = [r["pass"] for r in document("diff", str(path), str(path))["steps"]]
    assert names == ["FoldTranspose", "InferType", HOSTILE, "sequential", "tir.Simplify", "Breaks"]


def test_the_page_is_started_on_both(tmp_path):
    path = recorded(tmp_path / "a.rsc")
    session = Session(ir="relax", model=ModelChoice("mlp"), pipeline="cse")
    replay.write(tmp_path / "b.zip", session, None)

    def both(*asked):
        _, started = page_of("diff", *asked, "--page", "--no-browser")
        here = store.get(started[store.OPEN].removeprefix(store.OF_SESSION))
        assert here.look.tab == "Side by side"
        assert here.look.choices["keep_against"] == "session"
        return here, store.get(here.look.choices["keep_against_session"])

    a, b = both(str(path), str(tmp_path / "b.zip"))
    assert store.model_file(a.model.digest).read_bytes() == path.read_bytes()
    assert (b.ir, b.model.name, b.pipeline) == ("relax", "mlp", "cse")
    a, b = both("mlp", "mlp", "--batch", "3", "--passes-b", "cse|-dce", "--training-b")
    assert (a.model.batch, a.pipeline, b.pipeline) == (3, "", "cse|-dce")
    assert b.model.training and not a.model.training


def test_sessions_are_compared_and_both_sides_are_timed(tmp_path):
    for name, text in (("a", ""), ("b", "-fold")):
        session = Session(ir="relay", model=ModelChoice("mlp"), pipeline=text)
        replay.write(tmp_path / f"{name}.zip", session, None)
    found = document("diff", str(tmp_path / "a.zip"), str(tmp_path / "b.zip"), status=1)
    assert (found["b"]["label"], found["first_difference"]["pass"]) == ("b.zip: mlp", "fold")
    said = run("diff", "mlp", "mlp", "--measure", "--repeats", "2").stdout
    assert "B takes 1.00 times as long as A.\n" in said and "\nb     llvm    forward " in said
