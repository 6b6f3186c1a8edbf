"""A graph as SVG: the viewer's picture, with text as text, modules as frames, and a legend.

What the painter of the viewer does on its canvas (`viz/component/viewer/painter.js`), from the same
layout and the same palette.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from typing import Any

from relascope.core.visible import visible
from relascope.viz.drawing import labels, palette
from relascope.viz.rows.formats import size

FONT = "'Source Sans 3', 'Source Sans Pro', 'Source Sans', Helvetica, Arial, sans-serif"
_TITLE, _SUBTITLE, _HEADER = 13.0, 11.0, 30.0
_CROSSING = 2
_EDGES = {0: ("edge", 1.3, 1.0), 1: ("edge", 1.0, 0.3), _CROSSING: ("crossing", 1.1, 0.55)}
_LINE, _MARGIN = 22.0, 24.0  # of the legend


def svg(data: dict[str, Any], drawn: dict[str, Any], theme: palette.Theme, shapes: bool) -> str:
    """The picture as SVG text.

    Args:
        data: what the viewer is given (`viz.handed_on.graphs.drawing`).
        drawn: where everything stands, in the lists of `viewer/layout/layout.js`.
        theme: whose colours.
        shapes: whether edges carry the types of their values.
    """
    return "\n".join(_SvgWriter(data, drawn, theme).lines(shapes)) + "\n"


class _SvgWriter:
    def __init__(self, data: dict[str, Any], drawn: dict[str, Any], theme: palette.Theme) -> None:
        self.data, self.drawn = data, drawn
        self.box, self.edge, self.node = drawn["box"], drawn["edge"], data["node"]
        self.styles, self.surfaces = palette.STYLES[theme], palette.SURFACES[theme]
        self.down = data["direction"] == "TB"
        self.captures, self.halves = self._captures()

    def lines(self, shapes: bool) -> Iterator[str]:
        legend = list(self._legend_rows())
        wide = max(self.drawn["width"], 320.0)
        high = self.drawn["height"] + (_LINE * len(legend) + _MARGIN if legend else 0.0)
        name = _text(self.data["name"])
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_n(wide)}" height="{_n(high)}" '
            f'viewBox="0 0 {_n(wide)} {_n(high)}" role="img" aria-label="Graph {name}" '
            f'font-family="{FONT}">'
        )
        yield f"<title>{name}</title>"
        yield f'<rect width="100%" height="100%" fill="{self.surfaces["ground"]}"/>'
        count = len(self.box["id"])
        opened = [i for i in range(count) if self.box["open"][i]]
        solid = [i for i in range(count) if not self.box["open"][i]]
        yield '<g class="modules">'
        for i in opened:
            fill = _paint("fill", self.surfaces["group"])
            stroke = _paint("stroke", self.surfaces["groupStroke"])
            yield f'<rect {self._place(i)} rx="10" {fill} {stroke}/>'
        yield '</g><g class="edges">'
        for e in sorted(range(len(self.edge["s"])), key=lambda e: -self.edge["kind"][e] % 3):
            yield self._edge(e)
        yield '</g><g class="nodes">'
        for i in solid:
            yield from self._solid(i)
        yield '</g><g class="names">'
        for i in opened:
            yield self._header(i)
        yield "</g>"
        if shapes:
            yield from self._types()
        for number, row in enumerate(legend):
            yield from self._legend(row, self.drawn["height"] + _LINE * number)
        yield "</svg>"

    def _captures(self) -> tuple[dict[str, tuple[int, int]], dict[str, str]]:
        """By group: how many tensors are captured in it and their bytes; and its half, where all
        that has a role in it is of one."""
        captures: dict[str, tuple[int, int]] = {}
        halves: dict[str, str] = {}
        rows = zip(*(self.node[k] for k in ("role", "bytes", "group")), strict=True)
        for role, held, group in rows:
            half = "forward" if role == "captured" else role
            while half and group:
                halves[group] = half if halves.get(group, half) == half else ""
                if role == "captured":
                    count, sum_of = captures.get(group, (0, 0))
                    captures[group] = count + 1, sum_of + (held or 0)
                group = self.data["groups"][group]["parent"]
        return captures, halves

    # Boxes.

    def _place(self, i: int, grow: float = 0.0) -> str:
        x, y, w, h = (self.box[k][i] for k in "xywh")
        return (
            f'x="{_n(x - grow)}" y="{_n(y - grow)}" width="{_n(w + 2 * grow)}" '
            f'height="{_n(h + 2 * grow)}"'
        )

    def _style(self, i: int) -> palette.Style:
        node = self.box["node"][i]
        key = self.node["style"][node] if node >= 0 else self._group(i)["style"]
        known = self.styles.get(key)
        if known is not None:
            return known
        closed = (self.surfaces[k] for k in ("closed", "closedStroke", "closedText"))
        fill, stroke, text = closed
        if key == "group":
            return palette.Style("", fill, stroke, text)
        parts = [int(key[at : at + 2], 16) for at in (1, 3, 5)] if _COLOUR.fullmatch(key) else [255]
        bright = sum(a * b for a, b in zip((0.299, 0.587, 0.114), parts, strict=False)) > 128
        return palette.Style("", key, stroke, self.surfaces["onBright" if bright else "onDark"])

    def _group(self, i: int) -> dict[str, Any]:
        found: dict[str, Any] = self.data["groups"][self.box["group"][i]]
        return found

    def _solid(self, i: int) -> Iterator[str]:
        style, node = self._style(i), self.box["node"][i]
        x, y, w, h = (self.box[k][i] for k in "xywh")
        shape = self.data["shapes"][self.node["kind"][node]] if node >= 0 else "group"
        group = self.box["group"][i] if shape == "group" else ""
        captured = self.styles["captured"].stroke if group in self.captures else ""
        width = 2.6 if style.thick or captured else 1.2
        look = f"{_paint('fill', style.fill)} {_paint('stroke', captured or style.stroke)}"
        look += f' stroke-width="{width:g}"{_dashed(style)}'
        yield f"<g><title>{_text(self._told(i))}</title>"
        yield f"<{_outline(shape, x, y, w, h)} {look}/>"
        line = f'fill="none" {_paint("stroke", style.stroke)}'
        if shape == "group":
            below = y + h
            yield (
                f'<path d="M{_n(x + 6)} {_n(below + 3)}H{_n(x + w - 6)}M{_n(x + 12)} '
                f'{_n(below + 6)}H{_n(x + w - 12)}" {line}/>'
            )
            yield self._sign(x + 10, y + h / 2, style.text, plus=True)
        elif shape == "double":
            yield f'<rect {self._place(i, -3)} rx="4" {line}/>'
        role = self.node["role"][node] if node >= 0 else self.halves.get(group, "")
        if shape == "box" or (role and shape == "group"):
            bars = self.styles[role] if role else style
            yield from _bars(bars, captured, x, y, w, h)
        yield from self._words(i, shape, style.text)
        if style.mark and shape != "ellipse":
            inner = x + w - (5 if style.side == "left" else 8)
            yield (
                f'<text x="{_n(inner)}" y="{_n(y + 12)}" font-size="9.5" font-weight="700" '
                f'text-anchor="end" {_paint("fill", style.text)}>{style.mark}</text>'
            )
        if group in self.captures:
            yield self._saved(group, x + w - 6, y + h)
        yield "</g>"

    def _saved(self, group: str, right: float, middle: float) -> str:
        """On a group: how many tensors are captured in it, and their bytes."""
        count, held = self.captures[group]
        said = f"{count} saved · {size(held)}"
        wide = labels.text_width(said, 10, True) + 12
        return (
            f'<rect x="{_n(right - wide)}" y="{_n(middle - 8)}" width="{_n(wide)}" height="16" '
            f'rx="8" {_paint("fill", self.styles["captured"].stroke)}/>'
            f'<text x="{_n(right - wide + 6)}" y="{_n(middle + 3.5)}" font-size="10" '
            f'font-weight="600" fill="{self.surfaces["ground"]}">{said}</text>'
        )

    def _told(self, i: int) -> str:
        node = self.box["node"][i]
        if node < 0:
            group = self._group(i)
            return f"{group['path']}: {group['nodes']} nodes"
        strings = self.data["strings"]
        types = ", ".join(strings[t] for t in self.node["types"][node])
        told = (types, strings[self.node["scope"][node]], self.node["note"][node])
        return "\n".join(filter(None, (self.node["full"][node], *told)))

    def _words(self, i: int, shape: str, colour: str) -> Iterator[str]:
        x, y, w, h = (self.box[k][i] for k in "xywh")
        group = shape == "group"
        left = x + 34 if group else x + w / 2 + (2 if shape == "box" else 0)
        anchor = "" if group else ' text-anchor="middle"'
        room = w - (44 if group else 22 if shape == "ellipse" else 16)
        rows = self.box["lines"][i][:2]
        for at, row in enumerate(rows):
            size = (_TITLE, _SUBTITLE)[at]
            middle = y + h / 2 + ((-7.5, 9.0)[at] if len(rows) > 1 else 0.5) + size * 0.35
            bold = ' font-weight="600"' if not at else ""
            yield (
                f'<text x="{_n(left)}" y="{_n(middle)}" font-size="{size:g}"{bold}{anchor} '
                f"{_paint('fill', colour)}>{_text(_fitted(row, size, not at, room))}</text>"
            )

    def _header(self, i: int) -> str:
        x, y, w = (self.box[k][i] for k in "xyw")
        colour, ground = self.surfaces["groupText"], self.surfaces["ground"]
        fitted = _fitted(self.box["lines"][i][0], _TITLE, True, w - 44)
        name, end = _text(fitted), 40 + labels.text_width(fitted, _TITLE, True)
        group, middle = self.box["group"][i], y + _HEADER / 2
        saved = group in self.captures and w - end > 190
        count = self._saved(group, x + end + 130, middle) if saved else ""
        return (
            self._sign(x + 10, middle, colour, plus=False)
            + count
            + (
                f'<text x="{_n(x + 30)}" y="{_n(y + _HEADER / 2 + 5)}" font-size="{_TITLE:g}" '
                f'font-weight="600" fill="{colour}" stroke="{ground}" stroke-width="3" '
                f'stroke-linejoin="round" paint-order="stroke">{name}</text>'
            )
        )

    def _sign(self, x: float, y: float, colour: str, plus: bool) -> str:
        upright = f"M{_n(x + 7)} {_n(y - 3.5)}V{_n(y + 3.5)}" if plus else ""
        return (
            f'<g fill="{self.surfaces["ground"]}" stroke="{colour}" stroke-width="1.2">'
            f'<rect x="{_n(x)}" y="{_n(y - 7)}" width="14" height="14" rx="3.5"/>'
            f'<path d="M{_n(x + 3.5)} {_n(y)}H{_n(x + 10.5)}{upright}"/></g>'
        )

    # Edges.

    def _edge(self, e: int) -> str:
        points, kind = self.edge["p"][e], self.edge["kind"][e]
        colour, width, opacity = _EDGES[kind]
        down = self.down != (kind == _CROSSING)
        path = [f"M{_n(points[0])} {_n(points[1])}"]
        for at in range(2, len(points), 2):
            x0, y0, x1, y1 = points[at - 2 : at + 2]
            if (x0 == x1) if down else (y0 == y1):
                path.append(f"L{_n(x1)} {_n(y1)}")
                continue
            bend_x, bend_y = (0.0, (y1 - y0) / 2) if down else ((x1 - x0) / 2, 0.0)
            path.append(
                f"C{_n(x0 + bend_x)} {_n(y0 + bend_y)} {_n(x1 - bend_x)} {_n(y1 - bend_y)} "
                f"{_n(x1)} {_n(y1)}"
            )
        line = self.surfaces[colour]
        return (
            f'<g opacity="{opacity:g}"><path d="{"".join(path)}" fill="none" stroke="{line}" '
            f'stroke-width="{width:g}"/><path d="{_arrow(points, down, width)}" fill="{line}"/></g>'
        )

    def _types(self) -> Iterator[str]:
        """The types of values, beside where each edge starts, once a box."""
        done: set[int] = set()
        colour = self.surfaces["edgeText"]
        for e, label in enumerate(self.edge["label"]):
            source = self.edge["s"][e]
            if not label or source in done:
                continue
            done.add(source)
            x, y = self.edge["p"][e][:2]
            yield (
                f'<text x="{_n(x + 5)}" y="{_n(y + 17)}" font-size="10.5" fill="{colour}">'
                f"{_text(label)}</text>"
            )

    # The legend.

    def _legend_rows(self) -> Iterator[list[tuple[str, str, str, float]]]:
        """Entries (style, shape, words, left), in as many rows as they need."""
        row: list[tuple[str, str, str, float]] = []
        left, wide = _MARGIN, max(self.drawn["width"], 320.0) - _MARGIN
        for key, shape in self.data["legend"]:
            known = self.styles.get(key)
            words = (
                "forward value read by the backward"
                if shape == "line"
                else known.label
                if known
                else key
            )
            room = 40 + labels.text_width(words, 12)
            if row and left + room > wide:
                yield row
                row, left = [], _MARGIN
            row.append((key, shape, words, left))
            left += room
        if row:
            yield row

    def _legend(self, row: list[tuple[str, str, str, float]], y: float) -> Iterator[str]:
        for key, shape, words, x in row:
            if shape == "line":
                yield (
                    f'<path d="M{_n(x)} {_n(y + 6)}h15" stroke="{self.surfaces[key]}" '
                    'stroke-width="2"/>'
                )
            else:
                style = self.styles.get(key) or palette.Style("", key, key, "")
                width = ' stroke-width="2"' if style.thick else ""
                yield (
                    f"<{_outline(shape, x, y, 18, 12)} {_paint('fill', style.fill)} "
                    f"{_paint('stroke', style.stroke)}{width}{_dashed(style)}/>"
                )
                if shape == "box":
                    yield from _bars(style, "", x, y, 18, 12)
                    yield (
                        f'<text x="{_n(x + 9.5)}" y="{_n(y + 9)}" font-size="8.5" '
                        f'font-weight="700" text-anchor="middle" {_paint("fill", style.text)}>'
                        f"{style.mark}</text>"
                    )
            yield (
                f'<text x="{_n(x + 24)}" y="{_n(y + 10)}" font-size="12" '
                f'fill="{self.surfaces["groupText"]}">{_text(words)}</text>'
            )


_COLOUR = re.compile(r"#[0-9a-fA-F]{6}")


def _outline(shape: str, x: float, y: float, w: float, h: float) -> str:
    """An element's name and geometry, without what it looks like."""
    if shape == "ellipse":
        return (
            f'ellipse cx="{_n(x + w / 2)}" cy="{_n(y + h / 2)}" rx="{_n(w / 2)}" ry="{_n(h / 2)}"'
        )
    if shape == "octagon":
        c = min(8.0, h / 3)
        corners = [
            *((x + c, y), (x + w - c, y), (x + w, y + c), (x + w, y + h - c)),
            *((x + w - c, y + h), (x + c, y + h), (x, y + h - c), (x, y + c)),
        ]
        return f'polygon points="{" ".join(f"{_n(a)},{_n(b)}" for a, b in corners)}"'
    radius = min(h / 2, 18.0) if shape == "pill" else min(6.0, h / 3)
    return f'rect x="{_n(x)}" y="{_n(y)}" width="{_n(w)}" height="{_n(h)}" rx="{_n(radius)}"'


def _bars(
    style: palette.Style, right: str, x: float, y: float, w: float, h: float
) -> Iterator[str]:
    """The second sign beside a box's colour: a bar at the left, at the right, or at both sides.

    Args:
        right: the colour of one at the right that stands there anyway; "" for none.
    """
    paint = _paint("fill", style.stroke)
    if style.side != "right":
        yield _bar(x, 1.0, y, h, paint)
    if right or style.side != "left":
        yield _bar(x + w, -1.0, y, h, _paint("fill", right) if right else paint)


def _bar(x: float, way: float, y: float, h: float, paint: str) -> str:
    """One at the edge `x` of a box, whose inside is that way."""
    bend, inner = min(6.0, h / 3), x + way * (5.0 if h > 20 else 3.0)
    turn = f"A{_n(bend)} {_n(bend)} 0 0 {int(way < 0)} "
    return (
        f'<path d="M{_n(inner)} {_n(y)}H{_n(x + way * bend)}{turn}{_n(x)} {_n(y + bend)}'
        f'V{_n(y + h - bend)}{turn}{_n(x + way * bend)} {_n(y + h)}H{_n(inner)}Z" {paint}/>'
    )


def _dashed(style: palette.Style) -> str:
    return f' stroke-dasharray="{" ".join(map(str, style.dash))}"' if style.dash else ""


def _arrow(points: list[float], down: bool, width: float) -> str:
    """A triangle at the end of a curve."""
    x, y = points[-2:]
    size, half = 5.5 + width, 2.6 + width * 0.7
    before = points[-3] if down else points[-4]
    way = 1.0 if (y if down else x) >= before else -1.0
    if down:
        return f"M{_n(x)} {_n(y)}L{_n(x - half)} {_n(y - way * size)}H{_n(x + half)}Z"
    return f"M{_n(x)} {_n(y)}L{_n(x - way * size)} {_n(y - half)}V{_n(y + half)}Z"


def _fitted(text: str, size: float, bold: bool, room: float) -> str:
    """A text cut to its room."""
    if labels.text_width(text, size, bold) <= room:
        return text
    while len(text) > 1 and labels.text_width(text + "…", size, bold) > room:
        text = text[:-1]
    return text + "…"


def _paint(name: str, colour: str) -> str:
    """An attribute with a CSS colour; what of it is see-through is said apart, as older tools
    want it."""
    if re.fullmatch(r"#[0-9a-fA-F]{8}", colour):
        return f'{name}="{colour[:7]}" {name}-opacity="{int(colour[7:], 16) / 255:.3g}"'
    return f'{name}="{_text(colour)}"'


def _text(text: str) -> str:
    """Text as XML has it."""
    return escape(visible(text, keep=""))


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
