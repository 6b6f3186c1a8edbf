"""What stepping through a pipeline costs beside the passes themselves, on BERT base.

Run `python bench/stepping.py` from the project's root, on a machine that does nothing else. Each
step's graph is drawn up and matched with the one before; the bar is that this takes at most twice
as long as the passes.
"""

from __future__ import annotations

import time

import common

from relascope.engine.client import EngineClient
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import default_pipeline

MOST = 2.0


def main() -> int:
    """Measure, print, and return 0 where the bar is met."""
    args = common.options(__doc__, repeats=0).parse_args()
    rows = []
    for ir in args.engine or common.ENGINES:
        for sample in args.samples or ("bert",):
            source, pipeline = ModelSource(sample), default_pipeline(ir, False)
            with EngineClient(ir) as client:
                client.call("load", source)
                began = time.perf_counter()
                records = client.call("step", source, pipeline)
                whole = time.perf_counter() - began
            own = sum(r.seconds for r in records)
            row = {"engine": ir, "sample": sample, "passes": len(records), "passes_s": own}
            rows.append({**row, "added_s": whole - own, "ratio": (whole - own) / own, "most": MOST})
    common.table(rows)
    common.write(args.output, rows)
    late = [r for r in rows if r["ratio"] > MOST]
    return common.verdict([f"{r['engine']}, {r['sample']}: {r['ratio']:.2f}" for r in late])


if __name__ == "__main__":
    raise SystemExit(main())
