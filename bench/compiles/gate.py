"""Whether the gate names regressions, and nothing else: ten are planted, and twenty runs are sound.

Run `python bench/compiles/gate.py` from the project's root. A baseline is written of a small model
in inference, with its speed, and of its training. Then each regression of
`tests/both/compiles/planted.py` takes its place, and `relascope check --baseline` runs in processes
of its own, as it does for a person: the gate names a regression if a sentence of its kind says what
it is. Then nothing is planted, and every difference is a false alarm. Returns 1 if a regression is
not named or an alarm is false.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests/both/compiles"))

from planted import PLANTED, Planted, write
from relascope.engine.registry import ENGINES
from relascope.passes.catalogue import default_pipeline
from relascope.viz.rows.formats import text_table

ROOT = Path(__file__).resolve().parents[2]
THREADS = ["--threads", "1"]


class Gate:
    """The gate over one engine, in a folder.

    Args:
        folder: an empty one.
    """

    def __init__(self, ir: str, folder: Path) -> None:
        self.ir, self.folder = ir, folder
        self._model, self._own = write(folder, ir)
        for training in (False, True):
            self._run("baseline", training, "-o", str(self._baseline(training)))

    def check(self, planted: Planted | None, training: bool) -> dict[str, Any]:
        """The document of `check`, with a regression planted or none."""
        write(self.folder, self.ir, planted)
        speed = ["--fail-on", planted.kind] if planted is not None else []
        return self._run("check", training, "--baseline", str(self._baseline(training)), *speed)

    def _baseline(self, training: bool) -> Path:
        return self.folder / ("training.json" if training else "inference.json")

    def _run(self, command: str, training: bool, *more: str) -> dict[str, Any]:
        passes = f"{default_pipeline(self.ir, training)}|own"
        given = [f"{self._model}:make", "--engine", self.ir, "--pass-file", str(self._own)]
        given += ["--passes", passes, *more, *(["--training"] if training else ["--speed"])]
        line = [sys.executable, "-m", "relascope", command, *given, *THREADS, "--json"]
        done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 3):
            raise SystemExit(f"{command} failed: {done.stdout}{done.stderr}")
        found: dict[str, Any] = json.loads(done.stdout)
        if found.get("fails") != (True if done.returncode == 3 else found.get("fails")):
            raise SystemExit(f"{command} ended with status {done.returncode}")
        return found


def main() -> int:
    """Plant, run, print, and return 0 where all are named and no alarm is false."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=ENGINES, action="append", help="may be repeated")
    parser.add_argument("--runs", type=int, default=20, metavar="N", help="without a regression")
    args = parser.parse_args()
    missed = alarms = 0
    for ir in args.engine or ENGINES:
        with tempfile.TemporaryDirectory(prefix="relascope-gate-") as folder:
            gate = Gate(ir, Path(folder))
            rows = []
            for planted in PLANTED:
                found = gate.check(planted, planted.training)
                said = [d for d in found["differences"] if d["kind"] == planted.kind]
                said = [d for d in said if planted.says(ir) in d["sentence"]]
                named = bool(said) and found["fails"]
                missed += not named
                others = found["differences"]
                row = {"engine": ir, "planted": planted.title, "named": named}
                shown = said[0]["sentence"] if said else "; ".join(d["sentence"] for d in others)
                rows.append({**row, "by": shown[:110]})
            print(text_table(rows, ["engine", "planted", "named", "by"]), flush=True)
            began, false = time.perf_counter(), 0
            for number in range(args.runs):
                found = gate.check(None, training=number % 2 == 1)
                false += bool(found["failing"])
                for sentence in found["failing"]:
                    print(f"false alarm in run {number + 1}: {sentence}", flush=True)
            alarms += false
            took = (time.perf_counter() - began) / max(args.runs, 1)
            print(f"{ir}: {false} false alarms in {args.runs} runs, {took:.1f} s a run", flush=True)
    print(f"{missed} not named, {alarms} false alarms")
    return 1 if missed or alarms else 0


if __name__ == "__main__":
    raise SystemExit(main())
