"""The cost of recording a whole compile.

`relay.build` and `relax.build` compile a sample for "llvm", each time in its own process: plain,
and recorded at the levels "text" and "graphs", in turns. A ratio is that of the medians of the
process's CPU time, which other work on the machine changes least; the wall time is beside it. For
Relax there are also ratios with machine code, for a script that exports a library. Returns 1 if a
bar is missed."""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import common
from common import ENGINES, Row

LEVELS = ("plain", "text", "graphs")
MOST = {"text": 1.3, "graphs": 2.0}
MOST_BYTES = 30 << 20


def main() -> int:
    """Measure and print; 0 if every bar is met."""
    parser = common.options(__doc__, samples=False, repeats=3)
    parser.add_argument("--engine", choices=ENGINES, action="append", help="may be repeated")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        job, engine, folder, rest = args.child
        {"save": save, "compile": compile_once}[job](engine, Path(folder), rest)
        return 0
    rows: list[Row] = []
    for engine in args.engine or ENGINES:
        with tempfile.TemporaryDirectory(prefix="relascope-bench-") as folder:
            run("save", engine, folder, "bert")
            rows += measure(engine, Path(folder), args.repeats)
    return common.finish(args, rows, _missed)


def run(*parts: str) -> str:
    """The output of this script at its end, in its own process."""
    command = [sys.executable, __file__, "--child", *parts]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.strip().rpartition("\n")[2]


def measure(engine: str, folder: Path, repeats: int) -> Iterator[Row]:
    """A row for each level; ratios are over the plain compile."""
    found: dict[str, list[Row]] = {level: [] for level in LEVELS}
    for _ in range(repeats):
        for level in LEVELS:
            found[level].append(json.loads(run("compile", engine, str(folder), level)))

    def median(level: str, *names: str) -> float:
        return statistics.median(sum(one[n] for n in names) for one in found[level])

    for level in LEVELS:
        yield {
            "engine": engine,
            "level": level,
            "cpu_s": median(level, "cpu"),
            "ratio": median(level, "cpu") / median("plain", "cpu"),
            "clock_s": median(level, "clock"),
            "by the clock": median(level, "clock") / median("plain", "clock"),
            "with machine code": median(level, "cpu", "code") / median("plain", "cpu", "code")
            if median("plain", "code")
            else None,
            "bytes": found[level][-1]["bytes"],
        }


def _missed(row: Row) -> list[str]:
    slow = row["ratio"] > MOST.get(row["level"], row["ratio"])
    missed = [f"{row['level']}: {row['ratio']:.2f} of the compile's time"] if slow else []
    return missed + [f"{row['level']}: {row['bytes']} bytes"] * (row["bytes"] > MOST_BYTES)


def save(engine: str, folder: Path, sample: str) -> None:
    """Write a sample's module, as it is imported, and the types of its parameters."""
    from pkgutil import resolve_name

    from relascope.engine.protocol.source import ModelSource
    from relascope.engine.registry import REGISTRY
    from relascope.passes.pipeline import Pipeline

    session = resolve_name(REGISTRY[engine].session)()
    program = session.program_after(ModelSource(sample), Pipeline())
    import tvm

    (folder / "module.json").write_text(str(tvm.ir.save_json(program.mod)))
    params = {k: [list(map(int, v.shape)), str(v.dtype)] for k, v in program.params.items()}
    (folder / "params.json").write_text(json.dumps(params))


def compile_once(engine: str, folder: Path, level: str) -> None:
    """Compile it, and print seconds and the recording's bytes."""
    if engine == "relay":
        from relascope.engine.relay.tvm.boot import boot

        boot()
    import tvm

    from relascope import recording

    mod = tvm.ir.load_json((folder / "module.json").read_text())
    build, ready = _relay(tvm, mod, folder) if engine == "relay" else _relax(tvm, mod)
    path = folder / "run.rsc"
    held = contextlib.nullcontext() if level == "plain" else recording(path, level)
    clock, cpu = time.perf_counter(), time.process_time()
    with held:
        built = build()
    found = {"clock": time.perf_counter() - clock, "cpu": time.process_time() - cpu}
    cpu = time.process_time()
    if ready is not None:
        ready(built)
    found["code"] = time.process_time() - cpu if ready is not None else 0.0
    found["bytes"] = path.stat().st_size if level != "plain" else 0
    print(json.dumps(found))


def _relay(tvm: Any, mod: Any, folder: Path) -> tuple[Any, Any]:
    import numpy as np
    from tvm import relay

    draw = np.random.default_rng(0)
    params = {}
    for name, (shape, dtype) in json.loads((folder / "params.json").read_text()).items():
        whole = np.arange(np.prod(shape)).reshape(shape)
        values = draw.standard_normal(shape) if dtype.startswith("float") else whole
        params[name] = tvm.nd.array(values.astype(dtype))

    def build() -> Any:
        with tvm.transform.PassContext(opt_level=3):
            return relay.build(mod, "llvm", params=params)

    return build, None


def _relax(tvm: Any, mod: Any) -> tuple[Any, Any]:
    from tvm import relax

    target = tvm.target.Target({"kind": "llvm"})

    def ready(built: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            built.export_library(f"{folder}/lib.tar")

    return lambda: relax.build(mod, target), ready


if __name__ == "__main__":
    raise SystemExit(main())
