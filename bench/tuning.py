"""Print what tuning gains, what it costs, and what is left of a run that was killed.

Run `python bench/tuning.py` from the project's root on a machine that does nothing else; name
samples to have only those (mlp and bert_layer otherwise), add `--engine`, `--threads N`, `--trials
N`, `--top N` (the tasks with the largest share), `--target T`. The records are new ones, in a
folder that is taken away at the end, unless `--records FOLDER` names one to go on from.

First a run is killed (SIGKILL of the process that the app is) in the middle of its batches and
another goes on from its records. Then each sample is timed as built without records, tuned, and
timed with them, with the same number of threads. Returns 1 where a trial that was written down is
lost, measured twice, or a tuned program is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import common
from common import Row

from relascope.engine.client import EngineClient
from relascope.engine.protocol import records
from relascope.engine.protocol.plain import plain
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import ModelSource
from relascope.engine.protocol.times import TimeResult
from relascope.engine.protocol.tuning import RECORDS, TuneResult, TuneTask
from relascope.passes.catalogue import default_pipeline
from relascope.viz.rows.formats import duration

MOST_ERROR = 1e-5
"""Of the scale of an output, in float32."""
_LONG = ("seconds", "tasks", "notes")
AT_LEAST = 2
"""Batches that are on disk when the run is killed."""


def main() -> int:
    """Measure, print, and return 0 where nothing is lost and nothing wrong."""
    parser = common.options(__doc__)
    parser.set_defaults(engine=["relax"])
    parser.add_argument("--threads", type=int, default=1, metavar="N")
    parser.add_argument("--trials", type=int, default=64, metavar="N")
    parser.add_argument("--top", type=int, default=4, metavar="N")
    parser.add_argument("--target", metavar="T")
    parser.add_argument("--records", type=Path, metavar="FOLDER")
    # What the run that is killed calls; not for people.
    parser.add_argument("--run", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.engine = args.engine[-1]
    if args.run:
        with EngineClient(args.engine) as client:
            client.call("tune", _request(args, "mlp", args.run), (), 1 << 20)
        return 0
    made = args.records or Path(tempfile.mkdtemp(prefix="relascope-records-"))
    os.environ[records.VARIABLE] = str(made)
    try:
        document = _measure(args)
    finally:
        if args.records is None:
            shutil.rmtree(made)
    _print(document)
    common.write(args.output, document)
    wrong = [r["sample"] for r in document["samples"] if not r["error"] <= MOST_ERROR]
    if wrong:
        print(f"With its records {', '.join(wrong)} is wrong.")
    return 1 if wrong or not document["killed"]["kept"] else 0


def _request(args: argparse.Namespace, name: str, target: str) -> BuildRequest:
    pipeline = default_pipeline(args.engine, False)
    return BuildRequest(ModelSource(name), pipeline, target, args.threads, args.repeats)


def _measure(args: argparse.Namespace) -> Row:
    with EngineClient(args.engine) as client:
        info = client.call("describe")
    asked = args.target or next(t.name for t in info.targets if t.runs_here)
    target = " ".join(o for o in asked.split() if o != RECORDS)
    place = records.folder(args.engine, info.version, target, args.threads)
    killed, names = _killed(args, target, place), args.samples or ("mlp", "bert_layer")
    about = {"engine": args.engine, "target": target, "threads": args.threads}
    samples = [_sample(args, name, target, place) for name in names]
    return {"machine": common.machine(), **about, "killed": killed, "samples": samples}


def _killed(args: argparse.Namespace, target: str, place: Path) -> Row:
    """Kill a run when some batches are on disk, and go on."""
    before = len(records.read(place).trials)
    command = [sys.executable, __file__, "--engine", args.engine, "--threads", str(args.threads)]
    app = subprocess.Popen([*command, "--run", target], stdout=subprocess.DEVNULL)
    sizes: list[int] = []
    while len(sizes) < AT_LEAST:
        if app.poll() is not None:
            raise SystemExit("The run that was to be killed ended by itself.")
        now = len(records.read(place).trials) - before
        if now > sum(sizes):
            sizes.append(now - sum(sizes))
        time.sleep(0.01)
    time.sleep(0.5)  # into the next batch
    known = records.read(place)
    app.send_signal(signal.SIGKILL)
    app.wait()
    time.sleep(1.0)  # the engine ends with it
    left = records.read(place)
    task = left.trials[-1].task
    with EngineClient(args.engine) as client:
        result: TuneResult = client.call("tune", _request(args, "mlp", target), (task,), 4)
    after = records.read(place)
    mine = after.of(task)
    kept = (
        set(known.trials) <= set(left.trials) <= set(after.trials)
        and len({t.candidate for t in mine}) == len(mine)
        and [t.trial for t in mine] == list(range(1, len(mine) + 1))
    )
    return {
        "batches": sizes,
        "trials_before": len(known.trials) - before,
        "trials_after": len(left.trials) - before,
        "notes": list(left.notes),
        "went_on_with": result.tasks[0].trials,
        "kept": kept,
    }


def _sample(args: argparse.Namespace, name: str, target: str, place: Path) -> Row:
    """Time a sample without records, tune it, and time it with them."""
    request = _request(args, name, target)
    with EngineClient(args.engine) as client:

        def timed(text: str) -> TimeResult:
            result: TimeResult = client.call("time", replace(request, target=text))
            return result

        before = timed(target)
        listed: tuple[TuneTask, ...] = client.call("tasks", request)
        keys = tuple(t.key for t in listed[: args.top])
        result: TuneResult = client.call("tune", request, keys, args.trials)
        after = timed(f"{target} {RECORDS}")
        again = timed(target)  # for a machine whose speed changes meanwhile
    made = records.read(place).in_run(result.run)
    trials = sum(t.trials for t in result.tasks)
    ours = after.rows[1]
    return {
        "sample": name,
        "eager_ms": after.rows[0].median_ms,
        "untuned_ms": before.rows[1].median_ms,
        "tuned_ms": ours.median_ms,
        "untuned_ratio": before.rows[1].ratio_to_eager,
        "tuned_ratio": ours.ratio_to_eager,
        "untuned_again_ratio": again.rows[1].ratio_to_eager,
        "error": max(c.max_rel for c in after.comparisons),
        "trials": trials,
        "seconds": result.seconds,
        "seconds_a_trial": result.seconds / max(1, trials),
        "tasks": [
            {**plain(t), "curve": [plain(c) for c in made if c.task == t.key]} for t in result.tasks
        ],
        "notes": [*before.notes, *after.notes],
    }


def _print(document: Row) -> None:
    print(json.dumps(document["machine"]))
    print(f"{document['engine']}, {document['target']}, {document['threads']} threads")
    killed = document["killed"]
    verdict = "nothing that was on disk is lost" if killed["kept"] else "TRIALS ARE LOST"
    print(
        f"Killed with {killed['trials_before']} trials on disk in batches of {killed['batches']}; "
        f"{killed['trials_after']} afterwards, {killed['went_on_with']} more when it went on: "
        f"{verdict}."
    )
    listed = [{k: v for k, v in s.items() if k not in _LONG} for s in document["samples"]]
    print()
    common.table(listed)
    for sample in document["samples"]:
        print(f"\n{sample['sample']}: {duration(sample['seconds'])} of tuning")
        for note in sample["notes"]:
            print(note)
        rows = []
        for task in sample["tasks"]:
            curve = task["curve"]
            at = {n: c["best_ms"] for n in (1, 4, 16, 64) for c in curve[n - 1 : n]}
            rows.append({**task, **{f"best of {n}": ms for n, ms in at.items()}})
        common.table([{k: v for k, v in r.items() if k not in ("key", "curve")} for r in rows])


if __name__ == "__main__":
    raise SystemExit(main())
