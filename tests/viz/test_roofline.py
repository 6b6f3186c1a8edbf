"""Kernels under the machine's roofs: the arithmetic, the rows, the sentences and the chart."""

import json

import pytest

from answers import refused
from graphs import graph_of
from relascope.engine.protocol.profile import Kernel, Output, Peaks, Phase, Profile
from relascope.passes.cost import Read, known_flops, reads, storages
from relascope.viz.charts.roofline import roofline
from relascope.viz.drawing import palette
from relascope.viz.rows import profile as profiles

MIB = 2**20
BANDWIDTH = ((MIB, 1e11), (16 * MIB, 5e10), (64 * MIB, 1e10))
PEAKS = Peaks("m", 1, (("float32", 1e11), ("float64", 5e10)), BANDWIDTH)


def output(dtype="float32"):
    return Output((4,), dtype, 0.0, 1.0, 0.5, 0, 0)


def kernel(ms=1.0, flops=1e6, read=1000, wrote=1000, phase="forward", nodes=("a",), **fields):
    dtype = fields.pop("dtype", "float32")
    return Kernel("k", phase, nodes, ms, 0.1, read, wrote, (output(dtype),), flops, **fields)


def test_a_rate_is_that_of_the_next_larger_working_set():
    rates = {1: 1e11, MIB: 1e11, MIB + 1: 5e10, 64 * MIB: 1e10, 2**40: 1e10}
    assert {size: PEAKS.rate(size) for size in rates} == rates
    assert (PEAKS.memory, PEAKS.cache) == (1e10, 1e11)
    assert PEAKS.peak("float64") == 5e10
    assert PEAKS.peak("float16") is None


def test_what_bounds_a_kernel_is_what_takes_longest_and_weights_come_from_afar():
    half = {"flops": 10, "read": MIB // 2, "wrote": MIB // 2}
    small = kernel(**half, weights=MIB // 2)
    for one, weights, name, least_ms in (
        (kernel(flops=1e9), 0, "compute", 10.0),
        (kernel(flops=1e9, dtype="float64"), 0, "compute", 20.0),
        (kernel(**half), 0, "cache", 1e3 * MIB / 1e11),
        (kernel(flops=10, read=64 * MIB, wrote=MIB), 0, "memory", 1e3 * 65 * MIB / 1e10),
        (small, 2 * MIB, "cache", 1e3 * (MIB / 2 / 5e10 + MIB / 2 / 1e11)),
        (small, 2**30, "memory", 1e3 * (MIB / 2 / 1e10 + MIB / 2 / 1e11)),
    ):
        roof = one.roof(PEAKS, weights)
        assert (roof.name, roof.least_ms) == (name, pytest.approx(least_ms))


def test_what_is_not_known_is_no_number_and_what_is_left_of_a_table_not_moved():
    unknown = kernel(flops=None)
    assert unknown.roof(PEAKS, 0) is unknown.flops_per_second is unknown.intensity is None
    assert kernel(dtype="float16").roof(PEAKS, 0) is None
    copy = kernel(flops=0.0, dtype="float16")
    assert copy.roof(PEAKS, 0).name == "cache"
    assert copy.flops_per_second == 0.0
    taken = kernel(read=1_000_000, unread=999_000, wrote=1000)
    assert taken.moved == 2000
    assert taken.bytes_per_second == pytest.approx(2e6)


def profile(*kernels, peaks=PEAKS, whole=2.0):
    taken = sum(k.median_ms for k in kernels)
    unmapped = sum(k.median_ms for k in kernels if not k.nodes)
    phase = Phase("forward", whole, taken, unmapped, 10, 10)
    return Profile("m", "llvm", 1, 3, kernels, (phase,), (), 0.0, (), peaks, 0)


def graph():
    return graph_of("x :8x16; w! :32x16; a nn.dense x w; f frobnicate a", of="8x32")


def test_a_phase_has_its_share_of_peak_and_what_is_not_explained():
    found = profile(kernel(flops=5e7), kernel(0.2, flops=None), kernel(0.3, flops=1e7, nodes=()))
    document = profiles.profile_document(found, graph())
    (phase,) = document["phases"]
    expected = {"mapped_ms": 1.2, "mapped_share": 0.6, "unexplained_ms": 0.5, "least_ms": 0.6}
    expected |= {"of_peak": 0.3, "unknown_ms": 0.2, "explained": False}
    assert {name: phase[name] for name in expected} == pytest.approx(expected)
    (said,) = profiles.phase_texts(document)
    for words in (
        "explain 60.0% of it (1.200 ms)",
        "15.0% (0.300 ms) are in kernels of no node",
        "25.0% (0.500 ms) are not in kernels",
        "runs at 30% of peak",
        "which take 0.200 ms",
    ):
        assert words in said
    first = document["kernels"][0]
    assert (first["roof"], first["sort"]) == ("compute", "matmul")
    assert first["of_peak"] == pytest.approx(0.5)
    assert document["kernels"][1]["of_peak"] is None
    assert profiles.share_text(None) == "unknown"
    json.dumps(document)


def test_the_bar_is_ten_percent_either_way_and_watching_that_costs_more_is_said():
    for taken, explains in {0.85: False, 0.91: True, 1.09: True, 1.15: False}.items():
        document = profiles.profile_document(profile(kernel(taken), whole=1.0), graph())
        assert document["phases"][0]["explained"] is explains
    assert "15.0% (0.150 ms) more than the whole" in profiles.phase_texts(document)[0]


def test_kernels_above_the_roof_tell_that_the_peaks_are_wrong():
    quick = profiles.profile_document(profile(kernel(0.1, flops=1e8)), graph())
    assert any("busy when those were measured" in n for n in quick["notes"])
    right = profiles.profile_document(profile(kernel(1.0, flops=1e8)), graph())
    assert right["notes"] == []
    assert [sort for _, _, *sort in profiles.peak_texts(quick)] == [["unsure"]]
    assert "%" not in profiles.peak_texts(quick)[0][0]
    assert "% of peak" in profiles.peak_texts(right)[0][0]
    assert "of peak" not in profiles.phase_texts(quick)[0]
    assert "% of peak" in profiles.phase_texts(right)[0]


def test_without_peaks_there_is_no_share_and_no_chart():
    document = profiles.profile_document(profile(kernel(), peaks=None), graph())
    assert document["phases"][0]["of_peak"] is None
    assert "of peak" not in profiles.phase_texts(document)[0]
    assert roofline(document) is None
    assert "not measured" in profiles.peaks_text(None)


def test_the_chart_has_a_dot_a_kernel_that_computes_and_the_roofs():
    found = profile(kernel(flops=5e7), kernel(0.2, flops=None), kernel(0.3, flops=0.0))
    document = profiles.profile_document(found, graph())
    spec = roofline(document).to_dict()
    dots = [rows for rows in spec["datasets"].values() if "kernel" in rows[0]]
    assert [[d["index"] for d in rows] for rows in dots] == [[0]]
    assert dots[0][0]["of peak"] == "50 %"
    (lines,) = (rows for rows in spec["datasets"].values() if "memory" in rows[0])
    assert {r["roof"] for r in lines} == {"cache", "memory", "float32"}
    for line in (line for line in lines if line["roof"] != "float32"):
        rate = getattr(PEAKS, line["roof"])
        assert line["rate"] == pytest.approx(line["intensity"] * rate)
        assert line["rate"] <= 1e11 * 1.0001
    assert spec["layer"][-1]["mark"]["type"] == "point"
    ringed = roofline(document, 0).to_dict()
    assert len(ringed["layer"]) == len(spec["layer"]) + 1


def test_a_colour_of_charts_lies_between_the_themes():
    for key in palette.STYLES["light"]:
        ends = (styles[key].stroke for styles in palette.STYLES.values())
        colours = next(ends), palette.between(key), *ends
        first, mixed, last = (bytes.fromhex(c[1:]) for c in colours)
        assert all(min(a, b) <= m <= max(a, b) for a, m, b in zip(first, mixed, last, strict=True))


def test_what_a_kernel_computes_and_reads_as_far_as_it_is_known():
    g = graph()
    assert known_flops(g, "a") == 2 * 8 * 32 * 16
    assert known_flops(g, "f") is None
    assert known_flops(graph_of("x; s add x x", of="nx4"), "s") is None
    g = graph_of(
        "table! :1000x8; w! :4x8; where :2/int32; rows take table where :2x8; view reshape w :8x4;"
        " product matmul rows view :2x4 -> product table"
    )
    assert reads(g, ["rows"], storages(g)) == Read(weights=64, unread=32_000 - 64)
    assert reads(g, ["product"], storages(g)) == Read(weights=128, unread=0)
    of_all = Read(weights=192, unread=32_000 - 64)
    assert reads(g, ["rows", "view", "product"], storages(g)) == of_all


def convolved(*kernels):
    text = "x; w! :4x4x1x1; first nn.conv2d x w; second nn.conv2d first w; total add second x"
    graph = graph_of(text, of="1x4x8x8")
    about = 1.0, 0.5, 8, 8, (output(),)
    made = [Kernel(n, "forward", tuple(nodes), *about, flops) for n, nodes, flops in kernels]
    phases = (Phase("forward", 2.0, 2.0, 0.0),)
    found = Profile("m", "llvm", 1, 1, tuple(made), phases, (), 0.0, peaks=PEAKS)
    return profiles.profile_document(found, graph)


def test_each_convolution_is_told_of_with_its_part_of_the_peak():
    document = convolved(("conv2d_1", ["first"], 2048.0), ("conv2d_add", ["total"], 256.0))
    one, two = document["kernels"]
    assert one["shapes"] == "1×4×8×8, 4×4×1×1 → 1×4×8×8"
    assert one["of_flops"] == pytest.approx(2048.0 / 1e-3 / 1e11)
    # The build changed the second one's weights: its kernel is known to compute the addition.
    assert two["operators"] == ["nn.conv2d", "add"] and two["flops"] > 2048.0
    document |= {"operator": "conv2d", "chosen": profiles.computing(document, "conv2d")}
    assert document["chosen"] == [0, 1]
    assert profiles.chosen_text(document).startswith("2 kernels compute conv2d: ")
    assert "of what the machine does at best" in profiles.chosen_text(document)
    slow = {**document, "peaks": {**document["peaks"], "flops": [["float32", 1e3]]}}
    assert "at best" not in profiles.chosen_text(slow)  # which they have beaten
    assert profiles.computing(document, "nn.conv2d") == [0, 1]
    assert profiles.computing(document, "add") == [1]


def test_kernels_are_not_said_to_compute_what_cannot_be_told():
    document = convolved(("conv2d_add", ["total"], 256.0))  # of which of the two it is
    assert document["kernels"][0]["operators"] == ["add"]
    with refused(match="No kernel of this program computes conv2d", hint="add"):
        profiles.computing(document, "conv2d")
