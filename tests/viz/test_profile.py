"""A node's colour in the heat map tells the share of the kernels that compute it."""

from itertools import pairwise

import pytest

from graphs import joint, random_graph, transformer
from relascope.engine.protocol.plain import plain
from relascope.engine.protocol.profile import Kernel, Profile
from relascope.viz.drawing import palette
from relascope.viz.drawing.drawing import Overlay
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
    assert palette.category("nn.batch_matmul") == "matmul"
    assert palette.category("nn.conv2d_transpose") == "convolution"
    assert palette.category("reshape") == "shape"
    assert palette.category("add") == "elementwise"
    for op in ("concat", "index_tensor", "slice_scatter", "astype", "image.resize2d"):
        assert palette.category(op) == "shape"
    assert palette.category("max") == palette.category("grad.max_pool2d_backward") == "reduction"
    assert palette.category("maximum") == "elementwise"
    assert palette.category("all") == palette.category("any") == "reduction"
    assert palette.category("my.own.op") == palette.category("builtin.alloc_tensor") == "call"
