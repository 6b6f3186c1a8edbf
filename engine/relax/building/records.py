"""Tuning records in TVM's own form, read and chosen from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tvm_ffi
from tvm.s_tir import meta_schedule as ms

from relascope.core.errors import EngineError

WORKLOAD, RECORD = "database_workload.json", "database_tuning_record.json"
"""The files of TVM's `JSONDatabase`."""


def kept(place: Path, mod: Any) -> Any:
    """TVM's workload of a task: the kernel that its records are of, or this one where it has none.

    Both compute the same, but records name steps of a kernel, which may have other names in another
    program.

    Raises:
        EngineError: kind "file"; what is kept there is another kernel.
    """
    for line in lines_in(place / WORKLOAD):
        try:
            found = ms.database.Workload.from_json(json.loads(line))
        except ValueError:  # a line that was not finished
            continue
        if not tvm_ffi.structural_equal(found.mod, mod):
            hint = "Take this folder away, and tune the kernel anew."
            raise EngineError("file", "The records of a kernel are another's.", str(place), hint)
        return found
    return ms.database.Workload(mod)


def stored(place: Path, workload: Any) -> list[Any]:
    """TVM's records of a task; a line that was not finished is left out.

    Args:
        workload: as `kept` gives it.
    """
    found = []
    for line in lines_in(place / RECORD):
        try:
            _, record = json.loads(line)
        except ValueError:
            continue
        found.append(ms.database.TuningRecord.from_json(record, workload))
    return found


def best(place: Path, mod: Any) -> Any | None:
    """TVM's record of a kernel's fastest schedule; None where there is none.

    Raises:
        EngineError: as of `kept`.
    """
    found = stored(place, kept(place, mod))
    return min(found, key=lambda r: min(float(s) for s in r.run_secs), default=None)


def lines_in(path: Path) -> list[str]:
    """The lines of a file; none where it is not there."""
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
