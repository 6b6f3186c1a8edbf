"""Measure every claim about GPUs on this machine's GPU, in twenty minutes.

Each part is a script of this folder, or a command, in its own process, which is killed at its limit
with all that it started. The parts' output goes to `bench/results/<gpu>.md`, or to the file of
`-o`; if only some parts run, only there. No network is needed: see docs/targets.md.

A dry run tries the parts on the CPU, with few rounds and no bars of time, and writes nothing.
Returns 1 if a part does not end or a bar is missed."""

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import psutil
import torch

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench/results"
WHOLE = 1200.0
"""Seconds that all parts may take together: ten minutes for each engine."""
SLOW = 15.0
"""How many times as long a part may take where the CPU stands in."""


@dataclass(frozen=True)
class Part:
    """A part of the bench: a script with its words, in which GPU stands for the target, and the
    seconds until its process is killed."""

    name: str
    title: str
    engine: str
    limit: float
    script: str


def _parts(name: str, title: str, relax: float, relay: float, script: str) -> tuple[Part, ...]:
    limits = ("relax", relax), ("relay", relay)
    return tuple(Part(name, title, engine, limit, script) for engine, limit in limits)


_CHECK = "-m relascope check --dtype float32 --rtol 1e-4 --strategy min_cut"
"""On the first target that runs, the GPU where there is one; sums there have another order."""
_TIMED = "--threads 0 --repeats 20 --target=GPU"
_PLAIN = "--target 'cuda !-libs !-graphs'"
"""TVM's own kernels; by default products are the library's."""
PARTS = (
    Part("engines", "Who can use the GPU, and why not", "", 70.0, "-m relascope engines"),
    *_parts("kernel", "A small kernel", 30.0, 30.0, f"{_CHECK} mlp"),
    *_parts("truth", "Errors against PyTorch, of a layer", 50.0, 50.0, f"{_CHECK} bert_layer"),
    *_parts("truth", "Errors against PyTorch, of a network", 80.0, 120.0, f"{_CHECK} resnet"),
    *_parts(
        "timing", "Time beside PyTorch", 130.0, 130.0,
        f"speed.py bert_layer resnet bert --rival {_TIMED}",
    ),
    *_parts(
        "graphs", "Functions as CUDA graphs", 90.0, 90.0,
        f"speed.py bert_layer {_TIMED} --target 'cuda !-graphs'",
    ),
    *_parts(
        "cublas", "Products by cuBLAS, and by TVM's own kernels", 45.0, 45.0,
        f"speed.py bert_layer --inference {_TIMED} {_PLAIN}",
    ),
    *_parts(
        "profile", "A layer, kernel by kernel, against measured peaks", 25.0, 45.0,
        "-m relascope profile bert_layer --batch 8 --tokens 128 --repeats 10",
    ),
    *_parts(
        "profile", "A network, kernel by kernel, against measured peaks", 35.0, 35.0,
        "-m relascope profile resnet --repeats 10",
    ),
    *_parts(
        "memory", "Peak memory of cuts", 45.0, 45.0,
        "-m relascope captures bert_layer --batch 8 --tokens 128 --measure --repeats 2",
    ),
)  # fmt: skip
"""In the order in which they run; their limits together stay below `WHOLE`."""


def look() -> tuple[str, str]:
    """The GPU's name, "" without one, and PyTorch's description of it."""
    words = f"PyTorch {torch.__version__} for CUDA {torch.version.cuda}"
    if not torch.cuda.is_available():
        return "", f"{words} sees no GPU."
    about = torch.cuda.get_device_properties(0)
    return about.name, f"{words}, {os.cpu_count()} cores. {about}"


def run(args: argparse.Namespace, parts: Sequence[Part] = PARTS) -> int:
    """Run parts in order, and write each part's output once it ends. Returns 0 if every part
    ended and no bar is missed."""
    gpu, said = look()
    if bool(gpu) == args.dry_run:
        print(said, "Leave --dry-run out." if gpu else "Try --dry-run.", file=sys.stderr)
        return 1
    name = re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-")
    path = args.output or (None if args.part or args.engine else RESULTS / f"{name}.md")
    print("DRY RUN: no GPU is used, and nothing is kept." if args.dry_run else said)
    lines = [f"# {gpu}", "", f"Written by `bench/gpu.py` on {date.today()}.", "", said, ""]
    began, wrong = time.monotonic(), 0
    for part in parts:
        if part.name not in (args.part or [part.name]):
            continue
        if part.engine and part.engine not in (args.engine or [part.engine]):
            continue
        left = WHOLE - (time.monotonic() - began)
        limit = SLOW * part.limit if args.dry_run else min(part.limit, left)
        print(title := f"{part.title} ({part.name}{part.engine and ', '}{part.engine})", flush=True)
        state, printed = _run(words_of(part, args.dry_run), args.dry_run, limit)
        timed = args.dry_run and "--repeats" in part.script and "failed: " not in printed
        if timed and state == "ended with 1":
            state = "done"  # no bar of a GPU's time holds on a CPU
        wrong += state != "done"
        print(f"{printed}  state {state}", flush=True)
        lines += [f"## {title}", "", f"{state}, of {limit:.0f} s", ""]
        lines += ["```", printed.rstrip(), "```", ""]
        if path and not args.dry_run:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(lines), encoding="utf-8")
    return 1 if wrong else 0


def words_of(part: Part, dry: bool) -> list[str]:
    """The arguments of a part's command, after Python's own."""
    script = part.script.replace("GPU", "llvm" if dry else "cuda")
    if dry:  # the other targets are a GPU's; few rounds of what is small
        script = re.sub(r" --target ('[^']*'|-\S+)| --batch 8| --tokens 128", "", script)
        script = re.sub(r"--repeats \d+", "--repeats 2", script)
        script += " --tokens 14" if script.startswith("speed.py") else ""
    return shlex.split(f"{script} --engine {part.engine}" if part.engine else script)


def _run(words: list[str], dry: bool, limit: float) -> tuple[str, str]:
    """How a part's process ends, "done" if all is well, and its output."""
    own = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    own |= {"RELASCOPE_ALONE": "0"} if dry else {}  # no time is kept
    with tempfile.TemporaryFile("w+") as output:
        streams: Any = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT, "stdout": output}
        where: Any = {"cwd": ROOT / "bench", "env": {**os.environ, **own}}
        process = subprocess.Popen([sys.executable, *words], **where, **streams)
        try:
            status = process.wait(max(0.0, limit))
            state = f"ended with {status}" if status else "done"
        except subprocess.TimeoutExpired:
            state = f"killed at its limit of {limit:.0f} s"
        finally:
            if process.poll() is None:
                for one in (*psutil.Process(process.pid).children(recursive=True), process):
                    one.kill()
                process.wait()
        output.seek(0)
        return state, output.read()


def main() -> int:
    """Measure; 0 if every part ended and no bar is missed."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    names = list(dict.fromkeys(p.name for p in PARTS))
    parser.add_argument("--part", action="append", choices=names, help="may be repeated")
    parser.add_argument("--engine", choices=("relax", "relay"), action="append")
    parser.add_argument("--dry-run", action="store_true", help="without a GPU")
    parser.add_argument("-o", dest="output", type=Path, metavar="FILE", help="the record")
    return run(parser.parse_args())


if __name__ == "__main__":
    raise SystemExit(main())
