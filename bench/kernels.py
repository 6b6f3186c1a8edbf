"""Print how far the kernels explain the time of compiled code, and how near the peak it runs.

For a machine that does nothing else. The bar: kernels that are mapped to nodes of the graph take
what the program takes from end to end, within 10 %; where they do not, the gap is shown, in kernels
of no node and outside kernels. Returns 1 where a sample fails.
"""

import functools
import json
import sys
from argparse import Namespace
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
    parser = common.options(__doc__, modes=True)
    parser.add_argument("--threads", type=int, default=1, metavar="N")
    parser.add_argument("--sizes", action="store_true", help="BERT's layer at (8, 128), too")
    parser.add_argument("--slowest", type=int, default=0, metavar="N", help="so many kernels, too")
    args = parser.parse_args()
    sources = [
        ModelSource(sample.name, training=training)
        for sample in SAMPLES.values()
        for training in common.modes(args)
        if sample.training or not training
    ]
    if args.sizes:
        sources += [ModelSource("bert_layer", 8, 128, training=t) for t in common.modes(args)]
    rows = common.measured(args, sources, functools.partial(_rows, args))
    print(json.dumps(common.machine(threads=args.threads)))
    bars = [r["bar"] for r in rows if "bar" in r]
    print(
        f"In {bars.count('met')} of {len(bars)} phases the mapped kernels are within "
        f"{EXPLAINED:.0%} of the time from end to end; of the others the gap is shown."
    )
    return common.finish(args, rows)


def _rows(args: Namespace, client: EngineClient, ir: str, source: ModelSource) -> Iterator[Row]:
    """One row a phase; in training, "forward" is that of the split program."""
    words = (args.target or [""])[0]
    asked = common.request(client, ir, source, args.threads, args.repeats, words)
    found = client.call("profile", asked)
    built = last_built(ir, asked.pipeline)
    document = profile_document(found, client.call("graph_after", source, asked.pipeline, built))
    print(f"{ir}. {peaks_text(document['peaks'])}", file=sys.stderr)
    about = {"engine": ir, "sample": source.model, "batch": source.batch}
    for phase in document["phases"]:
        mine = [k for k in document["kernels"] if k["phase"] == phase["name"]]
        yield {
            **about,
            "mode": "training" if source.training else "inference",
            "phase": phase["name"],
            "kernels": len(mine),
            "mapped": sum(bool(k["nodes"]) for k in mine),
            **{name: phase[key] for name, key in _COLUMNS.items()},
            "bar": "met" if phase["explained"] else "gap shown",
        }
    slowest = sorted(document["kernels"], key=lambda k: -k["median_ms"])[: args.slowest]
    for one in slowest:
        yield {
            **about,
            "kernel": one["name"],
            "kernel_ms": one["median_ms"],
            "share": one["share"],
            "kernel_of_peak": one["of_peak"],
        }


if __name__ == "__main__":
    raise SystemExit(main())
