"""One file of HTML that shows graphs, steps, tables and charts: no server, no network, no eval.

The file contains the element `<relascope-graph>`, the viewer with a page of tabs around it, and
data in blocks: JSON, deflated, as base64, each read when first shown. Its Content-Security-Policy
allows no loading, and no script but this one, by its hash; names in models are text only.
"""

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from relascope.core.version import __version__
from relascope.core.visible import visible
from relascope.viz.drawing import javascript
from relascope.viz.drawing.palette import CATEGORIES
from relascope.viz.rows import packed, sections
from relascope.viz.rows.sections import Section as Section
from relascope.viz.rows.sections import figures as figures
from relascope.viz.rows.sections import sentence as sentence

VERSION = 2
"""The version of a page's data, which `load.js` reads."""


class Sheet:
    """Builds a file: title, facts on its source, caveats, tabs; `html` is its text."""

    def __init__(self, title: str, about: Mapping[str, Any], caveats: Iterable[str] = ()) -> None:
        self.title = title
        self.about = {k: str(v) for k, v in about.items() if v not in (None, "", ())}
        self.caveats = list(dict.fromkeys(caveats))
        self.tabs: list[dict[str, Any]] = []
        self.blocks: list[Any] = []

    def tab(self, key: str, title: str, sections: Iterable[Section]) -> "Sheet":
        """Add a tab, without empty tables, and return the file; links name the tab by `key`."""
        shown = [drawn(s) for s in sections if s["kind"] != "table" or s["rows"]]
        self.tabs.append({"key": key, "title": title, "sections": shown})
        return self

    def block(self, data: Any) -> int:
        """Add data that is read when it is shown; returns its number."""
        self.blocks.append(data)
        return len(self.blocks) - 1

    def data(self) -> dict[str, Any]:
        """The page's data as JSON values, which the element shows in any page."""
        index = {
            "title": self.title,
            "about": list(self.about.items()),
            "caveats": self.caveats,
            "tabs": self.tabs,
            "version": __version__,
        }
        pool, blocks = pooled([index, *self.blocks])
        names = "pool", "index", *map(str, range(len(self.blocks)))
        made = {n: packed(data, 9) for n, data in zip(names, (pool, *blocks), strict=True)}
        digest = hashlib.blake2b("".join(made.values()).encode(), digest_size=8).hexdigest()
        return {"relascope_page": VERSION, "digest": digest, "blocks": made}

    def html(self) -> str:
        return page(f"{self.title} · relascope", json.dumps(self.data()))


def page(title: str, data: str = "") -> str:
    """A page of HTML that shows its data; without, a file dropped on it or named by its address."""
    code = javascript.element()
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data: blob:; worker-src blob:; base-uri 'none'; form-action 'none'"
    )
    parts = {
        "POLICY": escape(policy if data else f"{policy}; connect-src 'self'"),
        "TITLE": escape(visible(title, keep="")),
        "DATA": f'<script type="application/x-relascope">{data}</script>' if data else "",
        "SCRIPT": code,
    }
    pieces = Path(__file__).with_name("page.html").read_text("utf-8").split("@@")
    pieces[1::2] = map(parts.__getitem__, pieces[1::2])
    return "".join(pieces).encode("utf-8", "replace").decode()  # without single surrogates


def drawn(section: Section) -> Section:
    """A section for the page's script: a table's cells as text, a chart as SVG."""
    if section["kind"] == "table":
        names, numbers, rows = sections.cells(section["rows"])
        return {**section, "columns": names, "numbers": numbers, "rows": rows}
    if section["kind"] == "chart":
        from relascope.viz.charts import charts  # Altair and pandas are slow to import

        svg = chart_svg(charts.drawn(section))
        return {"kind": "chart", "title": section["title"], "svg": svg, "note": section["note"]}
    return section


def graph(block: int, height: int = 620) -> Section:
    """A graph in the viewer, with its data in a `block`."""
    return {"kind": "graph", "block": block, "height": height}


_WIDTH = 700  # pixels, of charts that are as wide as their container
_WORDS = dict.fromkeys(("labelColor", "titleColor"), "currentColor")
_LINES = dict.fromkeys(("domainColor", "tickColor", "gridColor"), "var(--st-border-color)")
_FAINT = {"labelOpacity": 0.8, "titleOpacity": 0.8, "titleFontWeight": "normal"}
_CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": "Source Sans, sans-serif",
    "view": {"stroke": None},
    "axis": {**_WORDS, **_LINES, **_FAINT},
    "legend": {**_WORDS, "labelFontSize": 12, "columnPadding": 24},
    "text": {"color": "currentColor"},
    "range": {"category": list(CATEGORIES)},
}


def chart_svg(chart: Any) -> str:
    """An Altair chart as SVG text, without network."""
    import vl_convert

    spec: dict[str, Any] = chart.to_dict()
    if spec.get("width") == "container":
        spec["width"] = _WIDTH
    for layer in spec.get("layer", ()):  # one legend, by colour; marks have their own texts
        if isinstance(shape := layer.get("encoding", {}).get("shape"), dict):
            shape["legend"] = None
    spec["config"] = {**spec.get("config", {}), **_CONFIG}
    return vl_convert.vegalite_to_svg(spec, vl_version="6.1", allowed_base_urls=[])


SIGN = "\x01"  # in a block, before the number of a text of the pool
LONG = 24  # characters from which a text is pooled


def pooled(blocks: Sequence[Any]) -> tuple[list[str], list[Any]]:
    """The long texts that occur twice in JSON values, and the values with numbers in their place;
    control characters are made visible."""
    places: dict[str, str] = {}
    long: list[str] = []
    for text, count in Counter(text for block in blocks for text in _texts(block)).items():
        if count > 1 and len(text) >= LONG:
            places[text] = f"{SIGN}{len(long)}"
            long.append(visible(text))
    return long, [_replaced(block, places) for block in blocks]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)


def _replaced(value: Any, places: dict[str, str]) -> Any:
    if isinstance(value, str):
        return places.get(value) or visible(value)
    if isinstance(value, dict):
        keys = (visible(k) if isinstance(k, str) else k for k in value)
        return {k: _replaced(v, places) for k, v in zip(keys, value.values(), strict=True)}
    if isinstance(value, list | tuple):
        return [_replaced(v, places) for v in value]
    return value
