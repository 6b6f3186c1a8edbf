"""Record scripts of others, unchanged: TVM's own tutorials and tests.

    python bench/oracles/tvm_scripts.py --engine relay CHECKOUT

CHECKOUT has the sources of an Apache TVM with Relay, such as v0.17.0, for `relay`, a current one
for `relax`; only its Python files are read, and run with the engine's TVM.

Each script runs plainly and then under `relascope record`, a tutorial as it is and a test file
under pytest, without the network. It counts if a recording opens that has passes, with every text,
and if the script ends as without the recorder: the same status, and as many tests passed, failed
and left out. Returns 1 if one does not count."""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relascope.core.errors import EngineError
from relascope.recorder import environment
from relascope.recorder.reading import read

RESULTS = Path(__file__).resolve().parents[1] / "results/tvm-scripts.md"
ENGINES = ("relay", "relax")


def scripts(engine: str) -> list[str]:
    """An engine's scripts that the table of results names, as paths in the checkout."""
    text = RESULTS.read_text(encoding="utf-8").partition(f"## {engine.title()}\n")[2]
    return re.findall(r"^\| `(.+?)`", text.partition("\n## ")[0], re.MULTILINE)


@dataclass
class Row:
    """The result of a script."""

    script: str
    ended: str
    files: int
    passes: int
    failed: int
    megabytes: float
    seconds: float
    wrong: str = ""

    def line(self) -> str:
        """As a row of a table in Markdown."""
        said = self.wrong or "recorded"
        numbers = f"{self.passes:,} | {self.failed:,} | {self.files} | {self.megabytes:.1f}"
        return f"| `{self.script}` | {numbers} | {self.seconds:.0f} | {self.ended} | {said} |"


HEAD = (
    "| script | passes | failed ones | files | MiB | s | ended | |\n"
    "|---|---|---|---|---|---|---|---|"
)


def main() -> int:
    """Record and print; 0 if every script counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--engine", choices=ENGINES, required=True)
    add("--limit-seconds", type=float, default=300, metavar="S", help="for each run of a script")
    add("-o", dest="output", type=Path, metavar="FILE")
    add("checkout", type=Path)
    add("scripts", nargs="*", help="paths in the checkout")
    args = parser.parse_args()
    rows = []
    print(HEAD, flush=True)
    for script in args.scripts or scripts(args.engine):
        rows.append(_tried(args, script))
        print(rows[-1].line(), flush=True)
    good = sum(not r.wrong for r in rows)
    print(f"{good} of {len(rows)} scripts are recorded; {sum(r.passes for r in rows):,} passes")
    if args.output:
        args.output.write_text("\n".join([HEAD, *(r.line() for r in rows)]) + "\n")
    return 0 if good == len(rows) else 1


def _variables(engine: str) -> dict[str, str]:
    dead = "http://127.0.0.1:9"
    found = {**os.environ, "http_proxy": dead, "https_proxy": dead, "HF_HUB_OFFLINE": "1"}
    if engine == "relay":
        from relascope.engine.relay.tvm.boot import boot, child_environment

        boot()
        found |= child_environment()
    return found


def _tried(args: argparse.Namespace, script: str) -> Row:
    with tempfile.TemporaryDirectory(prefix="relascope-bench-") as name:
        folder = Path(name)
        path = (args.checkout / script).resolve()
        tested = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(path.parent)]
        command = [sys.executable, *(tested if path.name.startswith("test_") else []), str(path)]
        record = [sys.executable, "-m", "relascope", "record", "--level", "text"]
        record += ["-o", str(folder / "run.rsc"), "--"]
        began = time.monotonic()
        try:
            plain, recorded = (_ended(c, args, folder) for c in (command, [*record, *command]))
        except subprocess.TimeoutExpired:
            return Row(script, "stopped", 0, 0, 0, 0.0, args.limit_seconds, "took too long")
        wrong = f"without the recorder: {plain}" if plain != recorded else ""
        row = Row(script, recorded, 0, 0, 0, 0.0, time.monotonic() - began, wrong)
        try:
            for file in environment.files(folder / "run.rsc"):
                found = read(file)
                sides = (side or {} for p in found.passes for side in (p.before, p.after))
                for content in (text for side in sides for text in side.values()):
                    found.text(content)
                row.files += 1
                row.passes += len(found.passes)
                row.failed += sum(p.failure is not None for p in found.passes)
                row.megabytes += file.stat().st_size / 2**20
                row.wrong = row.wrong or found.stopped
        except EngineError as error:
            row.wrong = error.message
        row.wrong = row.wrong or ("" if row.passes else "no pass")
        return row


def _ended(command: list[str], args: argparse.Namespace, folder: Path) -> str:
    how: dict[str, Any] = {"cwd": folder, "env": _variables(args.engine), "errors": "replace"}
    how |= {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(command, timeout=args.limit_seconds, check=False, **how)
    counts = re.findall(r"\b(\d+ (?:passed|failed|skipped|xfailed|xpassed|errors?))\b", done.stdout)
    return ", ".join(counts) or f"status {bool(done.returncode):d}"


if __name__ == "__main__":
    raise SystemExit(main())
