"""A graph as Mermaid text, which many places that show Markdown draw by themselves."""

from __future__ import annotations

import re

from holdfast.graph.draw.sketch import Line, Mark, Sketch, sketch
from holdfast.graph.draw.svg_path import Path
from holdfast.graph.topology import Topology

_SHAPES = {
    "start": '(["{}"])',
    "end": '(["{}"])',
    "node": '("{}")',
    "map": '[/"{}"/]',
    "graph": '[["{}"]]',
    "router": '{{"{}"}}',
}
_CLASSES = {  # readable on a light and on a dark page
    "done": "fill:#d7f0e0,stroke:#1f7a4d,stroke-width:2px,color:#0b3d24",
    "here": "fill:#dbe8ff,stroke:#2456c4,stroke-width:3px,color:#0d2a66",
    "failed": "fill:#ffdfdc,stroke:#c0281c,stroke-width:3px,color:#6b120b",
}
_TAKEN = "stroke:#1f7a4d,stroke-width:3px"

# What Mermaid, or the Markdown and HTML in it, would take for more than text.
_SPECIAL = re.compile(r"""[^\w\s.,:+×…\-]|__+|^_|_$|^[-+]|(?<=^\d)\.|^\s|\s$""")


def mermaid(topology: Topology, path: Path | None = None) -> str:
    """The graph as a Mermaid flowchart; a path shows what was done, where the run is and what has failed."""
    drawn = sketch(topology, path)
    lines = ["flowchart TD", f"    accTitle: {_title(drawn)}"]
    lines += [f"    {mark.id}{_SHAPES[mark.kind].format(_text(mark))}" for mark in drawn.marks]
    lines += [f"    {line.source} {_arrow(line)} {line.target}" for line in drawn.lines]
    for part, style in _CLASSES.items():
        if ids := [mark.id for mark in drawn.marks if mark.part == part]:
            lines += [f"    classDef {part} {style}", f"    class {','.join(ids)} {part}"]
    if taken := [str(number) for number, line in enumerate(drawn.lines) if line.taken]:
        lines.append(f"    linkStyle {','.join(taken)} {_TAKEN}")
    return "\n".join(lines) + "\n"


def _title(drawn: Sketch) -> str:
    """A title is a line of text, in which nothing can be escaped."""
    return re.sub(r"[^\w .,:\-]", " ", f"Graph {drawn.name}").strip()


def _text(mark: Mark) -> str:
    lines = [mark.name or "route", *mark.notes, *([mark.badge] if mark.badge else [])]
    return "<br/>".join(map(_escaped, lines))


def _arrow(line: Line) -> str:
    label = f'|"{_escaped(line.label)}"| ' if line.label else ""
    return f"{'-.->' if line.dashed else '-->'}{label}".rstrip()


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda found: "".join(f"#{ord(c)};" for c in found[0]), text)
