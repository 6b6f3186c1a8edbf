"""Measure what the journey on one BertLayer promises: errors, captures, speed, waiting times.

Run `python bench/journey.py` from the project's root, on a machine that does nothing else; add
`--page` for the page too (it needs Chromium and playwright).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import common
from accuracy import worst
from common import ROOT

from relascope.engine.client import EngineClient
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import ModelSource
from relascope.engine.protocol.times import TimeResult
from relascope.passes.catalogue import default_pipeline
from relascope.passes.cuts.cut import cut

Bar = Callable[[str, float, float | None, str], None]
LAYER = ModelSource("bert_layer", batch=1, tokens=14)


def main() -> None:
    parser = common.options(__doc__, samples=False)
    parser.add_argument("--page", action="store_true", help="measure the page in Chromium too")
    options = parser.parse_args()
    rows: list[dict[str, object]] = []

    def bar(what: str, value: float, limit: float | None, unit: str) -> None:
        held = None if limit is None else value <= limit
        rows.append({"what": what, "value": value, "limit": limit, "unit": unit, "held": held})
        words = "" if limit is None else f"at most {limit:g} " + ("held" if held else "MISSED")
        print(f"{what:<62} {value:>12.6g} {unit:<5} {words}", flush=True)

    with EngineClient("relay") as client:
        targets = client.call("describe").targets
        target = targets[0].name
        print(f"{targets[0].device}; {target}\n")
        errors(client, target, bar)
        speed(client, [t.name for t in targets if t.runs_here], options.repeats, bar)
    bar("graph bert on the command line, all in", command_line(), 20.0, "s")
    if options.page:
        from page import choose_to_drawn

        bar("page: bert_layer chosen to graph drawn, warm engine", choose_to_drawn(), 3.0, "s")
    common.write(options.output, {"machine": common.machine(), "bars": rows})
    sys.exit(any(r["held"] is False for r in rows))


def errors(client: EngineClient, target: str, bar: Bar) -> None:
    """Errors against PyTorch, and what "keep everything" captures."""
    found = client.call("check", BuildRequest(LAYER, default_pipeline("relay", False), target))
    bar("forward, float32: error over the output's scale", worst(found, "output").max_rel, 1e-5, "")
    pipeline = default_pipeline("relay", True)
    for dtype, limit in (("float32", 1e-4), ("float64", 1e-10)):
        source = replace(LAYER, training=True, dtype=dtype)
        joint = client.call("graph_after", source, pipeline, len(pipeline) - 1)
        kept = cut(joint, "keep_all")
        found = client.call("check", BuildRequest(source, pipeline, target).split_at(kept.ids))
        error = worst(found, "output").max_rel
        bar(f"training forward, {dtype}: error over the output's scale", error, 1e-5, "")
        errors = [c.max_abs for c in found if c.name.startswith("gradient")]
        bar(f"{len(errors)} gradients, {dtype}: largest absolute error", max(errors), limit, "")
        if dtype == "float32":
            bar("keep everything: captures", len(kept.captures), None, "")
            bar("keep everything: bytes of captures", kept.bytes or 0, None, "B")
            bar("keep everything: bytes of masks, apart", kept.mask_bytes or 0, None, "B")


def speed(client: EngineClient, targets: list[str], repeats: int, bar: Bar) -> None:
    """Time over eager's, on one thread and on all; only the inference forward has a bar."""
    pipeline = default_pipeline("relay", False)
    joint = default_pipeline("relay", True)
    source = replace(LAYER, training=True)
    kept = cut(client.call("graph_after", source, joint, len(joint) - 1)).ids
    for threads in (1, 0):
        for number, target in enumerate(targets):
            words = f"{threads or 'all'} thread{'s' if threads != 1 else ''}, {target}"
            timed = client.call("time", BuildRequest(LAYER, pipeline, target, threads, repeats))
            limit = 1.0 if number == 0 else None
            bar(f"forward over eager: {words}", ratio(timed, "forward"), limit, "x")
            request = BuildRequest(source, joint, target, threads, repeats).split_at(kept)
            timed = client.call("time", request)
            both = ratio(timed, "forward_backward")
            bar(f"forward+backward over eager: {words}", both, None, "x")


def ratio(timed: TimeResult, phase: str) -> float:
    """Our time over eager's."""
    return next(r.ratio_to_eager for r in timed.rows if r.phase == phase and r.ratio_to_eager)


def command_line() -> float:
    """Seconds from the command to the JSON of BERT's graph."""
    began = time.perf_counter()
    command = [sys.executable, "cli.py", "graph", "bert", "--engine", "relay", "--json"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    seconds = time.perf_counter() - began
    assert json.loads(done.stdout)["nodes"] > 1000
    return seconds


if __name__ == "__main__":
    main()
