"""Makes docs/pictures/terminal.svg, the picture of a terminal in the README, from a real run in a real terminal.

A shell runs in a pseudo-terminal; commands are typed into it, and what is on its screen in the end is drawn by rich.
`make docs` calls this. Times on the picture differ from one making to the next.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.style import Style
from rich.text import Text

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "pictures" / "terminal.svg"
COLUMNS, ROWS = 84, 40
NAMES = {"brown": "yellow", "brightbrown": "bright_yellow"}  # what pyte calls differently

# rich's own format asks for fonts from elsewhere; this one takes what the reader has.
FORMAT = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="A run in a terminal">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
<rect fill="#1d2026" width="{width}" height="{height}" rx="8"/>
<g transform="translate(20, 21)">
<circle r="6" fill="#ff5f57"/><circle cx="20" r="6" fill="#febc2e"/><circle cx="40" r="6" fill="#28c840"/>
</g>
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""

SHOP = """\
import time
from typing import Literal

import holdfast
from holdfast import ask, step, this_step, workflow

Carrier = Literal["post", "courier"]


@step(retries=3, delay=0.5, target="card of {order}")
def charge(order: str, cents: int) -> str:
    time.sleep(0.6)
    if this_step().attempt == 1:
        raise ConnectionError("the bank does not answer")
    return f"receipt of {order}"


@step
def pack(item: str) -> str:
    time.sleep(0.2)
    return f"{item} packed"


@step(target="{carrier}")
def ship(order: str, carrier: str) -> str:
    time.sleep(0.5)
    return f"{order} went out by {carrier}"


@workflow
def sell(order: str, items: list[str]) -> str:
    charge(order, 4200)
    holdfast.map(pack, items, limit=2)
    return ship(order, ask("How shall it go?", Carrier))
"""


def played() -> Any:
    """The screen after a run was begun, interrupted, resumed and answered."""
    sys.path.insert(0, str(ROOT / "tests" / "cli"))
    from terminal import Terminal

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "shop.py").write_text(SHOP)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {"PATH": path, "PS1": "$ ", "HOLDFAST_STORE": "sqlite:///shop.db"}
        shell = ["bash", "--norc", "--noprofile", "--noediting"]
        with Terminal(*shell, cwd=Path(folder), columns=COLUMNS, rows=ROWS, environment=environment) as terminal:
            terminal.until("$")
            items = '["lamp", "desk", "rug", "vase", "clock", "chair", "sofa", "shelf", "mirror", "stool"]'
            Path(folder, "A-17.json").write_text(f'{{"order": "A-17", "items": {items}}}')
            terminal.type("holdfast run shop:sell --id A-17 --input @A-17.json\n")
            terminal.until("4/10")
            terminal.type("\x03")
            terminal.until("resume A-17 --module shop\n$")
            terminal.type("holdfast resume A-17 --module shop\n")
            terminal.until("  answer:")
            terminal.type("courier\n")
            terminal.until("went out by courier")
            return terminal.screen


def drawn(screen: Any) -> str:
    """The screen as SVG that loads nothing from outside."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, highlight=False)
    lines = [screen.buffer[row] for row in range(screen.lines)]
    texts = [
        Text.assemble(*(("".join(char.data for char in chars), one) for one, chars in groupby(cells(line), key=style)))
        for line in lines
    ]
    while texts and texts[-1].plain.strip() in ("", "$"):
        texts.pop()
    for text in texts:
        text.rstrip()
        console.print(text)
    return console.export_svg(title="", code_format=FORMAT, unique_id="terminal")


def cells(line: Any) -> Any:
    return (line[column] for column in range(COLUMNS))


def style(char: Any) -> Style:
    colour = NAMES.get(char.fg, char.fg)
    if colour.startswith("bright") and "_" not in colour:
        colour = f"bright_{colour[6:]}"
    return Style(color=None if colour == "default" else colour, bold=char.bold)


if __name__ == "__main__":
    PICTURE.write_text(drawn(played()), "utf-8")
    print("wrote", PICTURE.relative_to(ROOT))
