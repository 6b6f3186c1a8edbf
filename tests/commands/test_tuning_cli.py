"""`tasks` and `tune` on the command line, against an engine without a TVM (fake_tuning.py)."""

import json
import os
import re
import signal
import subprocess
import time

import pytest

from command_line import document, on_terminal, run
from fake_tuning import SLOW_TRIALS, TASKS

DENSE, FUSED = TASKS


pytestmark = pytest.mark.usefixtures("no_records")


def test_tasks_lists_kernels_with_shapes_calls_and_shares():
    data = document("tasks", "mlp")
    assert (data["model"], data["engine"], data["target"]) == ("mlp", "relay", "llvm")
    rows = {t["key"]: t for t in data["tasks"]}
    assert list(rows) == [DENSE, FUSED]
    about = {"key": DENSE, "name": "dense", "shapes": [[8, 32]], "dtypes": ["float32"], "calls": 1}
    about |= {"flops": 8192.0, "share": None, "before_ms": 0.8, "best_ms": None, "trials": 0}
    about |= {"uses_record": False, "nodes": ["d0"], "operators": ["nn.dense"]}
    assert rows[DENSE] | {"share": None} == about
    assert sum(t["share"] for t in data["tasks"]) == pytest.approx(1.0)
    text = run("tasks", "mlp").stdout
    assert re.search(r"dense +8x32: float32 +1 .*88\.9 % .*dense-0a1b", text)


def test_tune_measures_keeps_and_goes_on():
    data = document("tune", "mlp", "--trials", "3", "--threads", "1")
    done = [(t["key"], t["trials"], t["failed"]) for t in data["tasks"]]
    assert done == [(DENSE, 3, 1), (FUSED, 3, 1)]
    assert not data["cancelled"] and data["run"]
    assert [c["trial"] for c in data["curve"]] == [1, 2, 3, 1, 2, 3]
    assert data["curve"][1]["ms"] is None and data["curve"][1]["best_ms"] is not None
    assert all(t["best_ms"] < t["before_ms"] and t["uses_record"] for t in data["tasks"])
    first = data["tasks"][0]["best_ms"]
    data = document("tune", "mlp", "--trials", "2", "--threads", "1", "--tasks", "dense")
    (row,) = data["tasks"]
    assert (row["earlier_ms"], row["trials"]) == (first, 2) and row["best_ms"] < first
    assert [c["trial"] for c in data["curve"]] == [4, 5]
    rows = document("tasks", "mlp", "--threads", "1")["tasks"]
    assert {t["key"]: t["trials"] for t in rows} == {DENSE: 5, FUSED: 3}
    assert document("tasks", "mlp", "--threads", "2")["tasks"][0]["trials"] == 0
    text = run("tune", "mlp", "--trials", "1", "--threads", "1", "--top", "1").stdout
    assert "1 trials;" in text and "fused_relu_dense" not in text
    assert re.search(r"its record +dense-0a1b", text)


def test_a_task_that_is_none_is_refused_and_training_takes_a_strategy():
    error = document("tune", "mlp", "--tasks", "conv", status=2)["error"]
    assert error["kind"] == "usage" and "--tasks" in error["where"]
    data = document("tune", "mlp", "--training", "--strategy", "keep_all", "--trials", "1")
    assert data["strategy"] == "keep_all"


def test_progress_has_the_best_so_far_and_the_time_left():
    process, terminal = on_terminal("tune", "mlp", "--trials", str(SLOW_TRIALS))
    seen, deadline = "", time.monotonic() + 60
    while not re.search(r"dense: trial \d+ of 777, best 0\.\d+ ms; .* left", seen):
        assert time.monotonic() < deadline, seen
        seen += os.read(terminal, 4096).decode()
    group = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True)
    engines = [int(p) for p in group.stdout.split()]
    assert engines
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    os.close(terminal)
    data = json.loads(out)
    assert data["cancelled"] and process.returncode == 1
    dense, fused = data["tasks"]
    assert (dense["best_ms"] is not None, fused["trials"]) == (True, 0)
    assert len(data["curve"]) == dense["trials"] >= 1
    for pid in engines:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    after = document("tune", "mlp", "--trials", "1", "--tasks", DENSE)
    assert after["curve"][0]["trial"] == dense["trials"] + 1
