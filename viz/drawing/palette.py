"""Colours and shapes of nodes and edges: the one place that knows them.

The canvas viewer receives this table as data and the DOT export reads it, so both always agree.
Hues follow Okabe and Ito's set for colour-blind readers (Color Universal Design, 2008), darkened or
lightened for each theme; forward, captured and backward also differ in lightness, and the states
of a comparison also differ in line style, so that no meaning hangs on hue alone.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Literal as OneOf

from relascope.core.graph import Kind, Node, Role
from relascope.core.operators import category

Theme = OneOf["light", "dark"]


@dataclass(frozen=True, slots=True)
class Style:
    """How one sort of node looks: CSS colours, and whether its outline is dashed."""

    label: str
    fill: str
    stroke: str
    text: str
    dashed: bool = False


SHAPES: dict[Kind, str] = {
    Kind.INPUT: "ellipse",
    Kind.PARAMETER: "pill",
    Kind.CONSTANT: "octagon",
    Kind.CALL: "box",
    Kind.TUPLE: "box",
    Kind.ITEM: "pill",
    Kind.FUNCTION: "double",
    Kind.LET: "box",
}

DOT_SHAPES: dict[str, dict[str, str]] = {
    "ellipse": {"shape": "ellipse", "style": "filled"},
    "pill": {"shape": "box", "style": "rounded,filled"},
    "octagon": {"shape": "octagon", "style": "filled"},
    "box": {"shape": "box", "style": "rounded,filled"},
    "double": {"shape": "box", "style": "rounded,filled", "peripheries": "2"},
}


_LIGHT = {
    "input": Style("input", "#fff4d6", "#c48a00", "#3d2f00"),
    "parameter": Style("parameter", "#f1ecf7", "#8a6bb0", "#33264a"),
    "constant": Style("constant", "#f3f4f6", "#8b95a3", "#2b3440"),
    "matmul": Style("matrix product", "#e3edfb", "#2f6fc0", "#12243d"),
    "convolution": Style("convolution", "#e0f0f7", "#1f86a8", "#0f2a35"),
    "normalisation": Style("normalisation", "#e4f4ee", "#11856a", "#0d2e26"),
    "reduction": Style("reduction", "#f0f3dc", "#7c8a12", "#2a2f07"),
    "activation": Style("pointwise function", "#fdeade", "#c7632a", "#3f1e0b"),
    "shape": Style("shape and data movement", "#f4f5f7", "#a0a8b4", "#39424e"),
    "elementwise": Style("arithmetic", "#ffffff", "#7f8b9a", "#1f2933"),
    "call": Style("call", "#ffffff", "#5c6775", "#1f2933"),
    "tuple": Style("tuple", "#ffffff", "#a0a8b4", "#39424e"),
    "item": Style("item", "#ffffff", "#a0a8b4", "#39424e"),
    "function": Style("fused function", "#f7e9f3", "#b0558f", "#3e1731"),
    "let": Style("let", "#ffffff", "#a0a8b4", "#39424e"),
    "forward": Style("forward", "#fbdfdb", "#c4382a", "#3f0f0a"),
    "captured": Style("captured by the forward", "#cfe4fb", "#0b62b5", "#06213f"),
    "backward": Style("backward", "#eceef1", "#6b7684", "#232b35"),
    "again": Style("computed again in the backward", "#fbdfdb", "#c4382a", "#3f0f0a", dashed=True),
    "need": Style("needs the chosen in the backward", "#cdeee8", "#0f766e", "#06302c"),
    "instead": Style("computed where the chosen is not saved", "#fde3c3", "#b45309", "#3f1d02"),
    "added": Style("added", "#d9f2e6", "#00875a", "#053322"),
    "removed": Style("removed", "#f6f6f6", "#9a3412", "#6b7280", dashed=True),
    "changed": Style("changed", "#fdf0cf", "#c98500", "#3d2900"),
    "hazard": Style("could be faster", "#fdf0cf", "#c98500", "#3d2900"),
    "aligned": Style("chosen and its counterpart", "#0b62b5", "#06386b", "#ffffff"),
    "heat0": Style("no kernel of its own", "#f4f5f7", "#a0a8b4", "#39424e"),
    "heat1": Style("under 1 % of the time", "#fffbe3", "#b5a25c", "#3a3208"),
    "heat2": Style("1 to 5 %", "#fde49a", "#b08d1e", "#3a2c00"),
    "heat3": Style("5 to 20 %", "#f3a33c", "#9a5a08", "#331c00"),
    "heat4": Style("over 20 % of the time", "#99390d", "#571d04", "#ffffff"),
}
_DARK = {
    "input": Style("input", "#3d3212", "#e0ab2e", "#fdf3d3"),
    "parameter": Style("parameter", "#322a40", "#a98ad0", "#efe7fa"),
    "constant": Style("constant", "#2a2f37", "#8b95a3", "#e1e5ea"),
    "matmul": Style("matrix product", "#1d3250", "#5b9bea", "#e4effd"),
    "convolution": Style("convolution", "#173642", "#43aed2", "#def3fa"),
    "normalisation": Style("normalisation", "#16372e", "#35b594", "#dcf5ed"),
    "reduction": Style("reduction", "#33370f", "#b1c032", "#f3f6d8"),
    "activation": Style("pointwise function", "#432716", "#ea8a52", "#fdebdf"),
    "shape": Style("shape and data movement", "#262b33", "#707b8a", "#c9d0d9"),
    "elementwise": Style("arithmetic", "#1f242c", "#8793a3", "#e6eaef"),
    "call": Style("call", "#1f242c", "#a3adba", "#e6eaef"),
    "tuple": Style("tuple", "#1f242c", "#707b8a", "#c9d0d9"),
    "item": Style("item", "#1f242c", "#707b8a", "#c9d0d9"),
    "function": Style("fused function", "#3f2136", "#d77fb8", "#fae6f3"),
    "let": Style("let", "#1f242c", "#707b8a", "#c9d0d9"),
    "forward": Style("forward", "#4d1d19", "#f0695b", "#fde3e0"),
    "captured": Style("captured by the forward", "#123a66", "#56a8ff", "#e0efff"),
    "backward": Style("backward", "#2c323b", "#98a3b1", "#e1e5ea"),
    "again": Style("computed again in the backward", "#4d1d19", "#f0695b", "#fde3e0", dashed=True),
    "need": Style("needs the chosen in the backward", "#0d3d38", "#34c3b0", "#d8f7f2"),
    "instead": Style("computed where the chosen is not saved", "#4a2c0a", "#f0a04b", "#fdebd3"),
    "added": Style("added", "#103a2a", "#35c78f", "#d9f7ea"),
    "removed": Style("removed", "#22262c", "#e08a5f", "#9aa4b2", dashed=True),
    "changed": Style("changed", "#42330c", "#f0b429", "#fdf1cd"),
    "hazard": Style("could be faster", "#42330c", "#f0b429", "#fdf1cd"),
    "aligned": Style("chosen and its counterpart", "#7dbcff", "#d5eaff", "#061a30"),
    "heat0": Style("no kernel of its own", "#262b33", "#707b8a", "#c9d0d9"),
    "heat1": Style("under 1 % of the time", "#2f2a16", "#8a7c45", "#e9e2c4"),
    "heat2": Style("1 to 5 %", "#5a4708", "#b59422", "#fdf0c4"),
    "heat3": Style("5 to 20 %", "#a85f0a", "#f0a546", "#ffffff"),
    "heat4": Style("over 20 % of the time", "#ffd98a", "#fff3d6", "#3a1b00"),
}

ERRORS = ("error1", "error2", "error3", "error4")
"""Styles of nodes by their error over its limit, the smallest first; "error0" is not compared."""
_ERROR_LABELS = (
    "not compared: no counterpart",
    "error under a tenth of the limit",
    "within the limit",
    "up to 100 times the limit",
    "beyond, or no number",
)
for _styles in (_LIGHT, _DARK):  # the colours of the other sequential scale, under other words
    for _step, _label in enumerate(_ERROR_LABELS):
        _styles[f"error{_step}"] = replace(_styles[f"heat{_step}"], label=_label)
STYLES: dict[Theme, dict[str, Style]] = {"light": _LIGHT, "dark": _DARK}

# What is no node: the ground, groups, edges, and the marks of selection and search.
SURFACES: dict[Theme, dict[str, str]] = {
    "light": {
        "ground": "#ffffff",
        "dot": "#e3e7ec",
        "group": "#33415509",
        "groupStroke": "#cdd4dc",
        "groupText": "#48525f",
        "closed": "#e9edf2",
        "closedStroke": "#9aa5b3",
        "closedText": "#1f2933",
        "edge": "#98a3b1",
        "crossing": "#0b62b5",
        "edgeText": "#5c6775",
        "select": "#0f172a",
        "incoming": "#b45309",
        "outgoing": "#0f766e",
        "match": "#f5b400",
    },
    "dark": {
        "ground": "#0e1117",
        "dot": "#222834",
        "group": "#a9bbd010",
        "groupStroke": "#434c59",
        "groupText": "#aab4c2",
        "closed": "#262e3a",
        "closedStroke": "#5f6c7d",
        "closedText": "#e6eaef",
        "edge": "#5f6b7b",
        "crossing": "#56a8ff",
        "edgeText": "#9aa5b3",
        "select": "#f8fafc",
        "incoming": "#f0a04b",
        "outgoing": "#34c3b0",
        "match": "#ffd23f",
    },
}


def between(key: str) -> str:
    """A colour for charts, which have one for both themes: between an entry's two outlines."""
    pairs = [
        (STYLES["light"][key].stroke[i : i + 2], STYLES["dark"][key].stroke[i : i + 2])
        for i in (1, 3, 5)
    ]
    return "#" + "".join(f"{(int(a, 16) + int(b, 16)) // 2:02x}" for a, b in pairs)


def style_key(node: Node) -> str:
    """Which entry of STYLES a node takes: its role if it has one, else its kind or category.

    Inputs and parameters keep their own colours in a joint graph too, unless they are captured:
    that they stand in the forward says nothing about them.
    """
    leaf = node.kind in (Kind.INPUT, Kind.PARAMETER, Kind.CONSTANT)
    if node.role is Role.CAPTURED or (node.role is not Role.NONE and not leaf):
        return node.role.value
    return category(node.op) if node.kind is Kind.CALL else node.kind.value


def heat(share: float | None) -> str:
    """Which entry of STYLES shows a share of the time (0 to 1); None where there is no figure.

    Each step differs from the next in lightness, whatever colours an eye can tell apart.
    """
    if share is None:
        return "heat0"
    return f"heat{1 + sum(share > limit for limit in (0.01, 0.05, 0.2))}"


def error(ratio: float | None) -> str:
    """Which entry of STYLES shows an error over its limit; None where nothing was compared."""
    if ratio is None:
        return "error0"
    return ERRORS[sum(not ratio <= limit for limit in (0.1, 1.0, 100.0))]


@cache
def table() -> dict[str, dict[str, object]]:
    """Everything a drawing program needs, as JSON values, by theme."""
    return {
        theme: {
            "styles": {key: asdict(style) for key, style in STYLES[theme].items()},
            "surfaces": SURFACES[theme],
        }
        for theme in STYLES
    }
