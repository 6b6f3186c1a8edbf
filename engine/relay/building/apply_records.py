"""AutoTVM's records on disk, and a build that takes the best of them."""

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import tvm
from tvm import autotvm

from relascope.engine.building.options import BuildOptions
from relascope.engine.protocol import records
from relascope.engine.protocol.records import AUTOTVM, OPERATOR
from relascope.engine.protocol.target_text import library
from relascope.engine.relay.building.targets import LIBRARIES
from relascope.engine.relay.building.templates import constant_weights


def best_record(place: Path) -> str | None:
    """The fastest of AutoTVM's record lines in a task's folder; None without any. Raises
    EngineError as `records.checked` does."""
    found = [r for r in records.checked(place / AUTOTVM) if r["result"][0] and not r["result"][1]]
    best = min(found, key=lambda r: r["result"][0][0], default=None)
    return None if best is None else json.dumps(best)


def applied(function: Any, options: BuildOptions) -> AbstractContextManager[Any]:
    """A context in which TVM builds a kernel with its best record if that is the fastest known."""
    given = options.with_records("relay", str(tvm.__version__)).records
    if given is None:
        return autotvm.apply_history_best([])
    book, fixed = records.read(given.place), constant_weights(function)
    best = []
    for folder in sorted(p.parent for p in given.place.glob(f"*/{OPERATOR}")):
        about = next(records.checked(folder / OPERATOR), None)
        if about is None:  # it was not finished
            continue
        fits = about["library"] == bool(library(options.target, LIBRARIES)) and (
            fixed or not about["constants"]
        )
        line = best_record(folder)
        if fits and line is not None and (given.always or book.takes(folder.name)):
            best.append(autotvm.record.decode(line))
    return autotvm.apply_history_best(best)
