"""Everything that is claimed of a GPU, measured on the one that is here, in twenty minutes.

It finds the GPU, says which of torch, Relay's TVM and Relax's TVM can use it, and why not. Each
part is a script of this folder in a process of its own, which is killed at its limit with all that
it started, and each row is written at once to `bench/results/<gpu>.json`, and as tables to the
`.md` beside it. It needs no network: docs/targets.md says how to take it to a machine without one.

A dry run tries the parts on the CPU, with few rounds and without bars of time, and keeps nothing.
Returns 1 where a part does not come to its end or a bar is missed.
"""

import argparse
import ctypes
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT), str(ROOT / "bench")]

RESULTS = ROOT / "bench/results"
WHOLE = 1200.0
"""Seconds that all parts may take together: ten minutes for each engine."""
SLOW = 15.0
"""How many times as long a part may take where the CPU stands in."""
_WHEN_PARENT_ENDS = 1  # PR_SET_PDEATHSIG

Row = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """A part of the bench: a script with its words, in which GPU stands for the target, and the
    seconds until its process is killed."""

    name: str
    title: str
    engine: str
    limit: float
    script: str

    @property
    def key(self) -> str:
        """Its name in the record."""
        return f"{self.name}, {self.engine}" if self.engine else self.name


def _parts(name: str, title: str, limits: dict[str, float], script: str) -> tuple[Part, ...]:
    return tuple(Part(name, title, engine, limit, script) for engine, limit in limits.items())


def _both(limit: float) -> dict[str, float]:
    return {"relax": limit, "relay": limit}


_TIMED = "--threads 0 --repeats 20 --target=GPU"
_PLAIN = "--target 'cuda !-libs !-graphs'"
"""TVM's own kernels; by default products are the library's."""
PARTS = (
    *_parts("boot", "Who can use the GPU", {"torch": 20.0, **_both(50.0)}, "gpu.py --boot"),
    *_parts(
        "kernel", "A small kernel", _both(30.0), "accuracy.py mlp --inference --dtype float32 "
        "--target GPU",
    ),
    *_parts(
        "truth", "Errors against PyTorch, float32", _both(130.0),
        "accuracy.py mlp bert_layer resnet --dtype float32 --target GPU",
    ),
    *_parts(
        "timing", "Time beside PyTorch", _both(130.0),
        f"speed.py bert_layer resnet bert --rival {_TIMED}",
    ),
    *_parts(
        "graphs", "Functions as CUDA graphs", _both(90.0),
        f"speed.py bert_layer {_TIMED} --target 'cuda !-graphs'",
    ),
    *_parts(
        "cublas", "Products by cuBLAS, and by TVM's own kernels", _both(45.0),
        f"speed.py bert_layer --inference {_TIMED} {_PLAIN}",
    ),
    *_parts(
        "profile", "Kernel by kernel, against measured peaks", _both(60.0),
        "kernels.py bert_layer resnet --inference --sizes --slowest 8 --threads 0 --repeats 10 "
        "--target GPU",
    ),
    *_parts(
        "memory", "Peak memory of cuts", _both(45.0), "speed.py bert_layer --training --tokens 128 "
        "--cut keep_all --cut min_cut --threads 0 --repeats 2 --target GPU",
    ),
)  # fmt: skip
"""In the order in which they run; their limits together stay below `WHOLE`."""


class Record:
    """What parts said, by their keys; those that run again take the place of what they said before.

    Args:
        path: of the JSON file, beside which the tables are written as `.md`; None in a dry run.
        gpu: its name.

    Raises:
        ValueError: the file is there and of another GPU.
    """

    def __init__(self, path: Path | None, gpu: str) -> None:
        self.path = path
        self.document: Row = {"gpu": gpu, "parts": {}}
        if path and path.exists():
            self.document = json.loads(path.read_text(encoding="utf-8"))
            if self.document["gpu"] != gpu:
                raise ValueError(f"{path} is of {self.document['gpu']}: name another with -o.")

    def begin(self, part: Part, limit: float) -> Row:
        """The part's place in the record, which `write` writes down as it stands."""
        self.document["parts"].pop(part.key, None)
        made: Row = {"title": part.title, "state": "running", "limit_s": round(limit)}
        made |= {"on": str(date.today()), "said": [], "rows": []}
        self.document["parts"][part.key] = made
        return made

    def write(self) -> None:
        """To the file, whole or not at all, and as tables."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.document, indent=1) + "\n"
        tables = self.path.with_suffix(".md")
        for path, content in ((self.path, text), (tables, markdown(self.document))):
            beside = path.with_name(f".{path.name}.new")
            beside.write_text(content, encoding="utf-8")
            os.replace(beside, path)


def markdown(document: Row) -> str:
    """The record as tables."""
    lines = [f"# {document['gpu']}", ""]
    lines += ["Written by `bench/gpu.py` from the `.json` beside it.", ""]
    for key, part in document["parts"].items():
        took = f", {part['seconds']} s of {part['limit_s']} s" if "seconds" in part else ""
        lines += [f"## {part['title']} ({key})", "", f"{part['state']}{took}, {part['on']}", ""]
        lines += [f"- {sentence}" for sentence in part["said"]] + ([""] if part["said"] else [])
        for columns in dict.fromkeys(tuple(r) for r in part["rows"]):
            lines += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
            of = (r for r in part["rows"] if tuple(r) == columns)
            lines += ["| " + " | ".join(_cell(r[c]) for c in columns) + " |" for r in of] + [""]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


def run(args: argparse.Namespace, parts: Sequence[Part] = PARTS) -> int:
    """Run parts in order, as options ask, and write down each row as it comes; 0 where every part
    came to its end and no bar is missed. The first, which looks for the GPU, runs in any case."""
    if unknown := set(args.part or ()) - {p.name for p in parts}:
        known = ", ".join(dict.fromkeys(p.name for p in parts))
        print(f"There is no part {', '.join(unknown)}: {known}.", file=sys.stderr)
        return 2
    limits = [p.limit * (SLOW if args.dry_run else 1) for p in parts]
    looked = [*rows(parts[0], args.dry_run, limits[0], {})]
    gpu = next((r["gpu"] for r in looked if "gpu" in r), "")
    default = RESULTS / f"{re.sub(r'[^a-z0-9]+', '-', gpu.lower()).strip('-')}.json"
    try:
        if bool(gpu) == args.dry_run:
            why = next((r["said"] for r in looked if "said" in r), looked[-1].get("state"))
            use = (
                "leave --dry-run out" if gpu else "with --dry-run it goes as far as it can without"
            )
            raise ValueError(f"{why} There is {'a' if gpu else 'no'} GPU here: {use}.")
        record = Record(None if args.dry_run else args.output or default, gpu)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{gpu} {record.path}" if gpu else "DRY RUN: no GPU is used, and nothing is kept.")
    began, wrong, environment = time.monotonic(), 0, {}
    for part, limit in zip(parts, limits, strict=True):
        of_engine = not args.engine or part.engine in args.engine or part.engine == "torch"
        if not of_engine or (args.part and part.name not in args.part):
            continue
        if not args.dry_run:
            limit = min(limit, WHOLE - (time.monotonic() - began))
        print(f"{part.title}: {part.key} (at most {limit:.0f} s)", flush=True)
        started, kept = time.monotonic(), record.begin(part, limit)
        for row in rows(part, args.dry_run, limit, environment):
            environment |= row.pop("environment", {})
            words = ", ".join(f"{k} {v}" for k, v in row.items() if v is not None)
            missed = row.get("missed", "")
            if missed and (gpu or "--repeats" not in part.script or "failed: " in missed):
                wrong += 1
                print(f"MISSED: {part.key}: {words}")
            if "state" in row:
                kept |= {**row, "seconds": round(time.monotonic() - started, 1)}
                wrong += row["state"] != "done"
            elif "said" in row:
                kept["said"] += [row["said"]] if row["said"] not in kept["said"] else []
            else:
                kept["rows"].append(row)
            print(f"  {words}", flush=True)
            record.write()
    print(f"{time.monotonic() - began:.0f} s; {record.path or 'nothing'} was written")
    return 1 if wrong else 0


def rows(part: Part, dry: bool, limit: float, environment: dict[str, str]) -> Iterator[Row]:
    """What a part says, row by row; the last is its `state`: "done", or what came between."""
    if limit < 1:
        yield {"state": "not run: the time of all parts was over"}
        return
    script = part.script.replace("GPU", "llvm" if dry else "cuda")
    if dry:  # the other targets are a GPU's; few rounds of what is small
        script = re.sub(r" --target ('[^']*'|-\S+)| --sizes| --tokens 128", "", script)
        script = re.sub(r"--repeats \d+", "--repeats 2", script)
        script += " --tokens 14" if script.startswith("speed.py") else ""
    engine = part.engine if "--boot" in script else f"--engine {part.engine}"
    yield from _run(shlex.split(f"{script} {engine}"), dry, limit, environment)


def _run(words: list[str], dry: bool, limit: float, environment: dict[str, str]) -> Iterator[Row]:
    """The rows of a script, which is killed at the limit with all that it started."""
    import psutil

    reading, writing = os.pipe()
    libc = ctypes.CDLL(None)
    own = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    if dry:  # no time is kept, so nothing needs the machine alone
        own["RELASCOPE_ALONE"] = "0"
    script = str(ROOT / "bench" / words[0])
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, script, *words[1:], "--rows", f"/dev/fd/{writing}"],
            pass_fds=(writing,),
            env={**os.environ, **own, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
            preexec_fn=lambda: libc.prctl(_WHEN_PARENT_ENDS, signal.SIGKILL, 0, 0, 0),
        )
        os.close(writing)
        late = threading.Event()

        def kill() -> None:
            late.set()
            for one in (*psutil.Process(process.pid).children(recursive=True), process):
                one.kill()

        timer = threading.Timer(max(0.0, limit), kill)
        timer.start()
        try:
            with os.fdopen(reading, encoding="utf-8") as lines:
                yield from (json.loads(x) for x in lines if x.endswith("\n"))
            process.wait()
        finally:
            timer.cancel()
            if process.poll() is None:
                kill()
        errors.seek(0)
        said = errors.read().decode("utf-8", "replace").strip().splitlines()[-1:]
    if late.is_set():
        yield {"state": f"killed at its limit of {limit:.0f} s"}
    elif process.returncode:
        how = f"with {process.returncode}; {(said or ['it said nothing'])[0].strip()[:400]}"
        yield {"state": f"failed: its process ended {how}"}
    else:
        yield {"state": "done"}


def boot(engine: str, rows: Path) -> int:
    """The first part: who can use the GPU, and why not."""
    import common

    from relascope.core.errors import EngineError

    args = argparse.Namespace(rows=rows)
    try:
        for row in _boot_torch() if engine == "torch" else _boot_engine(engine):
            common.say(args, row)
    except EngineError as error:
        print(f"{error.message} ({error.where}) {error.hint}", file=sys.stderr)
        return 1
    return 0


def _boot_torch() -> Iterator[Row]:
    import torch

    from relascope.engine.building import cuda_compiler

    built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
    gpu, why, facts = "", "", {}
    if torch.cuda.is_available():
        about = torch.cuda.get_device_properties(0)
        gpu = about.name
        facts = {
            "memory_bytes": about.total_memory,
            "capability": f"{about.major}.{about.minor}",
            "multiprocessors": about.multi_processor_count,
            "l2_bytes": getattr(about, "L2_cache_size", None),
            "devices": torch.cuda.device_count(),
            "cudnn": torch.backends.cudnn.version(),
        }
    else:
        try:
            torch.cuda.init()
        except Exception as error:  # whatever keeps it from the GPU is the answer
            why = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
    can = "can use the GPU" if gpu else f"cannot use a GPU: {why}"
    yield {"said": f"PyTorch {torch.__version__}, {built}, {can}.", "gpu": gpu}
    yield {**facts, "cores": os.cpu_count(), "python": sys.version.split()[0]}
    compiler = cuda_compiler.compiler()
    yield {"said": f"CUDA's source is compiled by {compiler or 'nothing: there is no compiler'}."}


def _boot_engine(ir: str) -> Iterator[Row]:
    """An engine with the real libraries; unsandboxed where the sandbox keeps it from the GPU.

    A GPU's targets are said to run here only after a small function was built for each, run there,
    and gave the right numbers.
    """
    from relascope.core.errors import EngineError
    from relascope.engine.client import EngineClient
    from relascope.engine.sandbox import SETTING

    here = os.path.exists("/dev/nvidiactl")
    for sandbox in ("on", "off"):
        if sandbox == "off":
            os.environ[SETTING] = "off"
        with EngineClient(ir) as client:
            info = client.call("describe")
        gpus = [t for t in info.targets if t.name.split()[0] == "cuda"]
        works = any(t.runs_here for t in gpus)
        said = f"{ir}: TVM {info.version}. Its sandbox: {'; '.join(info.sandbox) or 'none'}."
        row: Row = {"said": said}
        if sandbox == "off" and works:
            row["said"] = f"A FAULT: {ir}'s sandbox keeps it from the GPU. Unsandboxed from here."
            row["environment"] = {SETTING: "off"}
        yield row
        if works or not here or not info.sandbox:
            break
    for target in gpus:
        can = "runs" if target.runs_here else f"cannot be used: {target.missing}"
        yield {"said": f"{ir}: {target.name} ({target.device}; {target.kernels or '-'}) {can}"}
    if ir == "relay":
        from relascope.engine.relay.tvm import boot as relay_boot

        relay_boot.boot()
        for one in relay_boot.describe_cuda():
            yield {"library": one.name, "is": "real" if one.real else "a stub", "note": one.note}
    else:
        import torch  # noqa: F401, as engines load it before TVM

        from relascope.engine.relax.building.cuda_runtime import missing

        note = missing()
        name = "libtvm_runtime_cuda.so"
        yield {"library": name, "is": "not loaded" if note else "real", "note": note}
    if here and not works:
        raise EngineError("target", f"{ir}'s TVM cannot use the GPU.", ir)


def main() -> int:
    """Measure; 0 where all went as it should."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", action="append", metavar="NAME", help="may be repeated")
    parser.add_argument("--engine", choices=("relax", "relay"), action="append")
    parser.add_argument("--dry-run", action="store_true", help="without a GPU")
    parser.add_argument("-o", dest="output", type=Path, metavar="FILE", help="the record (JSON)")
    parser.add_argument("--boot", help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    return boot(args.boot, args.rows) if args.boot else run(args)


if __name__ == "__main__":
    raise SystemExit(main())
