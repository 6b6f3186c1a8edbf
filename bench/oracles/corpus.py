"""Compare relascope's verdicts with TVM faults that others reported: the files of corpus/.

Each file is a small program. Its header says which pipeline shows which symptom with the tested
TVMs, and which pass is to blame. It is bisected with that pipeline, and the result reduced, within
limits; the report is then run, and must fail. Passes run in an engine, which may crash.

With `--tvm PYTHON`, Relax's cases also run in an environment with an earlier TVM, as `make env`
makes one: faults fixed since then must be found in it. Returns 1 if a bar is missed."""

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relascope.commands.shared import write_files
from relascope.core.errors import EngineError
from relascope.engine.client import EngineClient
from relascope.engine.jobs import bisect, reduce
from relascope.engine.jobs.bisect import IMPORT, Bisection, Question
from relascope.engine.limits import Limits
from relascope.engine.protocol.source import source_from_file
from relascope.passes.catalogue import read_pipeline, with_tvms

sys.path.append(str(Path(__file__).resolve().parents[1]))
import common  # isort: skip

PAGE = common.ROOT / "corpus/README.md"  # what `--page` writes, below the words at its top
VERDICTS = ("right", "wrong", "crash", "type", "unbuilt", "refused")
"""`type`: a pass leaves a module that is ill-formed, or other types; `wrong`: other numbers;
`unbuilt`: no pipeline builds it; `refused`: TVM does not type it, and says why."""
NEEDED = ("thread", "expected", "pipeline", "verdict", "versions")
FEW = 5  # nodes that a reduced program may have
_BARS = {"seen": 1.0, "culprit": 0.9, "few": 0.8, "controls": 1.0, "before": 1.0}
_FINE = ("right", "refused")
_TRIES, _SECONDS = 60, 120
_HEAD = re.compile(r"^(?:#|//) (\w+): (.+)$", re.MULTILINE)


class _OutOfTime(Exception):
    """A search takes longer than its limit."""


@dataclass(frozen=True)
class Case:
    """A file of the corpus. `head` is its header: the `thread` it comes from, the `expected`
    symptom, the `pipeline`, the true `verdict`, the `culprit` (the pass to blame; none if it is no
    pass), and the `versions` of TVM for which this is true; for a fixed fault, also the verdict and
    the pass `before`, with the last version that had it."""

    path: Path
    engine: str
    head: dict[str, str]

    @property
    def name(self) -> str:
        return self.path.stem


def cases(only: Iterable[str] = (), root: Path = common.ROOT / "corpus") -> list[Case]:
    """All cases, or some by name, by engine and folder. Raises ValueError if a header lacks a
    field, or a name is unknown."""
    found = []
    for path in sorted(p for ir in common.ENGINES for p in root.rglob(f"*.{ir}")):
        head = dict(_HEAD.findall(path.read_text(encoding="utf-8")))
        lacks = [n for n in NEEDED if n not in head]
        if lacks or head["verdict"] not in VERDICTS:
            raise ValueError(f"{path.name} lacks {', '.join(lacks) or 'a verdict that is known'}")
        found.append(Case(path, path.suffix[1:], head))
    chosen = set(only) or {c.name for c in found}
    if unknown := chosen - {c.name for c in found}:
        raise ValueError(f"The corpus has no {', '.join(sorted(unknown))}.")
    return [c for c in found if c.name in chosen]


def judged(case: Case, client: EngineClient) -> common.Row:
    """relascope's verdict on a case, beside the true one."""
    began = time.monotonic()
    head = case.head
    row: common.Row = {"case": case.name, "engine": case.engine, "thread": head["thread"]}
    row |= {"expected": head["verdict"], "culprit": head.get("culprit", "")}
    row["before"] = head.get("before", "")

    def ask(method: str, *given: Any) -> Any:
        if time.monotonic() - began > _SECONDS:
            raise _OutOfTime
        return client.call(method, *given)

    try:
        row |= _found(case, ask)
    except EngineError as error:
        closed = "refused" if head["verdict"] == "refused" else "not opened"
        words = {"file": closed, "reader": "crash", "target": "unbuilt"}
        row |= {"found": words.get(error.kind, error.kind), "said": error.message}
    return {**row, "seconds": round(time.monotonic() - began, 1)}


def _found(case: Case, ask: Callable[..., Any]) -> common.Row:
    ir, source = case.engine, source_from_file(case.path)
    against = ask("load", source, True).against
    known = ask("pipelines", "").pipelines
    pipeline = read_pipeline(ir, with_tvms(ir, case.head["pipeline"], known))
    target = case.head.get("target") or ask("describe").best
    found = bisect.bisect(ask, ir, Question(source, pipeline, target, threads=1))
    row = {"found": _verdict(found), "said": bisect.verdict(ir, found), "against": against}
    names = ["import" if i == IMPORT else pipeline.steps[i].name for i in found.culprits.suspects]
    row["named"] = " or ".join(names)
    if reduce.cannot(found):
        return row
    try:
        made = reduce.narrow(ask, ir, found, most=_TRIES)
    except (EngineError, _OutOfTime) as error:
        return {**row, "reduced": getattr(error, "message", "It took too long.")}
    row |= {"nodes": made.piece and len(made.piece.nodes), "reduced": reduce.verdict(ir, made)}
    if made.report is not None:
        with tempfile.TemporaryDirectory(prefix="relascope-bench-") as folder:
            write_files(made.report.files, Path(folder), "--out")
            run = [sys.executable, str(Path(folder) / "report.py")]
            done = subprocess.run(run, cwd="/", capture_output=True, timeout=600, check=False)
        row["status"] = done.returncode
    return row


def _verdict(found: Bisection) -> str:
    if found.kind == "wrong" and found.double is not None and found.double.passed:
        return "right"  # rounded
    whole = found.log[0].error
    return "type" if whole is not None and whole.kind == "type" else found.kind or "right"


def score(rows: list[common.Row]) -> dict[str, tuple[int, int]]:
    """Pairs: symptoms seen and controls called right, of all opened; culprits named, of those that
    are a pass; reduced to few nodes with a report that fails, of those; found in the TVM before the
    fix, of those run there; not opened; called right but wrong, of all."""
    opened = [r for r in rows if r["found"] != "not opened"]
    broken = [r for r in opened if r["expected"] not in _FINE]
    blamed = [r for r in broken if r["culprit"]]
    few = [r for r in blamed if r.get("status") == 1 and 0 < (r.get("nodes") or 0) <= FEW]
    controls = [r for r in opened if r["expected"] in _FINE]
    missed = [r for r in broken if r["found"] == "right"]
    mended = [r for r in rows if r.get("before") and "earlier" in r]
    again = [r for r in mended if r["before"].startswith(f"{r['earlier']} ")]
    return {
        "seen": (sum(r["found"] == r["expected"] for r in broken), len(broken)),
        "culprit": (sum(r.get("named") == r["culprit"] for r in blamed), len(blamed)),
        "few": (len(few), len(blamed)),
        "controls": (sum(r["found"] == r["expected"] for r in controls), len(controls)),
        "before": (len(again), len(mended)),
        "not opened": (len(rows) - len(opened), len(rows)),
        "missed": (len(missed), len(rows)),
    }


_WORDS = {
    "seen": "symptom seen, of those broken here",
    "culprit": "culprit named, of those that a pass is to blame for",
    "few": f"reduced to at most {FEW} nodes, with a report that fails, of those",
    "controls": "called right, of those right here",
    "before": "found, with the pass, in the TVM before it was mended, of those",
    "not opened": "not opened, of all",
    "missed": "called right and wrong in truth, of all",
}


def missed(rows: list[common.Row]) -> list[str]:
    """The bars that are not met, as sentences."""
    found = score(rows)
    said = [_WORDS[n] for n, bar in _BARS.items() if found[n][0] < bar * found[n][1]]
    return said + [_WORDS["missed"]] * bool(found["missed"][0])


def page(rows: list[common.Row]) -> str:
    """The table and the score, as Markdown."""
    lines = [PAGE.read_text(encoding="utf-8").partition("\n| | |")[0], "| | |", "|---|---:|"]
    lines += [f"| {_WORDS[n]} | {k} of {of} |" for n, (k, of) in score(rows).items()]
    titles = "case | thread | true | found | against | culprit | named | nodes | report fails | s"
    titles += " | before: true | found"
    for ir in common.ENGINES:
        lines += ["", f"## {ir.title()}", "", f"| {titles} |", "|---" * 12 + "|"]
        for row in (r for r in rows if r["engine"] == ir):
            fails = {None: "", 1: "yes"}.get(row.get("status"), "no")
            cells = [row["case"], row["thread"], row["expected"], row["found"]]
            cells += [row.get("against", ""), row["culprit"], row.get("named", "")]
            cells += [row.get("nodes") or "", fails, f"{row['seconds']:.0f}"]
            cells += [row.get("before", ""), row.get("earlier", "")]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def _earlier(python: str, names: list[str]) -> dict[str, str]:
    """By name, the verdict on Relax's cases with another Python's TVM, and the pass."""
    with tempfile.TemporaryDirectory(prefix="relascope-bench-") as folder:
        found = Path(folder) / "rows.json"
        command = [python, __file__, "--engine", "relax", "-o", str(found), *names]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=False)  # its bars are not met
        rows = json.loads(found.read_text(encoding="utf-8"))["rows"]
    return {r["case"]: f"{r['found']} {r.get('named', '')}".strip() for r in rows}


def main() -> int:
    """Look at all requested cases; 1 if a bar is missed."""
    parser = common.options(__doc__, samples=False, repeats=0)
    parser.add_argument("names", nargs="*", metavar="CASE")
    parser.add_argument("--engine", choices=common.ENGINES, action="append")
    parser.add_argument("--page", action="store_true", help="write corpus/README.md")
    parser.add_argument("--tvm", metavar="PYTHON", help="of an environment with an earlier TVM")
    args = parser.parse_args()
    rows: list[common.Row] = []
    chosen = cases(args.names)
    for ir in args.engine or common.ENGINES:
        with EngineClient(ir) as client:
            client.limit(Limits(seconds=60.0))
            for case in (c for c in chosen if c.engine == ir):
                rows.append(judged(case, client))
                print("{case}: {found}".format(**rows[-1]), file=sys.stderr, flush=True)
    if args.tvm:
        chosen_relax = [r["case"] for r in rows if r["engine"] == "relax"]
        for case, said in _earlier(args.tvm, chosen_relax).items():
            next(r for r in rows if r["case"] == case)["earlier"] = said
    columns = "case thread expected found culprit named nodes status seconds before earlier"
    common.table(rows, columns.split())
    common.table([{"": _WORDS[n], "found": k, "of": of} for n, (k, of) in score(rows).items()])
    common.write(args.output, {"rows": rows, "score": score(rows), **common.machine()})
    if args.page:
        PAGE.write_text(page(rows), encoding="utf-8")
    print("\n".join(missed(rows)) or "Every bar is met.")
    return int(bool(missed(rows)))


if __name__ == "__main__":
    raise SystemExit(main())
