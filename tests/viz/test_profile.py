"""A profile: a node's colour tells the share of the kernels that compute it, also as a trace: the
events that Chrome and Perfetto ask for, in order."""

import json
from itertools import pairwise

import pytest

from graphs import joint, random_graph, transformer
from relascope.engine.protocol.plain import plain
from relascope.engine.protocol.profile import Kernel, Profile
from relascope.viz.drawing import palette
from relascope.viz.drawing.drawing import Overlay
from relascope.viz.handed_on.chrome_trace import trace_json
from relascope.viz.rows.profile import heat


def kernel(name, share, *nodes):
    return Kernel(name, "forward", nodes, 1.0, share, 8, 8, ())


def profile(*kernels):
    return Profile("m", "llvm", 1, 1, kernels, (), (), 0.0)


def test_a_node_has_the_shares_of_its_kernels_and_what_is_no_number_is_beyond_limits():
    found = profile(kernel("a", 0.25, "x", "y"), kernel("b", 0.5, "y"), kernel("c", 0.25))
    assert heat(found) == {"x": 0.25, "y": 0.75}
    assert found.first_bad is None
    assert plain(found)["kernels"][0]["nodes"] == ["x", "y"]
    overlay = Overlay("error", "Error", {"a": float("nan"), "b": float("inf"), "c": 2.0, "d": "w"})
    told = overlay.data(["a", "b", "c", "d", "e"])["values"]
    assert told[0] == told[1] > 1e300
    assert told[2:] == [2.0, "w", None]


@pytest.mark.parametrize("theme", palette.STYLES)
def test_each_step_of_the_ramp_differs_in_lightness(theme):
    keys = [f"heat{step}" for step in range(1, 5)]
    fills = [luminance(palette.STYLES[theme][k].fill) for k in keys]
    assert fills == sorted(fills, reverse=theme == "light")
    assert all(abs(a - b) > 0.03 for a, b in pairwise(fills))


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    """WCAG 2's contrast ratio of two #rrggbb colours; text is readable from 4.5 on."""
    dark, light = sorted((luminance(a), luminance(b)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", palette.STYLES)
def test_every_colour_has_a_second_sign(theme):
    styles = palette.STYLES[theme]
    signs = {key: (s.side, s.mark, s.dash, s.thick) for key, s in styles.items()}
    roles = ("forward", "captured", "backward", "again", "need", "instead")
    changes = ("added", "removed", "changed", "forward")
    for together in (roles, changes):
        assert len({signs[key] for key in together}) == len(together)


def test_the_palette_has_a_style_for_every_node_and_readable_text():
    for theme, styles in palette.STYLES.items():
        for graph in (transformer(), joint(), random_graph(2)):
            assert {palette.style_key(n) for n in graph.nodes} <= set(styles)
        for style in styles.values():
            assert contrast(style.text, style.fill) >= 4.5, (theme, style)
            ground = palette.SURFACES[theme]["ground"]
            assert contrast(style.stroke, ground) >= 2.2, (theme, style)
    for category, ops in {
        "matmul": "nn.batch_matmul",
        "convolution": "nn.conv2d_transpose",
        "shape": "reshape concat index_tensor slice_scatter astype image.resize2d",
        "elementwise": "add maximum",
        "reduction": "max grad.max_pool2d_backward all any",
        "call": "my.own.op builtin.alloc_tensor",
    }.items():
        assert {palette.category(op) for op in ops.split()} == {category}


def timed(name, phase, ms):
    about = {"nodes": ["d0"], "operators": ["nn.dense"], "scope": "layers.0", "bad": False}
    sizes = {"share": 0.5, "bytes_in": 8, "bytes_out": 4}
    return {"name": name, "phase": phase, "median_ms": ms, **about, **sizes}


def phase(name, whole, kernels):
    times = {"median_ms": whole, "kernels_ms": kernels, "unexplained_ms": whole - kernels}
    return {"name": name, **times}


def test_a_trace_has_named_rows_of_kernels_one_after_another_in_microseconds():
    about = {"model": "mlp", "engine": "relax", "target": "llvm", "machine": "a machine"}
    kernels = ("one", "forward", 0.5), ("two", "forward", 0.25), ("three", "backward", 0.625)
    phases = [phase("forward", 1.0, 0.75), phase("backward", 0.5, 0.625)]
    times = {"threads": 2, "repeats": 5, "phases": phases, "kernels": [timed(*k) for k in kernels]}
    made = json.loads(trace_json(about | times))
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
