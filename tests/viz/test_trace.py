"""A profile as a trace: the events that Chrome and Perfetto ask for, in order."""

import json

from relascope.viz.handed_on.chrome_trace import trace_json


def kernel(name, phase, ms):
    about = {"nodes": ["d0"], "operators": ["nn.dense"], "scope": "layers.0", "bad": False}
    sizes = {"share": 0.5, "bytes_in": 8, "bytes_out": 4}
    return {"name": name, "phase": phase, "median_ms": ms, **about, **sizes}


def phase(name, whole, kernels):
    times = {"median_ms": whole, "kernels_ms": kernels, "unexplained_ms": whole - kernels}
    return {"name": name, **times}


def test_a_trace_has_named_rows_of_kernels_one_after_another_in_microseconds():
    about = {"model": "mlp", "engine": "relax", "target": "llvm", "machine": "a machine"}
    kernels = ("one", "forward", 0.5), ("two", "forward", 0.25), ("three", "backward", 0.625)
    document = {
        **about,
        "threads": 2,
        "repeats": 5,
        "phases": [phase("forward", 1.0, 0.75), phase("backward", 0.5, 0.625)],
        "kernels": [kernel(*one) for one in kernels],
    }
    made = json.loads(trace_json(document))
    assert set(made) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert "median of 5 runs" in made["otherData"]["times"]
    for event in made["traceEvents"]:
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
    rows, events = ([e for e in made["traceEvents"] if e["ph"] == sort] for sort in "MX")
    assert len(rows) + len(events) == len(made["traceEvents"])
    assert {(e["name"], e["tid"]): e["args"]["name"] for e in rows} == {
        ("process_name", 0): "mlp (relax), llvm",
        ("thread_name", 1): "from end to end",
        ("thread_name", 2): "forward",
        ("thread_name", 3): "backward",
    }
    assert all(isinstance(e["ts"], float) for e in events)
    assert {e["name"]: (e["tid"], e["ts"], e["dur"]) for e in events} == {
        "one": (2, 0, 500),
        "two": (2, 500, 250),
        "not in kernels": (2, 750, 250),
        "forward": (1, 0, 1000),
        "three": (3, 1000, 625),
        "backward": (1, 1000, 625),  # watching took longer than it takes unwatched
    }
    assert events[0]["args"]["operators"] == ["nn.dense"]
    assert events[0]["args"]["nodes"] == ["d0"]
