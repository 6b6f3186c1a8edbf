"""Running the parts of `bench/gpu.py`, each in a process of its own, and what is kept of them."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from on_gpu.record import Record, Row, slug

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench/results"
_WHEN_PARENT_ENDS = 1  # PR_SET_PDEATHSIG
WHOLE = 600.0
"""Seconds that all parts may take together."""


@dataclass(frozen=True)
class Part:
    """A part, by its name; of one engine where there is one.

    Args:
        limit: seconds until its process is killed; on a machine without a GPU, where the CPU stands
            in, `slow` times as many.
        slow: see `limit`.
        module: that is run.
    """

    name: str
    title: str
    engine: str
    limit: float
    slow: float = 15.0
    module: str = "on_gpu.parts"

    @property
    def key(self) -> str:
        return f"{self.name}, {self.engine}" if self.engine else self.name


def _both(name: str, title: str, limit: float) -> tuple[Part, ...]:
    return tuple(Part(name, title, ir, limit) for ir in ("relax", "relay"))


PARTS = (
    Part("boot", "Who can use the GPU", "torch", 20.0),
    *_both("boot", "Who can use the GPU", 25.0),
    *_both("kernel", "A small kernel", 15.0),
    *_both("truth", "Errors against PyTorch, float32", 75.0),
    Part("timing", "Time beside PyTorch", "relax", 125.0),
    Part("timing", "Time beside PyTorch", "relay", 60.0),
    Part("graphs", "Relax's own CUDA graphs", "relax", 20.0),
    *_both("cublas", "Products by cuBLAS", 20.0),
    *_both("profile", "Kernel by kernel, against measured peaks", 25.0),
    *_both("memory", "Peak memory of cuts", 20.0),
)
"""In the order in which they run; their limits together stay below `WHOLE`."""


def run(
    names: Sequence[str] | None,
    engines: Sequence[str] | None,
    dry: bool,
    output: Path | None,
    parts: Sequence[Part] = PARTS,
) -> int:
    """Run parts in order, and write down each result as it comes.

    Args:
        names: of parts; None for all. The first, which looks for the GPU, runs in any case.
        engines: None for all.

    Returns:
        0 where every part came to its end and no bar is missed.
    """
    known = list(dict.fromkeys(p.name for p in parts))
    if unknown := set(names or ()) - set(known):
        print(f"There is no part {', '.join(unknown)}: {', '.join(known)}.", file=sys.stderr)
        return 2
    first = parts[0]
    found, sentence = _look(first, dry)
    if not found and not dry:
        print(f"{sentence} With --dry-run it goes as far as it can without.", file=sys.stderr)
        return 1
    if found and dry:
        print("There is a GPU here: leave --dry-run out.", file=sys.stderr)
        return 1
    default = ROOT / "out/gpu-dry-run.json" if dry else RESULTS / f"{slug(found)}.json"
    try:
        record = Record(output or default, found, dry)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{found or 'DRY RUN: no GPU is used.'} {record.path}")
    began, wrong = time.monotonic(), 0
    chosen = [
        p
        for p in parts
        if (not names or p.name in names)
        and (not engines or p.engine in engines or p.engine not in ("relax", "relay"))
    ]
    environment: dict[str, str] = {}
    for part in chosen:
        limit = part.limit * (part.slow if dry else 1)
        if not dry:
            limit = min(limit, WHOLE - (time.monotonic() - began))
        print(f"{part.title}: {part.key} (at most {limit:.0f} s)", flush=True)
        started = time.monotonic()
        record.begin(part.key, part.title, limit)
        state = "not run: the ten minutes were over"
        for row in rows(part, dry, limit, environment) if limit >= 1 else ():
            if "state" in row:
                state = row["state"]
                continue
            environment |= row.pop("environment", {})
            record.add(part.key, row)
            _show(row)
        record.end(part.key, state, time.monotonic() - started)
        if state != "done":
            wrong += 1
            print(f"  {state}", flush=True)
    missed = record.missed(p.key for p in chosen)
    for sentence in missed:
        print(f"MISSED: {sentence}")
    print(f"{time.monotonic() - began:.0f} s; see {record.path.with_suffix('.md')}")
    return 1 if wrong or missed else 0


def _look(part: Part, dry: bool) -> tuple[str, str]:
    """The GPU's name, "" where there is none; and why not, in a sentence."""
    said = ""
    for row in rows(part, dry, part.limit * (part.slow if dry else 1), {}):
        if "gpu" in row:
            return row["gpu"], row["said"]
        if row.get("state", "done") != "done":
            said = row["state"]
    return "", said


def _show(row: Row) -> None:
    if "said" in row:
        print(f"  {row['said']}", flush=True)
    else:
        print("  " + ", ".join(f"{k} {v}" for k, v in row.items() if v is not None), flush=True)


def rows(part: Part, dry: bool, limit: float, environment: dict[str, str]) -> Iterator[Row]:
    """What a part says, row by row; the last is its `state`: "done", or what came between.

    Its process is killed at the limit with all that it started.
    """
    reading, writing = os.pipe()
    libc = ctypes.CDLL(None)
    command = [sys.executable, "-m", part.module, part.name, part.engine, str(writing)]
    paths = [str(ROOT / "bench"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    own = {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    if dry:  # no time is kept, so nothing needs the machine alone
        own["RELASCOPE_ALONE"] = "0"
    process = subprocess.Popen(
        [*command, *(["--dry-run"] if dry else [])],
        pass_fds=(writing,),
        env={**os.environ, **own, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: libc.prctl(_WHEN_PARENT_ENDS, signal.SIGKILL, 0, 0, 0),
    )
    os.close(writing)
    assert process.stderr is not None
    end, text, errors = time.monotonic() + limit, b"", b""
    streams = {reading, process.stderr.fileno()}
    state = ""
    try:
        while streams:
            ready, _, _ = select.select(list(streams), [], [], max(0.0, end - time.monotonic()))
            if not ready:
                state = f"killed at its limit of {limit:.0f} s"
                break
            for stream in ready:
                data = os.read(stream, 1 << 16)
                if not data:
                    streams.discard(stream)
                elif stream != reading:
                    errors = (errors + data)[-(1 << 16) :]
                else:
                    *lines, text = (text + data).split(b"\n")
                    yield from map(json.loads, lines)
            if reading not in streams:  # what it left running may hold its standard error
                break
        if not state:
            process.wait(max(1.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        state = f"killed at its limit of {limit:.0f} s"
    finally:
        if process.poll() is None:
            kill(process)
        os.close(reading)
        process.stderr.close()
    if not state:
        state = "done" if process.returncode == 0 else _fallen(process.returncode, errors)
    yield {"state": state}


def _fallen(code: int, errors: bytes) -> str:
    lines = [x for x in errors.decode("utf-8", "replace").splitlines() if x.strip()]
    last = lines[-1].strip()[:400] if lines else "it said nothing"
    how = f"by signal {-code}" if code < 0 else f"with {code}"
    return f"failed: its process ended {how}; {last}"


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that came of it."""
    for pid in (*_offspring(process.pid), process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _offspring(pid: int) -> list[int]:
    """The processes that came of one, by the system's table."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):  # it has ended meanwhile
            continue
    found: list[int] = []
    todo = [pid]
    while todo:
        now = todo.pop()
        children = [p for p, parent in parents.items() if parent == now]
        found += children
        todo += children
    return found
