"""Tuning records in TVM's own form, read and chosen from."""

import base64
from pathlib import Path
from typing import Any

import tvm_ffi
from tvm.s_tir import meta_schedule as ms

from relascope.core.errors import EngineError
from relascope.engine.files.tvm_json import check_relax_json
from relascope.engine.protocol import records
from relascope.engine.protocol.records import SCHEDULES, WORKLOAD


def recorded_workload(place: Path, mod: Any) -> Any:
    """TVM's workload of a task: the kernel that its records are of, or this one where it has none.

    Both compute the same, but records name steps of a kernel, which may have other names in another
    program.

    Raises:
        EngineError: kind "file"; what is kept there is another kernel.
    """
    for shash, packed in records.checked(place / WORKLOAD):
        # Eight bytes of its length stand before the text.
        text = base64.b64decode(packed)[8:].decode(errors="replace")
        checked = check_relax_json(text, WORKLOAD, kernels=True).encode()
        packed = base64.b64encode(len(checked).to_bytes(8, "little") + checked).decode()
        found = ms.database.Workload.from_json([shash, packed])
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
    for _, record in records.checked(place / SCHEDULES):
        for _, _, attributes, _ in record[0][0]:
            for text in attributes:  # maps of indices are TVM's JSON in a text
                if isinstance(text, str) and "{" in text:
                    check_relax_json(text, SCHEDULES, kernels=True)
        found.append(ms.database.TuningRecord.from_json(record, workload))
    return found


def best(place: Path, mod: Any) -> Any | None:
    """TVM's record of a kernel's fastest schedule; None where there is none.

    Raises:
        EngineError: as of `kept`.
    """
    found = stored(place, recorded_workload(place, mod))
    return min(found, key=lambda r: min(float(s) for s in r.run_secs), default=None)
