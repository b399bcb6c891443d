"""Which layer of a drawing each mark is in. Lines that lead back up, of loops, are turned round to find it."""

from __future__ import annotations

from holdfast.graph.draw.sketch import STOP, Line, Sketch
from holdfast.graph.topology import loops


def backward(drawn: Sketch) -> set[Line]:
    """The lines that lead back: without them there is no loop. Of two ways to choose them, the one with fewer."""
    return min(_declared_before(drawn), _met_before(drawn), key=len)


def _declared_before(drawn: Sketch) -> set[Line]:
    """The lines of loops that lead to what was declared before."""
    ways: dict[str, frozenset[str]] = {mark.id: frozenset() for mark in drawn.marks}
    for line in drawn.lines:
        ways[line.source] |= {line.target}
    knot = {name: number for number, names in enumerate(loops(ways)) for name in names}
    rank = {mark.id: float(number) for number, mark in enumerate(drawn.marks)}
    for line in drawn.lines:
        if line.target.startswith("r"):  # a router stands right behind its node
            rank[line.target] = rank[line.source] + 0.5
    return {
        line
        for line in drawn.lines
        if line.source in knot and knot[line.source] == knot.get(line.target) and rank[line.target] <= rank[line.source]
    }


def _met_before(drawn: Sketch) -> set[Line]:
    """The lines that lead back to what was met before, on a walk from the start."""
    out: dict[str, list[Line]] = {mark.id: [] for mark in drawn.marks}
    for each in drawn.lines:
        out[each.source].append(each)
    found, begun, done = set[Line](), set[str](), set[str]()
    for mark in drawn.marks:
        todo = [(mark.id, iter(out[mark.id]))] if mark.id not in begun else []
        begun.add(mark.id)
        while todo:
            here, ways = todo[-1]
            line: Line | None = next(ways, None)
            if line is None:
                done.add(here)
                todo.pop()
            elif line.target not in begun:
                begun.add(line.target)
                todo.append((line.target, iter(out[line.target])))
            elif line.target not in done:
                found.add(line)
    return found


def levels_of(drawn: Sketch, back: set[Line]) -> dict[str, int]:
    """The layer of each mark, from 0 at the top: below all that lead to it, with a layer between for a label."""
    after: dict[str, list[tuple[str, int]]] = {mark.id: [] for mark in drawn.marks}
    waiting = dict.fromkeys(after, 0)
    for line in drawn.lines:
        if line.source != line.target:
            upper, lower = (line.target, line.source) if line in back else (line.source, line.target)
            after[upper].append((lower, 2 if line.label else 1))
            waiting[lower] += 1
    levels = dict.fromkeys(after, 0)
    todo = [name for name, count in waiting.items() if not count]
    while todo:
        upper = todo.pop()
        for lower, length in after[upper]:
            levels[lower] = max(levels[lower], levels[upper] + length)
            waiting[lower] -= 1
            if not waiting[lower]:
                todo.append(lower)
    levels[STOP] = max(levels[STOP], 1 + max(level for name, level in levels.items() if name != STOP))
    return levels
