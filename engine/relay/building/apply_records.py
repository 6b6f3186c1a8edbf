"""AutoTVM's records on disk, and a build that takes the best of them."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from relascope.engine.building.options import BuildOptions
from relascope.engine.protocol import records
from relascope.engine.protocol.target_text import library
from relascope.engine.relay.building.targets import LIBRARIES
from relascope.engine.relay.building.templates import constant_weights

# The targets have loaded the TVM that has Relay.
import tvm  # isort: skip
from tvm import autotvm  # isort: skip

RECORDED = "autotvm.json"
"""In a task's folder, TVM's own records, one a line."""

ABOUT = "operator.json"
"""Beside them, which builds they are for."""


def best_record(place: Path) -> str | None:
    """The line of AutoTVM's with the least time in a task's folder; None without one."""
    try:
        lines = (place / RECORDED).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return None
    best: tuple[float, str] | None = None
    for line in lines:
        try:
            costs, error, *_ = json.loads(line)["result"]
        except (ValueError, KeyError):  # cut short by a kill; `records.append` mends it
            continue
        if not error and (best is None or costs[0] < best[0]):
            best = costs[0], line
    return None if best is None else best[1]


def applied(function: Any, options: BuildOptions) -> AbstractContextManager[Any]:
    """While this lasts, TVM builds kernels with the best record where that is the fastest known.

    Args:
        function: that is to be built.
    """
    given = options.with_records("relay", str(tvm.__version__)).records
    if given is None:
        return autotvm.apply_history_best([])
    book, fixed = records.read(given.place), constant_weights(function)
    best = []
    for folder in sorted(p.parent for p in given.place.glob(f"*/{ABOUT}")):
        about = json.loads((folder / ABOUT).read_text())
        fits = about["library"] == bool(library(options.target, LIBRARIES)) and (
            fixed or not about["constants"]
        )
        line = best_record(folder)
        if fits and line is not None and (given.always or book.takes(folder.name)):
            best.append(autotvm.record.decode(line))
    return autotvm.apply_history_best(best)
