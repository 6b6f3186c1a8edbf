"""A profile as a trace: the events that Chrome and Perfetto ask for, in order."""

import json

import pytest

from relascope.viz.handed_on.chrome_trace import trace, trace_json


def kernel(name, phase, ms):
    about = {"nodes": ["d0"], "operators": ["nn.dense"], "scope": "layers.0", "bad": False}
    sizes = {"share": 0.5, "bytes_in": 8, "bytes_out": 4}
    return {"name": name, "phase": phase, "median_ms": ms, **about, **sizes}


def phase(name, whole, kernels):
    times = {"median_ms": whole, "kernels_ms": kernels, "unexplained_ms": whole - kernels}
    return {"name": name, **times}


@pytest.fixture
def document():
    about = {"model": "mlp", "engine": "relax", "target": "llvm", "machine": "a machine"}
    kernels = ("one", "forward", 0.5), ("two", "forward", 0.25), ("three", "backward", 0.625)
    return {
        **about,
        "threads": 2,
        "repeats": 5,
        "phases": [phase("forward", 1.0, 0.75), phase("backward", 0.5, 0.625)],
        "kernels": [kernel(*one) for one in kernels],
    }


def test_events_have_what_the_format_asks_for(document):
    made = json.loads(trace_json(document))
    assert set(made) == {"traceEvents", "displayTimeUnit", "otherData"}
    for event in made["traceEvents"]:
        assert event["ph"] in ("X", "M")
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        if event["ph"] == "X":
            assert isinstance(event["ts"], float) and event["dur"] > 0
    assert "median of 5 runs" in made["otherData"]["times"]


def test_rows_are_named(document):
    named = {
        (e["name"], e["tid"]): e["args"]["name"]
        for e in trace(document)["traceEvents"]
        if e["ph"] == "M"
    }
    assert named == {
        ("process_name", 0): "mlp (relax), llvm",
        ("thread_name", 1): "from end to end",
        ("thread_name", 2): "forward",
        ("thread_name", 3): "backward",
    }


def test_kernels_stand_one_after_another_in_microseconds(document):
    events = [e for e in trace(document)["traceEvents"] if e["ph"] == "X"]
    spans = {e["name"]: (e["tid"], e["ts"], e["dur"]) for e in events}
    assert spans == {
        "one": (2, 0, 500),
        "two": (2, 500, 250),
        "not in kernels": (2, 750, 250),
        "forward": (1, 0, 1000),
        "three": (3, 1000, 625),
        "backward": (1, 1000, 625),  # watching took longer than it takes unwatched
    }
    assert events[0]["args"]["operators"] == ["nn.dense"]
    assert events[0]["args"]["nodes"] == ["d0"]
