"""Many models through many pipelines: culprits, resuming, a killed engine."""

import json

from command_line import document, run
from page_session import BROKEN_SEED, FAILING_SEED, WRONG_SEED, forward_graph, session_of
from relascope.commands.gate.bulk import culprits, document_of, in_threads
from relascope.core.errors import EngineError
from relascope.engine.client import EngineClient
from relascope.engine.jobs.bulk import Task
from relascope.engine.jobs.bulk import run as run_task
from relascope.engine.limits import NO_LIMITS
from relascope.engine.protocol.accuracy import Comparison
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import read_pipeline

FAKE = session_of("relay")


def task(number=0, pipeline="cse|fold|dce", seed=0):
    source = ModelSource(f"model{number}", seed=seed)
    return Task("relay", f"model{number}", source, pipeline, read_pipeline("relay", pipeline))


def row(model, outcome, *culprits):
    return {"model": model, "pipeline": "p", "outcome": outcome, "culprits": list(culprits)}


def test_the_table_of_culprits_counts_models_once_each():
    rows = [
        row("a", "wrong", "fold"),
        row("a", "crash", "fold"),
        row("b", "wrong", "fold"),
        row("b", "slow", "cse"),
        row("c", "wrong", "dce", "cse"),
        row("d", "crash"),
        row("e", "right"),
    ]
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


class Session:
    """An engine whose pass `fold` breaks a model, and which ends when it is told to."""

    def __init__(self, deaths=0):
        self.deaths, self.asked = deaths, 0

    def __call__(self, method, first=None, *arguments):
        if method == "check":
            self.asked += 1
            if self.deaths:
                self.deaths -= 1
                raise EngineError("engine", "The engine was killed.")
            wrong = any(s.name == "fold" and s.enabled for s in first.pipeline)
            size = 1.0 if wrong and first.source.seed == WRONG_SEED else 1e-17
            return (Comparison("output 0", size, size, 1.0, first.source.dtype),)
        if method in ("applications", "inside", "step"):
            return ()
        graph = forward_graph()
        if method == "graph_after":
            return graph
        return type("Answer", (), {"best": "llvm", "against": "PyTorch", "graph": graph})()


def test_a_bad_line_is_bisected_once_and_a_killed_engine_is_asked_again():
    found = run_task(Session(), task(seed=WRONG_SEED))
    assert (found["outcome"], found["culprits"], found["tries"]) == ("wrong", ["fold"], 1)
    assert "Step 2, fold" in found["verdict"]
    again = run_task(Session(deaths=1), task())
    assert (again["outcome"], again["tries"]) == ("right", 2)
    dead = run_task(Session(deaths=99), task())
    assert (dead["outcome"], dead["tries"]) == ("crash", 2)


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
    strip = [{k: v for k, v in r.items() if k != "seconds"} for r in again["rows"]]
    assert strip == [{k: v for k, v in r.items() if k != "seconds"} for r in data["rows"]]
    kept = [json.loads(x) for x in file.read_text().splitlines() if x.endswith("}")]
    assert len(kept) == 4
    assert "4 right; 4 of them from before." in run(*given).stdout
    assert document(*given, "--slow")["resumed"] == 0  # another question


def test_what_cannot_be_read_is_said_before_anything_runs(tmp_path):
    assert (
        "no model in this folder" in document("bulk", str(tmp_path), status=2)["error"]["message"]
    )
    error = document("bulk", "mlp", "--pipelines", "nonsense", status=2)["error"]
    assert "'nonsense'" in error["message"]
    missing = document("bulk", "mlp", "--pipelines", f"@{tmp_path}/no", status=1)["error"]
    assert missing["message"] == "The file of pipelines cannot be read."
    (tmp_path / "some").write_text("# two\ncse\n\ncse|dce\n")
    data = document("bulk", "mlp", "--pipelines", f"@{tmp_path}/some", "--workers", "1")
    assert [r["pipeline"] for r in data["rows"]] == ["cse", "cse|dce"]


def test_outcomes_of_models_that_do_not_open_or_whose_pass_fails():
    tasks = [
        task(0, seed=BROKEN_SEED),
        task(1, "cse|simplify_inference", seed=FAILING_SEED),
        task(2),
    ]

    def connect(ir):
        return EngineClient(ir, FAKE)

    found = {t.model: r for t, r in in_threads(tasks, connect, NO_LIMITS, 2)}
    assert found["model0"]["outcome"] == "not opened"
    assert "frobnicate" in found["model0"]["verdict"]
    assert found["model2"]["outcome"] == "right"
