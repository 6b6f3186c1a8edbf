"""What the scripts that hold engines against PyTorch share: children, verdicts, files of rows.

Unlike `bench/common.py`, which asks engines as the app does, this runs them in the same process."""

import json
import multiprocessing
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from relascope.core.errors import EngineError
from relascope.engine.building.devices import default_target
from relascope.engine.in_process import load_engine
from relascope.engine.registry import ENGINES

ROOT = Path(__file__).resolve().parents[3]
Row = dict[str, Any]
Tensors = tuple[torch.Tensor, ...]


def differences(
    ours: Tensors,
    theirs: Tensors,
    judge: Callable[[], Tensors],
    tolerance: float,
    names: Sequence[str] = (),
    again: Sequence[Callable[[], Tensors]] = (),
    moved: Callable[[], Iterable[Tensors]] = tuple,
) -> str:
    """In which way tensors differ from PyTorch's, in words; "" where they do not.

    Args:
        judge: PyTorch's own in float64; may raise.
        tolerance: of a tensor's scale.
        names: of the tensors.
        again: PyTorch's own by other ways of it, each of which counts: on inputs that are spread in
            memory, for which it takes its scalar code in place of its vectors', and with its plain
            kernel of attention. They differ in what they make of NaN, as in hardtanh's gradient.
        moved: PyTorch's own after its inputs and weights moved by what float32 rounds them by. How
            far these move is allowed, too: at a ReLU's kink, and where the truth is zero."""
    if len(ours) != len(theirs):
        return f"{len(ours)} tensors for {len(theirs)}"
    found: list[str] = []
    shifted: list[Tensors] | None = None
    for index, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        name = names[index] if names else str(index)
        if a.shape != b.shape or a.dtype != b.dtype:
            types = [f"{str(t.dtype)[6:]}{list(t.shape)}" for t in (a, b)]
            found.append(f"{name}: {types[0]} for {types[1]}")
            continue
        off = _off(a, b, tolerance)
        if not off.any():
            continue
        if b.is_floating_point():
            shifted = list(moved()) if shifted is None else shifted
            apart = max((_scale(other[index] - b) for other in shifted), default=0.0)
            off &= _off(a, b, tolerance, 4 * apart)
        if b.is_floating_point() and off.any():
            try:
                exact = judge()[index]
                if exact.shape == b.shape:
                    error = torch.nan_to_num((b - exact).abs(), nan=0.0, posinf=0.0)
                    off &= _off(a.double(), exact, tolerance, 4 * float(error.max()))
            except Exception:  # PyTorch has not everything in float64: then float32 decides
                pass
        for other in again if off.any() and b.is_floating_point() else ():
            off &= _off(a, other()[index], tolerance)
        if off.any():
            at = off.flatten().nonzero().flatten()[:4].tolist()
            x, y = a.flatten(), b.flatten()
            pairs = ", ".join(f"[{i}] {x[i].item():.7g} for {y[i].item():.7g}" for i in at)
            found.append(f"{name}: {int(off.sum())} of {off.numel()} off, {pairs}")
    return "; ".join(found[:4])


def _scale(tensor: torch.Tensor) -> float:
    finite = tensor.double().abs().nan_to_num(nan=0.0, posinf=0.0)
    return float(finite.max()) if tensor.numel() else 0.0


def _off(a: torch.Tensor, b: torch.Tensor, tolerance: float, room: float = 0.0) -> torch.Tensor:
    """Where tensors differ by more than a part of the scale and `room`, both allowed at once: an
    exact result of nothing but zeros has no scale, and PyTorch's own error in float32 is the room.
    """
    if not b.is_floating_point():
        return a != b
    same = (a == b) | (a.isnan() & b.isnan())
    finite = a.isfinite() & b.isfinite()
    allowed = tolerance * (b.abs() + _scale(b)) + room
    return ~(same | (finite & ((a - b).abs() <= allowed)))


def failed(error: BaseException) -> Row:
    """A refusal is a sentence of ours that names the operator; all else is a crash."""
    if isinstance(error, EngineError):
        ours = error.kind in ("operator", "pass", "input", "usage")
        verdict = "refused" if ours and "bug in relascope" not in error.hint else "crash"
        about = {"where": error.where, "hint": error.hint, "kind": error.kind}
        return {"verdict": verdict, "message": error.message[:600], **about}
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "relascope/" in f.filename and "site-packages" not in f.filename]
    at = [f"{f.filename.rpartition('relascope/')[2]}:{f.lineno}" for f in own[-3:]]
    lines = [x.strip() for x in str(error).splitlines() if x.strip()]
    last = lines[-1] if lines else ""
    return {
        "verdict": "crash",
        "message": f"{type(error).__name__}: {last}"[:600],
        "at": " > ".join(at),
        "deepest": f"{frames[-1].filename}:{frames[-1].lineno}",
    }


def target_of(ir: str) -> str:
    """An engine's default target here, asked in a child, which may start a device."""

    def ask(pipe: Connection) -> None:
        found = default_target(load_engine(ir).describe().targets, torch.device("cpu"))
        pipe.send({"target": found})
        pipe.close()

    return str(next(child(ask, 300))["target"])


def child(work: Callable[[Connection], None], seconds: float) -> Iterator[Row]:
    """The rows that a forked process sends until it closes its end; where it dies, or sends none
    for so many seconds and is killed, at last one with `died`, in words."""
    forking = multiprocessing.get_context("fork")
    receive, send = forking.Pipe(False)
    process = forking.Process(target=work, args=(send,))
    process.start()
    send.close()
    why = ""
    try:
        while receive.poll(seconds):
            yield receive.recv()
        why = f"took longer than {seconds:.0f} s"
        process.kill()
    except EOFError:
        pass
    process.join()
    if process.exitcode:
        yield {"died": why or f"the process ended with {process.exitcode}"}


def apart(engines: Sequence[str]) -> int:
    """Run this script for each engine in a process of its own; the worst exit status."""
    own = [a for a in sys.argv[1:] if a not in ("--engine", *ENGINES, "--page")]
    runs = [subprocess.Popen([sys.executable, sys.argv[0], "--engine", e, *own]) for e in engines]
    return max(run.wait() for run in runs)


def begin(path: Path, rows: Iterable[Row]) -> None:
    """Write a file of rows anew, as a line of JSON each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")


def keep(path: Path, row: Row) -> None:
    """Add a row to a file at once."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def double(tensors: Tensors) -> Tensors:
    return tuple(t.double() if t.is_floating_point() else t for t in tensors)


def read(path: Path) -> list[Row]:
    """The rows of a file, as far as it is whole."""
    rows: list[Row] = []
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:
                break
    return rows


def tried(path: Path) -> list[Row]:
    """Those of its rows that have a verdict."""
    return [r for r in read(path) if "verdict" in r]


def short(message: str) -> str:
    text = " ".join(message.split()).replace("|", "\\|")
    return text if len(text) <= 90 else text[:89] + "…"
