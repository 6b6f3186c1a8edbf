"""A profile as a trace that chrome://tracing and Perfetto open: kernels on a line of time.

The format is the "JSON Object Format" of the Trace Event Format: complete events ("X") with times
in microseconds, and metadata events that name the process and its rows.
"""

import json
from typing import Any

from relascope.viz.rows import Row

_PROCESS = 1
_WHOLE = 1  # the row of phases from end to end; rows of kernels follow
_ARGUMENTS = ("nodes", "operators", "scope", "share", "bytes_in", "bytes_out", "flops", "bad")


def trace_json(document: Row) -> str:
    """One run of the document of `profile MODEL`, made of medians: kernels one after another, as
    they ran. A phase has its length from end to end, unprofiled; time outside kernels is last."""
    head = f"{document.get('model', 'model')} ({document.get('engine', 'TVM')})"
    events = [
        _name("process_name", 0, f"{head}, {document['target']}"),
        _name("thread_name", _WHOLE, "from end to end"),
    ]
    began = 0.0
    for row, phase in enumerate(document["phases"], _WHOLE + 1):
        name, at = phase["name"], began
        events.append(_name("thread_name", row, name))
        for kernel in (k for k in document["kernels"] if k["phase"] == name):
            length = 1e3 * kernel["median_ms"]
            about = {key: kernel[key] for key in _ARGUMENTS if key in kernel}
            events.append(_event(kernel["name"], name, row, at, length, about))
            at += length
        left = 1e3 * phase["median_ms"] - (at - began)
        if left > 0:
            events.append(_event("not in kernels", name, row, at, left, {}))
        length = max(1e3 * phase["median_ms"], at - began)
        about = {k: phase[k] for k in ("median_ms", "kernels_ms", "unexplained_ms")}
        events.append(_event(name, "phase", _WHOLE, began, length, about))
        began += length
    trace = {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "machine": document["machine"],
            "threads": document["threads"],
            "times": f"each kernel's median of {document['repeats']} runs, one after another",
        },
    }
    return json.dumps(trace, ensure_ascii=False)


def _event(name: str, kind: str, row: int, at: float, length: float, about: Row) -> Row:
    when = {"ph": "X", "ts": at, "dur": length}
    return {"name": name, "cat": kind, **when, "pid": _PROCESS, "tid": row, "args": about}


def _name(what: str, row: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": _PROCESS, "tid": row, "args": {"name": name}}
