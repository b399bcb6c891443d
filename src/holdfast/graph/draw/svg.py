"""A graph as a picture: one SVG file that needs nothing else, for light and dark pages, and readable aloud."""

from __future__ import annotations

import re
import unicodedata
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from holdfast.graph.draw.layout import ROUND, Layout, Place, Route, Size, layout
from holdfast.graph.draw.sketch import Mark, Sketch, sketch
from holdfast.graph.draw.svg_path import Path
from holdfast.graph.topology import Topology

_MARGIN = 24.0
_LINE_CHARACTERS, _LINES = 22, 3  # of a name
_NAME, _SMALL = 14.0, 11.0  # sizes of letters
_ARROW = 8.0

_LIGHT = {
    "bg": "#ffffff", "ink": "#1b2530", "muted": "#566270", "fill": "#f4f6f9", "stroke": "#93a1b0", "line": "#768494",
    "done": "#1c7447", "done-fill": "#e2f4e9", "here": "#2152c0", "here-fill": "#e3edff",
    "failed": "#ba2418", "failed-fill": "#ffe6e3",
}  # fmt: skip
_DARK = {
    "bg": "#11161d", "ink": "#e9eef4", "muted": "#a3b1bf", "fill": "#1c2530", "stroke": "#5a6a7a", "line": "#8494a4",
    "done": "#52c78f", "done-fill": "#12301f", "here": "#82adff", "here-fill": "#15264b",
    "failed": "#ff9084", "failed-fill": "#3b1613",
}  # fmt: skip
_STYLE = """
.hf{font-family:ui-sans-serif,system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif;%s}
@media (prefers-color-scheme:dark){.hf{%s}}
.hf .page{fill:var(--bg)}
.hf .box{fill:var(--fill);stroke:var(--stroke);stroke-width:1.5}
.hf text{fill:var(--ink);text-anchor:middle}
.hf .name{font-size:14px;font-weight:600}
.hf .small{font-size:11px;fill:var(--muted)}
.hf .badge{font-size:11px;font-weight:700;fill:var(--bg)}
.hf .way{fill:none;stroke:var(--line);stroke-width:1.5}
.hf .dashed{stroke-dasharray:5 4}
.hf .head{fill:var(--line)}
.hf .under{fill:var(--bg)}
.hf .beside{text-anchor:start}
.hf .start .box{fill:var(--ink);stroke:var(--ink)}
.hf .start .name,.hf .ran .start .name{fill:var(--bg)}
.hf .end .box{stroke:var(--ink);stroke-width:2.5;fill:var(--bg)}
.hf .ran .plain .box{stroke-opacity:.6}
.hf .ran .plain text{fill:var(--muted)}
.hf .taken .way{stroke:var(--done);stroke-width:2.75}
.hf .taken .head{fill:var(--done)}
"""
_PARTS = """
.hf .%(part)s:not(.start) .box{fill:var(--%(part)s-fill);stroke:var(--%(part)s);stroke-width:2.25}
.hf .%(part)s .pill{fill:var(--%(part)s)}
"""


def svg(topology: Topology, path: Path | None = None, *, styled: bool = True) -> str:
    """The graph as SVG text; a path shows what was done, where the run is and what has failed.

    It has no script and no address of anything outside. Where a page has the `stylesheet` already, it need not be
    ``styled`` itself. ExtraMissing if the extra ``draw`` is not installed.
    """
    drawn = sketch(topology, path)
    names = {mark.id: _lines_of(mark.name) for mark in drawn.marks}
    sizes = {mark.id: _size(mark, names[mark.id]) for mark in drawn.marks}
    labels = {line.label: Size(_width(line.label, _SMALL) + 10, 18.0) for line in drawn.lines if line.label}
    return _picture(drawn, layout(drawn, sizes, labels), names, styled=styled)


# --- words and sizes --------------------------------------------------------------------------------------------------


def _lines_of(name: str) -> list[str]:
    """A name in lines that are not too long, broken where its words end if it can be."""
    lines = [""]
    for word in re.findall(r"[^\s_\-./]*[\s_\-./]*", name):
        for piece in (word[at : at + _LINE_CHARACTERS] for at in range(0, len(word), _LINE_CHARACTERS)):
            if len(lines[-1]) + len(piece.rstrip()) <= _LINE_CHARACTERS:
                lines[-1] += piece
            else:
                lines.append(piece)
    lines = [line.strip() for line in lines if line.strip()]
    return lines if len(lines) <= _LINES else [*lines[: _LINES - 1], lines[_LINES - 1][: _LINE_CHARACTERS - 1] + "…"]


def _width(text: str, size: float) -> float:
    """About how wide a text is: there is no font to ask, so rather too much."""
    return sum(_breadth(character) for character in text) * size


def _breadth(character: str) -> float:
    if unicodedata.combining(character):
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return 1.05
    if character in "iljtfr.,:;|!'()[] ":
        return 0.37
    if character in 'mwMW@%<>&+=~#"':
        return 0.92
    return 0.74 if character.isupper() else 0.63


def _size(mark: Mark, lines: list[str]) -> Size:
    if mark.kind == "router":
        return Size(24 + 2 * (_width(mark.name, _SMALL) + 6 if mark.name else 0), 24)
    if mark.kind in ("start", "end"):
        return Size(_width(mark.name, _NAME) + 30, 30)
    widest = max([_width(line, _NAME) for line in lines] + [_width(" · ".join(row), _SMALL) for row in _rows(mark)])
    return Size(max(widest + 34, 84), 22 + 18 * len(lines) + 15 * len(_rows(mark)))


def _rows(mark: Mark) -> list[tuple[str, ...]]:
    """The notes of a mark, two in a row."""
    return [mark.notes[at : at + 2] for at in range(0, len(mark.notes), 2)]


# --- the picture ------------------------------------------------------------------------------------------------------


def _picture(drawn: Sketch, placed: Layout, names: dict[str, list[str]], *, styled: bool) -> str:
    width, height = placed.width + 2 * _MARGIN, placed.height + 2 * _MARGIN
    root = Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "class": "hf",
            "role": "img",
            "viewBox": f"0 0 {_n(width)} {_n(height)}",
            "width": _n(width),
            "height": _n(height),
        },
    )
    SubElement(root, "title").text = f"Graph {drawn.name}"
    SubElement(root, "desc").text = _description(drawn)
    if styled:
        SubElement(root, "style").text = stylesheet()
    SubElement(root, "rect", {"class": "page", "width": "100%", "height": "100%", "rx": "10"})
    moved = {"transform": f"translate({_n(_MARGIN)} {_n(_MARGIN)})"}
    group = SubElement(root, "g", moved | ({"class": "ran"} if drawn.path else {}))
    for route in sorted(placed.routes, key=lambda route: route.line.taken):  # what was taken lies above
        _draw_line(group, route, placed.marks)
    for route in placed.routes:
        if route.line.label and route.label is not None:
            _draw_label(group, route.line.label, _label_place(route, route.label, placed.marks))
    for mark in drawn.marks:
        _draw_mark(group, mark, placed.marks[mark.id], names[mark.id])
    ElementTree.indent(root, " ")
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def stylesheet() -> str:
    """How the pictures look, as CSS."""
    colours = (";".join(f"--{name}:{colour}" for name, colour in each.items()) for each in (_LIGHT, _DARK))
    return _STYLE % tuple(colours) + "".join(_PARTS % {"part": part} for part in ("done", "here", "failed"))


def _description(drawn: Sketch) -> str:
    """The picture in words, for those who cannot see it."""
    names = {mark.id: mark.name or "router" for mark in drawn.marks}
    ways = (f"{names[line.source]} to {names[line.target]}" + ", if" * line.dashed for line in drawn.lines)
    words = f"Ways: {'; '.join(ways)}."
    for part, title in (("done", "Done"), ("here", "Here"), ("failed", "Failed")):
        if found := [f"{mark.name} {mark.badge}".strip() for mark in drawn.marks if mark.part == part and mark.name]:
            words += f" {title}: {', '.join(found)}."
    return words


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _text(parent: Element, kind: str, x: float, y: float, text: str) -> None:
    SubElement(parent, "text", {"class": kind, "x": _n(x), "y": _n(y)}).text = text


# --- marks ------------------------------------------------------------------------------------------------------------


def _draw_mark(parent: Element, mark: Mark, place: Place, lines: list[str]) -> None:
    group = SubElement(parent, "g", {"class": f"{mark.kind} {mark.part}"})
    if mark.kind == "router":
        points = ((0, -12), (12, 0), (0, 12), (-12, 0))
        corners = " ".join(f"{_n(place.x + dx)},{_n(place.y + dy)}" for dx, dy in points)
        SubElement(group, "polygon", {"class": "box", "points": corners})
        if mark.name:
            _text(group, "small beside", place.x + 17, place.y + 4, mark.name)
        return
    if mark.kind in ("start", "end"):
        _box(group, place, round=place.height / 2)
        _text(group, "name", place.x, place.y + 5, mark.name)
        return
    if lines != [mark.name]:
        SubElement(group, "title").text = mark.name
    if mark.kind == "map":  # a pile: one for each item
        for away in (8.0, 4.0):
            _box(group, Place(place.x + away, place.y + away, place.width, place.height))
    _box(group, place)
    if mark.kind == "graph":
        _box(group, Place(place.x, place.y, place.width - 8, place.height - 8), round=6)
    y = place.top + 11 + 14
    for line in lines:
        _text(group, "name", place.x, y, line)
        y += 18
    for row in _rows(mark):
        _text(group, "small", place.x, y - 2, " · ".join(row))
        y += 15
    if mark.badge:
        _draw_badge(group, mark.badge, place)


def _box(parent: Element, place: Place, round: float = 9) -> None:
    left = place.x - place.width / 2
    shape = {"x": left, "y": place.top, "width": place.width, "height": place.height, "rx": round}
    SubElement(parent, "rect", {"class": "box"} | {name: _n(value) for name, value in shape.items()})


def _draw_badge(parent: Element, badge: str, place: Place) -> None:
    width = _width(badge, _SMALL) + 14
    x = place.x + place.width / 2 - width / 2 + 6
    shape = {"x": x - width / 2, "y": place.top - 9, "width": width, "height": 18, "rx": 9}
    SubElement(parent, "rect", {"class": "pill"} | {name: _n(value) for name, value in shape.items()})
    _text(parent, "badge", x, place.top + 4, badge)


# --- lines ------------------------------------------------------------------------------------------------------------


def _draw_line(parent: Element, route: Route, marks: dict[str, Place]) -> None:
    source, target = marks[route.line.source], marks[route.line.target]
    draw = _around if route.line.source == route.line.target else _upward if route.back else _downward
    way, (x, y), (dx, dy) = draw(route, source, target)
    group = SubElement(parent, "g", {"class": "taken"} if route.line.taken else {})
    SubElement(group, "path", {"class": "way dashed" if route.line.dashed else "way", "d": way})
    back_x, back_y = x - dx * _ARROW, y - dy * _ARROW
    half = _ARROW * 0.55
    corners = ((x, y), (back_x - dy * half, back_y + dx * half), (back_x + dy * half, back_y - dx * half))
    points = " ".join(f"{_n(px)},{_n(py)}" for px, py in corners)
    SubElement(group, "polygon", {"class": "head", "points": points})


_Drawn = tuple[str, tuple[float, float], tuple[float, float]]  # the way, where it arrives, and in which direction


def _downward(route: Route, source: Place, target: Place) -> _Drawn:
    first, *others = route.spots
    way = f"M{_n(source.x)} {_n(source.bottom)}"
    x, y = source.x, first.bottom
    for spot in others:
        middle = (y + spot.top) / 2
        way += f"V{_n(y)}C{_n(x)} {_n(middle)} {_n(spot.x)} {_n(middle)} {_n(spot.x)} {_n(spot.top)}"
        x, y = spot.x, spot.bottom
    arrived = target.top
    return way + f"V{_n(arrived - _ARROW + 1)}", (target.x, arrived), (0, 1)


def _upward(route: Route, source: Place, target: Place) -> _Drawn:
    """Out of one side, up between the layers, and into the side of what came before."""
    first, *others = route.spots
    side = source.x + (source.width / 2 if first.x > source.x else -source.width / 2)
    turn = f"{_n(first.x)} {_n(source.y)}"
    way = f"M{_n(side)} {_n(source.y)}C{turn} {turn} {_n(first.x)} {_n(first.top)}"
    x, y = first.x, first.top
    for spot in others:
        middle = (y + spot.bottom) / 2
        way += f"V{_n(y)}C{_n(x)} {_n(middle)} {_n(spot.x)} {_n(middle)} {_n(spot.x)} {_n(spot.bottom)}"
        x, y = spot.x, spot.top
    right = x > target.x
    arrived = target.x + (target.width / 2 if right else -target.width / 2)
    before = arrived + (_ARROW - 1 if right else 1 - _ARROW)
    way += f"C{_n(x)} {_n(target.y)} {_n(x)} {_n(target.y)} {_n(before)} {_n(target.y)}"
    return way, (arrived, target.y), (-1 if right else 1, 0)


def _around(route: Route, source: Place, target: Place) -> _Drawn:
    """From a mark to itself."""
    side = source.x + source.width / 2
    out, down = side + ROUND + 2, min(12.0, source.height / 3)
    way = f"M{_n(side)} {_n(source.y - down)}C{_n(out)} {_n(source.y - down - 6)} {_n(out)} {_n(source.y + down + 6)} "
    return way + f"{_n(side + _ARROW - 1)} {_n(source.y + down)}", (side, source.y + down), (-1, 0)


def _label_place(route: Route, label: Place, marks: dict[str, Place]) -> Place:
    if route.line.source != route.line.target:
        return label
    source, width = marks[route.line.source], label.width - ROUND
    return Place(source.x + source.width / 2 + ROUND + width / 2, label.y, width, label.height)


def _draw_label(parent: Element, label: str, place: Place) -> None:
    shape = {"x": place.x - place.width / 2 + 2, "y": place.top, "width": place.width - 4, "height": place.height}
    SubElement(parent, "rect", {"class": "under"} | {name: _n(value) for name, value in shape.items()})
    _text(parent, "small", place.x, place.y + 4, label)
