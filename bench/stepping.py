"""What stepping through a pipeline costs beside the passes themselves, on BERT base.

Run `python bench/stepping.py` from the project's root, on a machine that does nothing else. Each
step's graph is drawn up and matched with the one before; the bar is that this takes at most twice
as long as the passes.
"""

from __future__ import annotations

import sys
import time

from relascope.engine.client import EngineClient
from relascope.engine.protocol.results import StepRecord
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import default_pipeline

MOST = 2.0


def stepping(ir: str, model: str = "bert") -> tuple[float, tuple[StepRecord, ...]]:
    """Seconds of the whole call, with the model loaded before, and what each step did."""
    source, pipeline = ModelSource(model), default_pipeline(ir, False)
    with EngineClient(ir) as client:
        client.call("load", source)
        began = time.perf_counter()
        records = client.call("step", source, pipeline)
        return time.perf_counter() - began, records


def main() -> None:
    missed = False
    for ir in ("relay", "relax"):
        whole, records = stepping(ir)
        own = sum(r.seconds for r in records)
        more = (whole - own) / own
        missed |= more > MOST
        print(
            f"{ir}: {len(records)} passes take {own:.2f} s; stepping adds {whole - own:.2f} s, "
            f"{more:.2f} times that (at most {MOST:g})"
        )
    sys.exit(missed)


if __name__ == "__main__":
    main()
