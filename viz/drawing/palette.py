"""Colours and shapes of nodes and edges, for the viewer and the DOT export.

Hues follow Okabe and Ito's set for colour-blind readers (Color Universal Design, 2008), darkened or
lightened for each theme. No meaning depends on hue alone: each style also has a bar at the left,
the right or both sides, a mark in the corner, or dashes; scales use lightness.
"""

from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any
from typing import Literal as OneOf

from relascope.core.graph import Kind, Node, Role
from relascope.core.operators import category

Theme = OneOf["light", "dark"]


@dataclass(frozen=True, slots=True)
class Style:
    """The look of one sort of node: CSS colours, and signs that work without colour."""

    label: str
    fill: str
    stroke: str
    text: str
    side: str = "left"  # of its bar, or "right" or "both"
    mark: str = ""  # in its corner
    dash: tuple[int, ...] = ()  # lengths of dashes and gaps of its outline; () for a line
    thick: bool = False  # its outline


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

# Each style: the mark in its corner ("." for none), fill, outline and text on light, the same on
# dark, and its name in the legend.
_STYLES = """
input       . #fff4d6 #c48a00 #3d2f00 #3d3212 #e0ab2e #fdf3d3 input
parameter   . #f1ecf7 #8a6bb0 #33264a #322a40 #a98ad0 #efe7fa parameter
constant    . #f3f4f6 #8b95a3 #2b3440 #2a2f37 #8b95a3 #e1e5ea constant
matmul      × #e3edfb #2f6fc0 #12243d #1d3250 #5b9bea #e4effd matrix product
convolution ∗ #e0f0f7 #1f86a8 #0f2a35 #173642 #43aed2 #def3fa convolution
normalisation σ #e4f4ee #11856a #0d2e26 #16372e #35b594 #dcf5ed normalisation
reduction   Σ #f0f3dc #7c8a12 #2a2f07 #33370f #b1c032 #f3f6d8 reduction
activation  ƒ #fdeade #c7632a #3f1e0b #432716 #ea8a52 #fdebdf pointwise function
shape       ↔ #f4f5f7 #a0a8b4 #39424e #262b33 #707b8a #c9d0d9 shape and data movement
elementwise . #ffffff #7f8b9a #1f2933 #1f242c #8793a3 #e6eaef arithmetic
call        . #ffffff #5c6775 #1f2933 #1f242c #a3adba #e6eaef call
tuple       . #ffffff #a0a8b4 #39424e #1f242c #707b8a #c9d0d9 tuple
item        . #ffffff #a0a8b4 #39424e #1f242c #707b8a #c9d0d9 item
function    . #f7e9f3 #b0558f #3e1731 #3f2136 #d77fb8 #fae6f3 fused function
let         . #ffffff #a0a8b4 #39424e #1f242c #707b8a #c9d0d9 let
forward     . #f9d3cd #b92d20 #3f0f0a #561c17 #f0695b #fde3e0 forward
captured    . #cfe4fb #0b62b5 #06213f #123a66 #56a8ff #e0efff captured by the forward
backward    . #eceef1 #6b7684 #232b35 #2c323b #98a3b1 #e1e5ea backward
again       ↻ #f9d3cd #b92d20 #3f0f0a #561c17 #f0695b #fde3e0 computed again in the backward
need        ← #cdeee8 #0f766e #06302c #0d3d38 #34c3b0 #d8f7f2 needs the chosen in the backward
instead     ↺ #fde3c3 #b45309 #3f1d02 #4a2c0a #f0a04b #fdebd3 computed where the chosen is not saved
added       + #d9f2e6 #00875a #053322 #103a2a #35c78f #d9f7ea added
removed     − #f6f6f6 #9a3412 #626976 #22262c #e08a5f #9aa4b2 removed
changed     ~ #fdf0cf #c98500 #3d2900 #42330c #f0b429 #fdf1cd changed
hazard      ! #fdf0cf #c98500 #3d2900 #42330c #f0b429 #fdf1cd could be faster
aligned     . #0b62b5 #06386b #ffffff #7dbcff #d5eaff #061a30 chosen and its counterpart
heat0       . #f4f5f7 #a0a8b4 #39424e #262b33 #707b8a #c9d0d9 step 0 of a scale
heat1       . #fffbe3 #b5a25c #3a3208 #2f2a16 #8a7c45 #e9e2c4 step 1 of a scale
heat2       . #fde49a #b08d1e #3a2c00 #5a4708 #b59422 #fdf0c4 step 2 of a scale
heat3       . #f3a33c #9a5a08 #331c00 #a85f0a #f0a546 #ffffff step 3 of a scale
heat4       . #99390d #571d04 #ffffff #ffd98a #fff3d6 #3a1b00 step 4 of a scale
"""
# Styles whose colours the words of an overlay take in turn: "sort0" and on.
_WORDS = "matmul activation normalisation function input parameter convolution reduction"
_SIGNS: dict[str, dict[str, Any]] = {
    "captured": {"side": "both", "thick": True},
    "aligned": {"side": "both", "thick": True},
    "backward": {"side": "right"},
    "need": {"side": "right", "dash": (2, 2)},
    "instead": {"dash": (2, 2)},
    "again": {"dash": (5, 3)},
    "removed": {"dash": (5, 3)},
}
"""Signs besides the marks."""


def _styles(colours: slice) -> dict[str, Style]:
    styles = {}
    for line in _STYLES.strip().splitlines():
        name, mark, *six, label = line.split(maxsplit=8)
        fill, outline, text = six[colours]
        about = {"mark": mark.strip("."), **_SIGNS.get(name, {})}
        styles[name] = Style(label, fill, outline, text, **about)
    words = [replace(styles[name], label="a word", mark="") for name in _WORDS.split()]
    return styles | {f"sort{k}": style for k, style in enumerate(words)}


STYLES: dict[Theme, dict[str, Style]] = {"light": _styles(slice(3)), "dark": _styles(slice(3, 6))}

# The ground, groups, edges, and the marks of selection and search.
_SURFACES = {
    "ground": ("#ffffff", "#0e1117"),
    "group": ("#33415509", "#a9bbd010"),
    "groupStroke": ("#cdd4dc", "#434c59"),
    "groupText": ("#48525f", "#aab4c2"),
    "closed": ("#e9edf2", "#262e3a"),
    "closedStroke": ("#9aa5b3", "#5f6c7d"),
    "closedText": ("#1f2933", "#e6eaef"),
    "edge": ("#98a3b1", "#5f6b7b"),
    "crossing": ("#0b62b5", "#56a8ff"),
    "edgeText": ("#5c6775", "#9aa5b3"),
    "select": ("#0f172a", "#f8fafc"),
    "incoming": ("#b45309", "#f0a04b"),
    "outgoing": ("#0f766e", "#34c3b0"),
    "match": ("#f5b400", "#ffd23f"),
}
SURFACES: dict[Theme, dict[str, str]] = {
    theme: {name: pair[which] for name, pair in _SURFACES.items()}
    for which, theme in enumerate(STYLES)
}

# A page's colours by Streamlit's names, as in its theme in .streamlit/config.toml.
_PAGE = """
background-color #ffffff #0e1117
secondary-background-color #f4f6f8 #1a202a
text-color #1b2430 #e6eaef
gray-text-color #59626d #a9b2bd
border-color #d8dee6 #343d4a
primary-color #0b62b5 #56a8ff
blue-color #0b62b5 #56a8ff
red-color #c4382a #f0695b
red-text-color #c4382a #f0695b
red-background-color #fbe9e7 #3d1c1a
green-color #00875a #35c78f
green-text-color #00875a #35c78f
orange-color #b45309 #f0a04b
orange-text-color #b45309 #f0a04b
warning-color #fdf3dc #33280f
comment-color #5f6773 #9aa5b3
string-color #00734c #35c78f
sure-color #11a37f #11a37f
part-color #d99100 #d99100
none-color #d9483b #d9483b
"""
PAGE: dict[Theme, dict[str, str]] = {
    theme: {n: pair[which] for n, *pair in map(str.split, _PAGE.strip().splitlines())}
    for which, theme in enumerate(STYLES)
}

# Colours of charts, readable on light and dark, because Altair takes one set for both.
CAPTURED, CHOSEN, QUIET, FAULT = "#2f7fd6", "#d97706", "#7d8896", "#d9483b"
BASELINE = "#8a6bb0"  # PyTorch's
POINTS = (QUIET, CAPTURED, "#c8453b", "#0f8f6f", "#c79a1b")  # large points, one per strategy
LINES = (CAPTURED, CHOSEN, "#11a37f", "#c2497f", "#8a6bb0", "#a08c22", "#2e9fb3", "#d9483b")
"""Lines, one per kernel."""
CATEGORIES = ("#8592a2", "#2f86d6", "#d95b4c", "#1da87f", "#d99a1c", "#9a7bc0")
"""Charts in a file, whose theme the reader chooses."""

_BARS = {"forward": "▌{}", "backward": "{} ▐", "captured": "▌{} ▐"}


def signed(key: str, text: str) -> str:
    """Text with a style's sign in letters: `▌forward`, `+ added`."""
    mark = STYLES["light"][key].mark
    return _BARS.get(key, f"{mark} {{}}" if mark else "{}").format(text)


def between(key: str) -> str:
    """A chart's colour for both themes: between a style's two outlines."""
    light, dark = (bytes.fromhex(STYLES[theme][key].stroke[1:]) for theme in STYLES)
    return "#" + bytes((a + b) // 2 for a, b in zip(light, dark, strict=True)).hex()


def page_css(of: str = ":root") -> str:
    """CSS that sets colours as variables of a root `of`, by the reader's theme or `data-theme`."""

    def rule(theme: Theme, where: str = "") -> str:
        colours = (f"--st-{name}: {value}" for name, value in PAGE[theme].items())
        where = f"({where})" if where and of == ":host" else where
        return f"{of}{where} {{" + "; ".join([f"color-scheme: {theme}", *colours]) + "}"

    dark, chosen = rule("dark", ':not([data-theme="light"])'), rule("dark", '[data-theme="dark"]')
    return f"{rule('light')}\n@media (prefers-color-scheme: dark) {{{dark}}}\n{chosen}\n"


def style_key(node: Node) -> str:
    """A node's entry of STYLES: its role if it has one, else its kind or category. Inputs and
    parameters keep their own colours in a joint graph, unless they are captured."""
    leaf = node.kind in (Kind.INPUT, Kind.PARAMETER, Kind.CONSTANT)
    if node.role is Role.CAPTURED or (node.role is not Role.NONE and not leaf):
        return node.role.value
    return sort_key(node)


def sort_key(node: Node) -> str:
    """A node's entry of STYLES without its role: a call's category, or the node's kind."""
    return category(node.op) if node.kind is Kind.CALL else node.kind.value


@cache
def table() -> dict[str, dict[str, object]]:
    """All styles and colours as JSON values, by theme."""
    styles = {theme: {key: asdict(one) for key, one in STYLES[theme].items()} for theme in STYLES}
    return {t: {"styles": of, "surfaces": SURFACES[t]} for t, of in styles.items()}
