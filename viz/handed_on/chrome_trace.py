"""A profile as a trace that chrome://tracing and Perfetto open: kernels on a line of time.

The format is the "JSON Object Format" of the Trace Event Format: complete events ("X") with times
in microseconds, and metadata events that name the process and its rows.
"""

import json
from collections.abc import Sequence
from typing import Any

from relascope.viz.rows import Row

_PROCESS = 1
_WHOLE = 1  # the row of phases from end to end; rows of kernels follow
_ARGUMENTS = ("nodes", "operators", "scope", "share", "bytes_in", "bytes_out", "flops", "bad")


def trace(document: Row) -> Row:
    """One run of a profile, made of its medians.

    Kernels stand one after another in the order in which they ran. A phase is as long as it is from
    end to end when nobody watches; what its kernels do not explain stands behind the last of them.

    Args:
        document: what `profile MODEL` prints.
    """
    head = f"{document.get('model', 'model')} ({document.get('engine', 'TVM')})"
    events = [
        _name("process_name", 0, f"{head}, {document['target']}"),
        _name("thread_name", _WHOLE, "from end to end"),
    ]
    began = 0.0
    for row, phase in enumerate(document["phases"], _WHOLE + 1):
        name = phase["name"]
        kernels = [k for k in document["kernels"] if k["phase"] == name]
        events.append(_name("thread_name", row, name))
        told, at = _kernels(kernels, row, began)
        events += told
        left = 1e3 * phase["median_ms"] - (at - began)
        if left > 0:
            events.append(_event("not in kernels", name, row, at, left, {}))
        length = max(1e3 * phase["median_ms"], at - began)
        about = {k: phase[k] for k in ("median_ms", "kernels_ms", "unexplained_ms")}
        events.append(_event(name, "phase", _WHOLE, began, length, about))
        began += length
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "machine": document["machine"],
            "threads": document["threads"],
            "times": f"each kernel's median of {document['repeats']} runs, one after another",
        },
    }


def trace_json(document: Row) -> str:
    """The same as text."""
    return json.dumps(trace(document), ensure_ascii=False)


def _kernels(kernels: Sequence[Row], row: int, began: float) -> tuple[list[Row], float]:
    """The events of a phase's kernels, and when the last of them ends."""
    events, at = [], began
    for kernel in kernels:
        length = 1e3 * kernel["median_ms"]
        about = {name: kernel[name] for name in _ARGUMENTS if name in kernel}
        events.append(_event(kernel["name"], kernel["phase"], row, at, length, about))
        at += length
    return events, at


def _event(name: str, kind: str, row: int, at: float, length: float, about: Row) -> Row:
    return {
        "name": name,
        "cat": kind,
        "ph": "X",
        "ts": at,
        "dur": length,
        "pid": _PROCESS,
        "tid": row,
        "args": about,
    }


def _name(what: str, row: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": _PROCESS, "tid": row, "args": {"name": name}}
