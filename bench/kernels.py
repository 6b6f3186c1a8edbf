"""Print how far the kernels explain the time of compiled code, and how near the peak it runs.

Run `python bench/kernels.py` from the project's root on a machine that does nothing else; name
samples to have only those, add `--engine` for one engine, `--training` or `--inference` for one
mode, `--threads N` (one unless given). The bar: kernels that are mapped to nodes of the graph take
what the program takes from end to end, within 10 %; where they do not, the gap is shown, in kernels
of no node and outside kernels. Returns 1 where a sample fails.
"""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Iterator

import common
from common import SAMPLES, Row

from relascope.engine.client import EngineClient
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import last_built
from relascope.viz.rows.profile import EXPLAINED, peaks_text, profile_document

_COLUMNS = {
    "end_to_end_ms": "median_ms",
    "kernels_ms": "kernels_ms",
    "mapped_ms": "mapped_ms",
    "unmapped_ms": "unmapped_ms",
    "outside_ms": "unexplained_ms",
    "ratio": "mapped_share",
    "of_peak": "of_peak",
    "unknown_ms": "unknown_ms",
}
"""Of a phase, by the name in the table that in the document."""


def main() -> int:
    """Measure, print, and return 0 where nothing failed."""
    parser = common.options(__doc__)
    parser.add_argument("--training", action="store_true", help="that alone")
    parser.add_argument("--inference", action="store_true", help="that alone")
    parser.add_argument("--threads", type=int, default=1, metavar="N")
    args = parser.parse_args()
    modes = [m for m in (False, True) if args.training == args.inference or m == args.training]
    sources = [
        ModelSource(sample.name, training=training)
        for sample in SAMPLES.values()
        for training in modes
        if sample.training or not training
    ]
    peaks: dict[str, Row] = {}
    rows = common.measured(args, sources, functools.partial(_rows, args, peaks))
    machine = common.machine(threads=args.threads)
    print(json.dumps(machine))
    for ir, found in peaks.items():
        print(f"{ir}. {peaks_text(found)}")
    common.table(rows)
    common.write(args.output, {"machine": machine, "peaks": peaks, "rows": rows})
    failed, met = sum("missed" in r for r in rows), sum(r.get("bar") == "met" for r in rows)
    print(
        f"In {met} of {len(rows) - failed} phases the mapped kernels are within {EXPLAINED:.0%} of "
        f"the time from end to end; of the others the gap is shown. {failed} failed."
    )
    return 1 if failed else 0


def _rows(
    args: argparse.Namespace,
    peaks: dict[str, Row],
    client: EngineClient,
    ir: str,
    source: ModelSource,
) -> Iterator[Row]:
    """One row a phase; in training, "forward" is that of the split program."""
    asked = common.request(client, ir, source, args.threads, args.repeats)
    found = client.call("profile", asked)
    built = last_built(ir, asked.pipeline)
    document = profile_document(found, client.call("graph_after", source, asked.pipeline, built))
    peaks[ir] = document["peaks"]
    for phase in document["phases"]:
        yield {
            "engine": ir,
            "sample": source.model,
            "mode": "training" if source.training else "inference",
            "phase": phase["name"],
            "kernels": sum(k["phase"] == phase["name"] for k in document["kernels"]),
            **{name: phase[key] for name, key in _COLUMNS.items()},
            "bar": "met" if phase["explained"] else "gap shown",
        }


if __name__ == "__main__":
    raise SystemExit(main())
