"""Many models through many pipelines: culprits, resuming, a killed engine."""

import json
from functools import partial
from types import SimpleNamespace

from answers import engine
from command_line import document, run
from page_session import BROKEN_SEED, FAILING_SEED, WRONG_SEED, forward_graph, session_of
from relascope.commands.gate.bulk import culprits, document_of, in_threads
from relascope.core.errors import EngineError
from relascope.engine.client import EngineClient
from relascope.engine.jobs.bulk import Task, run_task
from relascope.engine.limits import NO_LIMITS
from relascope.engine.protocol.accuracy import Comparison
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import read_pipeline


def task(number=0, pipeline="cse|fold|dce", seed=0):
    source = ModelSource(f"model{number}", seed=seed)
    return Task("relay", f"model{number}", source, pipeline, read_pipeline("relay", pipeline))


def row(model, outcome, *culprits):
    return {"model": model, "pipeline": "p", "outcome": outcome, "culprits": list(culprits)}


def test_the_table_of_culprits_counts_models_once_each():
    found = (
        "a wrong fold; a crash fold; b wrong fold; b slow cse; c wrong dce cse; d crash; e right"
    )
    rows = [row(*line.split()) for line in found.split(";")]
    table = [
        (r["pass"], r["breaks"], r["slows"], r["suspected"], r["models"]) for r in culprits(rows)
    ]
    assert table == [
        ("fold", 2, 0, 0, ["a", "b"]),
        ("(not found)", 1, 0, 0, ["d"]),
        ("cse", 0, 1, 1, ["b", "c"]),
        ("dce", 0, 0, 1, ["c"]),
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
