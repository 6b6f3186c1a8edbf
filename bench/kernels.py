"""Print how far the kernels explain the time of compiled code, and how near the peak it runs.

Run `python bench/kernels.py` from the project's root on a machine that does nothing else; name
samples to have only those, add `--engine` for one engine, `--training` or `--inference` for one
mode, `--threads N` (one unless given), `--repeats N`, `-o FILE` for the figures as JSON. The bar:
kernels that are mapped to nodes of the graph take what the program takes from end to end, within
10 %; where they do not, the gap is shown, in kernels of no node and outside kernels. Returns 1
where a sample fails, and 0 where the bar is met or the gap is shown.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from relascope.core.errors import EngineError
from relascope.engine.client import EngineClient
from relascope.engine.jobs.cut import with_cut
from relascope.engine.protocol.profile import Profile
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import ModelSource
from relascope.engine.registry import ENGINES
from relascope.passes.catalogue import default_pipeline, last_built
from relascope.samples import SAMPLES
from relascope.viz.rows.formats import text_table
from relascope.viz.rows.profile import EXPLAINED, peaks_text, profile_document

Row = dict[str, Any]


def main() -> int:
    """Measure, print, and return 0 where nothing failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("samples", nargs="*", choices=[[], *SAMPLES], metavar="SAMPLE")
    parser.add_argument("--engine", choices=ENGINES, action="append")
    parser.add_argument("--training", action="store_true", help="that alone")
    parser.add_argument("--inference", action="store_true", help="that alone")
    parser.add_argument("--threads", type=int, default=1, metavar="N")
    parser.add_argument("--repeats", type=int, default=30, metavar="N")
    parser.add_argument("-o", dest="output", type=Path, metavar="FILE")
    args = parser.parse_args()
    modes = [
        t
        for t in (False, True)
        if (args.training, args.inference)[not t] or not (args.training or args.inference)
    ]
    rows: list[Row] = []
    peaks: dict[str, Row] = {}
    for ir in args.engine or ENGINES:
        with EngineClient(ir) as client:
            for name in args.samples or SAMPLES:
                for training in modes:
                    if training and not SAMPLES[name].training:
                        continue
                    try:
                        document = _document(client, ir, name, training, args)
                    except EngineError as error:
                        print(f"{ir}, {name}: {error.message}", file=sys.stderr)
                        rows.append({"engine": ir, "sample": name, "bar": "failed"})
                        continue
                    rows += _rows(ir, name, document)
                    peaks[ir] = document["peaks"]
                    print(text_table(rows[-1:], list(rows[-1])).splitlines()[-1], file=sys.stderr)
    machine = _machine(args.threads)
    print(json.dumps(machine))
    for ir, found in peaks.items():
        print(f"{ir}. {peaks_text(found)}")
    print(text_table(rows, list(dict.fromkeys(c for row in rows for c in row))))
    if args.output:
        document = {"machine": machine, "peaks": peaks, "rows": rows}
        args.output.write_text(json.dumps(document, indent=1), encoding="utf-8")
    failed = sum(r["bar"] == "failed" for r in rows)
    met = sum(r["bar"] == "met" for r in rows)
    print(
        f"In {met} of {len(rows) - failed} phases the mapped kernels are within {EXPLAINED:.0%} of "
        f"the time from end to end; of the others the gap is shown. {failed} failed."
    )
    return 1 if failed else 0


def _document(
    client: EngineClient, ir: str, name: str, training: bool, args: argparse.Namespace
) -> Row:
    source = ModelSource(name, training=training)
    pipeline = default_pipeline(ir, training)
    target = client.call("describe").targets[0].name
    request = BuildRequest(source, pipeline, target, args.threads, args.repeats)
    found: Profile = client.call("profile", with_cut(client.call, request))
    graph = client.call("graph_after", source, pipeline, last_built(ir, pipeline))
    return profile_document(found, graph)


def _rows(ir: str, name: str, document: Row) -> list[Row]:
    """One row a phase; in training, "forward" is that of the split program."""
    mode = "training" if len(document["phases"]) > 1 else "inference"
    return [
        {
            "engine": ir,
            "sample": name,
            "mode": mode,
            "phase": p["name"],
            "kernels": sum(k["phase"] == p["name"] for k in document["kernels"]),
            "end_to_end_ms": p["median_ms"],
            "kernels_ms": p["kernels_ms"],
            "mapped_ms": p["mapped_ms"],
            "unmapped_ms": p["unmapped_ms"],
            "outside_ms": p["unexplained_ms"],
            "ratio": p["mapped_share"],
            "of_peak": p["of_peak"],
            "unknown_ms": p["unknown_ms"],
            "bar": "met" if p["explained"] else "gap shown",
        }
        for p in document["phases"]
    ]


def _machine(threads: int) -> Row:
    names = ("torch", "apache-tvm", "bitblas")
    return {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "threads": threads,
        **{name: version(name) for name in names},
    }


if __name__ == "__main__":
    raise SystemExit(main())
