"""Draws what was measured (bench/results.json), as SVG without anything from outside, for light and for dark pages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape

Points = Mapping[int, float]

WIDTH = 820
STYLE = """<style>
  :root { --paper: #ffffff; --ink: #343a40; --grid: #dee2e6; --ours: #0b7285; --peer: #868e96; --limit: #ced4da }
  @media (prefers-color-scheme: dark) {
    :root { --paper: #16191d; --ink: #e9ecef; --grid: #3a4047; --ours: #3bc9db; --peer: #909aa3; --limit: #5c636a }
  }
  .paper { fill: var(--paper) } text { fill: var(--ink) } .grid { stroke: var(--grid); fill: none }
  .curve { stroke: var(--ours); fill: none; stroke-width: 2 } .point { fill: var(--ours) }
  .ours { fill: var(--ours) } .peer { fill: var(--peer) } .limit { fill: var(--limit) } .bold { font-weight: 600 }
</style>"""


def picture(title: str, height: float, shapes: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" '
        f'aria-label="{escape(title)}" font-family="system-ui, sans-serif" font-size="12">\n'
        f'<title>{escape(title)}</title>\n{STYLE}\n<rect class="paper" width="{WIDTH}" height="{height:g}"/>\n'
        + "\n".join(shapes)
        + "\n</svg>\n"
    )


def text(x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> str:
    of_kind = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{of_kind}>{escape(words)}</text>'


def number(value: float) -> str:
    """As short as it can be read."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


# --- bars


def bars(title: str, panels: Mapping[str, Mapping[str, tuple[float, str]]]) -> str:
    """Horizontal bars under a heading each: what they are called, how long they are, and of what kind."""
    shapes, y = [text(20, 28, title, kind="bold")], 58.0
    longest = max(value for rows in panels.values() for value, _ in rows.values())
    for heading, rows in panels.items():
        shapes.append(text(20, y, heading, kind="bold"))
        y += 10
        for name, (value, kind) in rows.items():
            wide = 490 * value / longest
            shapes.append(text(250, y + 13, name, "end"))
            shapes.append(f'<rect class="{kind}" x="260" y="{y:.1f}" width="{max(wide, 1):.1f}" height="18" rx="2"/>')
            shapes.append(text(266 + wide, y + 13, f"{value:,.0f}"))
            y += 24
        y += 28
    return picture(title, y - 14, shapes)


# --- curves

ACROSS, PANEL_HEIGHT = 3, 216
PANEL_WIDTH = WIDTH // ACROSS


def curves(title: str, panels: Mapping[str, tuple[str, Points, float]]) -> str:
    """Small pictures with both axes logarithmic: a heading with what is meant by x, the unit of y, points, exponent."""
    shapes = [text(20, 28, title, kind="bold")]
    for n, (heading, (unit, points, exponent)) in enumerate(panels.items()):
        left, top = n % ACROSS * PANEL_WIDTH, 44 + n // ACROSS * PANEL_HEIGHT
        shapes += panel(left, top, heading, unit, points, exponent)
    return picture(title, 52 + math.ceil(len(panels) / ACROSS) * PANEL_HEIGHT, shapes)


def panel(left: float, top: float, heading: str, unit: str, points: Points, exponent: float) -> Iterator[str]:
    box = (left + 48, top + 46, left + PANEL_WIDTH - 16, top + PANEL_HEIGHT - 34)
    low_x, high_x = decades(points)
    low_y, high_y = decades(points.values())

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            box[0] + (math.log10(x) - low_x) / (high_x - low_x) * (box[2] - box[0]),
            box[3] - (math.log10(y) - low_y) / (high_y - low_y) * (box[3] - box[1]),
        )

    yield text(left + 20, top + 16, heading, kind="bold")
    yield text(left + 20, top + 32, f"{unit}, exponent {exponent:.2f}")
    for decade in range(low_x, high_x + 1):
        x, _ = place(10.0**decade, 10.0**low_y)
        yield f'<path class="grid" d="M{x:.1f} {box[1]} V{box[3]}"/>'
        yield text(x, box[3] + 16, number(10.0**decade), "middle")
    for decade in range(low_y, high_y + 1, max(1, (high_y - low_y) // 4)):
        _, y = place(10.0**low_x, 10.0**decade)
        yield f'<path class="grid" d="M{box[0]} {y:.1f} H{box[2]}"/>'
        yield text(box[0] - 6, y + 4, number(10.0**decade), "end")
    way = [place(x, y) for x, y in points.items()]
    yield f'<path class="curve" d="M{" L".join(f"{x:.1f} {y:.1f}" for x, y in way)}"/>'
    for x, y in way:
        yield f'<circle class="point" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>'


def decades(values: object) -> tuple[int, int]:
    """The powers of ten between which values lie; at least two of them."""
    found = list(values)  # type: ignore[call-overload]
    low, high = math.floor(math.log10(min(found)) + 1e-9), math.ceil(math.log10(max(found)) - 1e-9)
    return low, max(high, low + 1)
