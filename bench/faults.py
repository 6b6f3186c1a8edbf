"""Kill engines at every boundary of every kind of call, and see that the next request is answered.

Run `python bench/faults.py` from the project's root; `--kills N` (200 otherwise), `--seed N`,
`--engine` for only one. A screen is made first: the sample's program in the midst of its training
pipeline. Then, as often as asked, a kind of call and a boundary are drawn: the engine is idle, the
request has just been sent, or one of the messages that it sends back has just come. There its
process is ended by a signal: the request is answered where it had not begun, else fails with the
signal and its own name. Then the screen is asked for again, which a new process answers with the
same graph. Its time is what passes until the new process begins on that, with the imports of torch
and TVM. Returns 1 where one is not back within 20 s, a request is blamed or not named as said, a
graph differs, or a process is left.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common
from common import Row

from relascope.core.errors import EngineError
from relascope.engine import process, supervisor
from relascope.engine.client import EngineClient
from relascope.engine.protocol.fault import Account, Where
from relascope.engine.protocol.records import VARIABLE
from relascope.engine.protocol.source import ModelSource
from relascope.passes.search.reduce import whole

BACK = 20.0  # s, for the start of a process
LONG = 300.0  # s; only what hangs takes so long
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT)
SAMPLE = "mlp"
MARK = "RELASCOPE_BENCH"

Call = tuple[str, tuple[Any, ...]]


@dataclass
class Plan:
    """Where the next kill is: after so many messages of this call, -1 for none."""

    at: int = -1
    number: int = signal.SIGKILL
    passed: int = 0
    killed: float = 0.0
    pid: int = 0
    begun: bool = False

    def boundary(self, pid: int, message: bytes = b"") -> None:
        """Between two messages: the first is the request itself."""
        if self.passed == self.at:
            self.at, self.killed, self.pid = -1, time.monotonic(), pid
            self.begun = CLIENTS[-1]._supervisor.begun
            os.kill(pid, self.number)
        # An abort takes a while, and what is being aborted may begin meanwhile.
        self.begun |= pid == self.pid and b"begun" in message[:64]
        self.passed += 1


PLAN = Plan()
CLIENTS: list[EngineClient] = []


class Tap:
    """A connection to a child that looks at each boundary whether to kill it."""

    def __init__(self, child: process.EngineProcess) -> None:
        self._child, self._conn = child, child.conn

    def send(self, value: object) -> None:
        self._conn.send(value)
        PLAN.boundary(self._child.process.pid)

    def recv_bytes(self, most: int) -> bytes:
        data = self._conn.recv_bytes(most)
        PLAN.boundary(self._child.process.pid, data)
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conn, name)


class TappedChild(process.EngineProcess):
    """See `Tap`."""

    def __init__(self, *about: Any) -> None:
        super().__init__(*about)
        self.conn = Tap(self)  # type: ignore[assignment]


def main() -> int:
    """Kill, print, and return 0 where all came back as they should."""
    parser = common.options(__doc__, samples=False, repeats=0)
    parser.add_argument("--kills", type=int, default=200, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--engine", choices=common.ENGINES, action="append", help="may be repeated")
    args = parser.parse_args()
    supervisor.EngineProcess = process.EngineProcess = TappedChild  # type: ignore[misc]
    os.environ[MARK] = uuid.uuid4().hex
    engines = args.engine or common.ENGINES
    rows: list[Row] = []

    def keep(now: list[Row]) -> None:
        common.write(args.output, [*rows, *now])

    with tempfile.TemporaryDirectory() as folder:
        os.environ[VARIABLE] = folder
        tempfile.tempdir = folder  # turns of our own: what others time is not our delay
        for index, ir in enumerate(engines):
            count = args.kills * (index + 1) // len(engines) - args.kills * index // len(engines)
            rows += kill_many(ir, count, random.Random(args.seed + index), keep)
    left = marked()
    if left:
        rows.append({"call": "after all", "missed": f"processes are left: {sorted(left)}"})
    slowest = max((r["worst_seconds"] for r in rows if "worst_seconds" in r), default=0.0)
    total = sum(r.get("kills", 0) for r in rows)
    print(
        f"{total} kills, {sum(r.get('back', 0) for r in rows)} back, the slowest in {slowest:.1f} s"
    )
    return common.finish(args, rows, lambda row: row["wrong"])


def kill_many(
    ir: str, count: int, draw: random.Random, keep: Callable[[list[Row]], None]
) -> list[Row]:
    """A row for each kind of call, kept after each kill."""
    rows: dict[str, Row] = defaultdict(
        lambda: {"engine": ir, "kills": 0, "back": 0, "answered": 0, "named": 0, "wrong": []}
    )
    with EngineClient(ir) as client:
        CLIENTS.append(client)
        calls, screen = calls_of(client, ir)
        lengths = {"idle": 0}
        for method, arguments in calls.items():
            PLAN.passed = 0
            client.call(method, *arguments)
            lengths[method] = PLAN.passed
        kinds = list(lengths)
        for turn in range(count):
            method = kinds[turn % len(kinds)]
            graph = client.call(screen[0], *screen[1])
            row = rows[method]
            row["call"] = method
            try:
                call = method, calls.get(method, ())
                if kill_once(client, call, lengths[method], draw, row, screen) != graph:
                    row["wrong"].append("another graph")
                row["back"] += 1
            except (TimeoutError, AssertionError) as missed:
                row["wrong"].append(str(missed))
            row["kills"] += 1
            if strange := {p for p in marked() if group_of(p) not in (client.pid, None)}:
                row["wrong"].append(f"orphans: {sorted(strange)}")
            print(f"{ir} {turn + 1} {method}: {row.get('last')} s", *row["wrong"], flush=True)
            keep(list(rows.values()))
    return list(rows.values())


def kill_once(
    client: EngineClient, call: Call, length: int, draw: random.Random, row: Row, screen: Call
) -> Any:
    """One kill, and the way back; returns what the screen is then.

    Raises:
        AssertionError, TimeoutError: what went wrong, in words.
    """
    method, arguments = call
    PLAN.number, PLAN.passed, PLAN.killed, PLAN.pid = draw.choice(SIGNALS), 0, 0.0, 0
    before, asked = client.pid, method != "idle"
    names = (signal.Signals(PLAN.number).name,)
    if PLAN.number == signal.SIGABRT:  # its handler reads what other threads write, and may fault
        names += ("SIGSEGV",)
    assert before is not None, "there was no engine to kill"
    if asked:
        PLAN.at = draw.randrange(length)
        look_at(client.submit(method, *arguments), row, names)
        PLAN.at = -1
    if not PLAN.killed:  # it was idle, or had less to say than before
        PLAN.killed = time.monotonic()
        os.kill(before, PLAN.number)
    job, engine, until = (
        client.submit(screen[0], *screen[1]),
        client._supervisor,
        time.monotonic() + LONG,
    )
    while not (job.done or (client.pid not in (None, before) and engine.begun)):
        time.sleep(0.01)
        if time.monotonic() > until:
            raise TimeoutError("it did not come back")
    row["last"] = round(time.monotonic() - PLAN.killed, 2)
    row["worst_seconds"] = max(row.get("worst_seconds", 0.0), row["last"])
    assert row["last"] <= BACK, f"{row['last']} s to come back"
    return job.result()


def look_at(job: supervisor.Job, row: Row, names: tuple[str, ...]) -> None:
    """Count a request that is done, and see that an error of it says one of the signals' names.

    Raises:
        AssertionError: it says something else, or that of a request that had not begun.
    """
    try:
        job.result()
        row["answered"] += 1
    except EngineError as error:
        row["named"] += 1
        said = error.message
        assert any(name in said for name in names), f"no signal named: {said[:200]}"
        assert f"during {job.method}" in said, f"no request named: {said[:200]}"
        assert PLAN.begun, f"blamed before it had begun: {said[:200]}"


def calls_of(client: EngineClient, ir: str) -> tuple[dict[str, tuple[Any, ...]], Call]:
    """Arguments for every kind of call, and the call that makes the screen."""
    source = ModelSource(SAMPLE, training=True)
    request = common.request(client, ir, source)
    plain = common.request(client, ir, ModelSource(SAMPLE))
    target, pipeline = request.target, request.pipeline
    where = Where(plain.pipeline, 0, 0, "wrong", "llvm", 1e-9)
    suspects = client.call("suspects", plain.source, where)
    piece = whole(suspects.graph)
    shown = client.call("narrow", plain.source, where, piece)
    task = client.call("tasks", plain)[0].key
    middle = len(pipeline) - 2
    calls: dict[str, tuple[Any, ...]] = {
        "describe": (),
        "target": (target,),
        "load": (source,),
        "example": (next(iter(pipeline)).name,),
        "step": (source, pipeline),
        "graph_after": (source, pipeline, middle),
        "text": (source, pipeline, middle),
        "split": (source, pipeline, request.captures),
        "check": (request,),
        "inside": (plain,),
        "torch_saved": (source,),
        "time": (request,),
        "compile": (plain,),
        "kernels": (source, pipeline),
        "profile": (plain,),
        "peaks": (target, 0, ("float32",)),
        "tasks": (plain,),
        "tune": (plain, (task,), 1),
        "suspects": (plain.source, where),
        "narrow": (plain.source, where, piece),
        "report": (plain.source, where, piece, Account(SAMPLE, shown, "Found.", False)),
    }
    return calls, ("graph_after", (source, pipeline, middle))


def marked() -> set[int]:
    """The processes that have our mark in their environment."""
    mark, found = f"{MARK}={os.environ[MARK]}".encode(), set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                if mark in (folder / "environ").read_bytes():
                    found.add(int(folder.name))
            except OSError:  # it has just ended
                continue
    return found


def group_of(pid: int) -> int | None:
    """A process's group; None where it has just ended."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


if __name__ == "__main__":
    raise SystemExit(main())
