"""Draws the picture of a run with a fork and a rollback, as SVG without anything from outside."""

from __future__ import annotations

from html import escape

STEP, TOP = 78, 62
LIVE, ABANDONED, FORKED, INK = "#0b7285", "#adb5bd", "#9c36b5", "#343a40"


def run_with_fork_and_rollback() -> str:
    """A journal of ten entries: a fork at 3, a rollback to 3, and what came after."""
    entries = ["created", "saved", "done", "saved", "done", "saved", "rollback", "undone", "rewound", "saved"]
    shapes = [text(20, 30, "report-7", LIVE, bold=True)]
    shapes.append(line(x(0), TOP, x(9), TOP, INK))
    for seq, kind in enumerate(entries):
        shapes += entry(seq, TOP, kind, ABANDONED if 4 <= seq <= 7 else LIVE)
    # The effective history jumps from 3 to the entry that rewound it.
    shapes.append(curve(x(3) + 14, x(8), TOP + 44, LIVE))
    shapes.append(text(x(5.6), TOP + 108, "rolled back to 3: entries 4 to 7 stay, and no longer count", LIVE))
    low = TOP + 180
    shapes.append(text(20, low - 32, "report-7-short, a fork at 3", FORKED, bold=True))
    shapes.append(f'<path d="M{x(3)} {TOP + 44} C {x(3)} {low - 50}, {x(3.4)} {low}, {x(4)} {low}" {stroke(FORKED)}/>')
    shapes.append(line(x(4), low, x(6), low, FORKED))
    for seq, kind in enumerate(["forked", "done", "saved"], 4):
        shapes += entry(seq, low, kind, FORKED)
    shapes.append(text(20, low - 12, "shares 0 to 3, then has its own 4, 5, 6", FORKED))
    title = "A run, its rollback and its fork"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 820 300" role="img" aria-label="{title}" '
        f'font-family="system-ui, sans-serif" font-size="13">\n<title>{title}</title>\n'
        '<rect width="820" height="300" fill="#ffffff"/>\n' + "\n".join(shapes) + "\n</svg>\n"
    )


def x(seq: float) -> float:
    return 48 + seq * STEP


def stroke(colour: str) -> str:
    return f'fill="none" stroke="{colour}" stroke-width="2"'


def line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<path d="M{x1} {y1} L{x2} {y2}" {stroke(colour)}/>'


def curve(x1: float, x2: float, y: float, colour: str) -> str:
    way = f"M{x1} {y} C {x1 + 60} {y + 50}, {x2 - 60} {y + 50}, {x2} {y}"
    return f'<path d="{way}" {stroke(colour)} stroke-dasharray="5 4"/>'


def entry(seq: int, y: float, kind: str, colour: str) -> list[str]:
    return [
        f'<circle cx="{x(seq)}" cy="{y}" r="16" fill="#ffffff" stroke="{colour}" stroke-width="2.5"/>',
        text(x(seq), y + 5, str(seq), colour, bold=True),
        text(x(seq), y + 36, kind, colour),
    ]


def text(at: float, y: float, words: str, colour: str, *, bold: bool = False) -> str:
    where = "start" if at == 20 else "middle"
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{at:g}" y="{y:g}" fill="{colour}" text-anchor="{where}"{weight}>{escape(words)}</text>'
