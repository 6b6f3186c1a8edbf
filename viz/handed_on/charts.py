"""The page's charts as SVG, whose colours are those of the page that they stand in."""

from typing import Any

from relascope.viz.drawing.palette import CATEGORIES

_WIDTH = 700  # pixels, of charts that are as wide as what they stand in
_CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": "Source Sans, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "currentColor",
        "titleColor": "currentColor",
        "domainColor": "var(--st-border-color)",
        "tickColor": "var(--st-border-color)",
        "gridColor": "var(--st-border-color)",
        "labelOpacity": 0.8,
        "titleFontWeight": "normal",
        "titleOpacity": 0.8,
    },
    "legend": {
        "labelColor": "currentColor",
        "titleColor": "currentColor",
        "labelFontSize": 12,
        "columnPadding": 24,
    },
    "text": {"color": "currentColor"},
    "range": {"category": list(CATEGORIES)},
}


def chart_svg(chart: Any) -> str:
    """An Altair chart as SVG text; nothing is loaded for it."""
    import vl_convert

    spec: dict[str, Any] = chart.to_dict()
    if spec.get("width") == "container":
        spec["width"] = _WIDTH
    for layer in spec.get("layer", ()):  # one legend, by colour; a mark's words say which it is
        if isinstance(shape := layer.get("encoding", {}).get("shape"), dict):
            shape["legend"] = None
    spec["config"] = {**spec.get("config", {}), **_CONFIG}
    return vl_convert.vegalite_to_svg(spec, vl_version="6.1", allowed_base_urls=[])
