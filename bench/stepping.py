"""What stepping through a pipeline costs beside the passes themselves, on BERT base.

Run `python bench/stepping.py` from the project's root, on a machine that does nothing else. Each
step's graph is drawn up and matched with the one before; the bar is that this takes at most twice
as long as the passes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import common

from relascope.engine.client import EngineClient
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import default_pipeline

MOST = 2.0


def main() -> int:
    """Measure, print, and return 0 where the bar is met."""
    args = common.options(__doc__, repeats=0).parse_args()
    rows = common.measured(args, map(ModelSource, args.samples or ("bert",)), _rows)
    return common.finish(
        args, rows, lambda row: [f"ratio {row['ratio']:.2f}"] if row["ratio"] > MOST else []
    )


def _rows(client: EngineClient, ir: str, source: ModelSource) -> Iterator[common.Row]:
    client.call("load", source)
    began = time.perf_counter()
    records = client.call("step", source, default_pipeline(ir, False))
    whole = time.perf_counter() - began
    own = sum(r.seconds for r in records)
    row = {"engine": ir, "sample": source.model, "passes": len(records), "passes_s": own}
    yield {**row, "added_s": whole - own, "ratio": (whole - own) / own, "most": MOST}


if __name__ == "__main__":
    raise SystemExit(main())
