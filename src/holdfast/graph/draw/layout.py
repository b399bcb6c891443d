"""Where the marks and lines of a drawing are: layers from top to bottom, with few crossings.

Each line becomes a chain of spots, one in each layer that it passes, and one of these has its label: so no label covers
anything. igraph orders the spots of each layer; `_settle` finds their places across, with regard to their widths.
"""

from __future__ import annotations

from importlib import import_module
from itertools import pairwise
from math import inf
from typing import Any

from msgspec import Struct

from holdfast.errors import ExtraMissing
from holdfast.graph.draw.layers import backward, levels_of
from holdfast.graph.draw.sketch import Line, Sketch

_GAP = 28.0  # between neighbours of a layer
_LINE = 8.0  # how wide a line is that passes
_LINE_GAP = 18.0  # beside it
_LEVEL_GAP = 44.0  # between layers
_LABEL_GAP = 24.0  # above and below a layer that has but lines and labels
ROUND = 30.0  # how wide a line goes round that leads to where it began
_SWEEPS = 120
_NEARLY = 24.0  # what is no further apart is put above one another


class Size(Struct, frozen=True):
    """How much room something needs."""

    width: float
    height: float


class Place(Struct, frozen=True):
    """Where something is: its middle, and its size."""

    x: float
    y: float
    width: float
    height: float

    @property
    def top(self) -> float:
        return self.y - self.height / 2

    @property
    def bottom(self) -> float:
        return self.y + self.height / 2


class Route(Struct, frozen=True, kw_only=True):
    """The way of a line: the spots that it passes, from its source to its target.

    A spot is as high as its layer. The first and the last are those of source and target, but for a line that leads
    back: there they are beside these.
    """

    line: Line
    back: bool
    spots: tuple[Place, ...]
    label: Place | None


class Layout(Struct, frozen=True, kw_only=True):
    """A drawing with all its places; the upper left corner is (0, 0)."""

    width: float
    height: float
    marks: dict[str, Place]
    routes: tuple[Route, ...]


class _Spot(Struct, eq=False):
    """Something that takes room in a layer: a mark, or where a line passes."""

    level: int
    width: float
    height: float = 0.0
    passing: bool = True
    x: float = 0.0
    pulls: list[tuple[_Spot, float, float]] = []  # what it should be near to: how far beside it, and how strongly


class _Chain(Struct, eq=False):
    """A line on its way: the spots that it passes, from the upper end to the lower one."""

    line: Line
    back: bool
    upper: _Spot
    lower: _Spot
    spots: list[_Spot]
    label: _Spot | None = None


def layout(drawn: Sketch, marks: dict[str, Size], labels: dict[str, Size]) -> Layout:
    """Find a place for everything; ExtraMissing if igraph is not installed."""
    back = backward(drawn)
    levels = levels_of(drawn, back)
    spots = {name: _Spot(levels[name], size.width, size.height, passing=False) for name, size in marks.items()}
    chains = [_chain(line, line in back, spots, labels) for line in drawn.lines]
    layers = _ordered(list(spots.values()), chains)
    for chain in sorted(
        (chain for chain in chains if chain.back), key=lambda chain: abs(_away(chain)), reverse=True
    ):  # the outermost first
        _lead_round(chain, layers, labels)
    for chain in chains:
        _connect(chain)
    _settle(layers)
    _straighten(layers, chains)
    return _finished(layers, spots, chains)


# --- order in the layers ----------------------------------------------------------------------------------------------


def _chain(line: Line, back: bool, spots: dict[str, _Spot], labels: dict[str, Size]) -> _Chain:
    upper, lower = spots[line.target if back else line.source], spots[line.source if back else line.target]
    chain = _Chain(line, back, upper, lower, [_Spot(level, _LINE) for level in range(upper.level + 1, lower.level)])
    if line.label and chain.spots:
        # where the line leaves, so that the labels of one node's lines stand in a row
        _put_label(chain, chain.spots[-1 if back else 0], labels[line.label])
    return chain


def _put_label(chain: _Chain, spot: _Spot, size: Size) -> None:
    spot.width, spot.height = size.width, size.height
    chain.label = spot


def _ordered(marks: list[_Spot], chains: list[_Chain]) -> list[list[_Spot]]:
    """The spots of each layer from left to right, with few crossings."""
    forward_first = sorted(
        chains, key=lambda chain: chain.back
    )  # where it does not matter, lines lead back on the right
    spots = [*marks, *(spot for chain in forward_first for spot in chain.spots)]
    number = {id(spot): index for index, spot in enumerate(spots)}
    links = [pair for chain in chains for pair in pairwise([chain.upper, *chain.spots, chain.lower])]
    graph = _igraph().Graph(
        len(spots),
        [(number[id(one)], number[id(two)]) for one, two in links if one is not two],
        directed=True,
    )
    found = graph.layout_sugiyama(layers=[spot.level for spot in spots], maxiter=200)
    layers: list[list[_Spot]] = [[] for _ in range(1 + max(spot.level for spot in spots))]
    for spot, (x, _) in zip(spots, found.coords, strict=False):
        spot.x = x
        layers[spot.level].append(spot)
    for layer in layers:
        layer.sort(key=lambda spot: spot.x)
    return layers


def _igraph() -> Any:
    try:
        return import_module("igraph")
    except ImportError:
        raise ExtraMissing("an SVG drawing", "draw") from None


def _away(chain: _Chain) -> float:
    """How far a line that leads back passes on the right of its ends; negative on the left."""
    middle = [spot.x for spot in chain.spots]
    return sum(middle) / len(middle) - (chain.upper.x + chain.lower.x) / 2 if middle else 0.0


def _lead_round(chain: _Chain, layers: list[list[_Spot]], labels: dict[str, Size]) -> None:
    """Put a spot beside each end of a line that leads back, so that it goes round what is between."""
    left = _away(chain) < 0
    round_itself = chain.upper is chain.lower
    beside = []
    for end in [chain.upper] if round_itself else [chain.upper, chain.lower]:
        spot = _Spot(end.level, _LINE, x=end.x)
        layer = layers[end.level]
        layer.insert(layer.index(end) + (not left), spot)
        beside.append(spot)
    chain.spots = [beside[0], *chain.spots, *beside[1:]]
    if round_itself:
        label = labels.get(chain.line.label, Size(0, 0))
        _put_label(chain, beside[0], Size(label.width + ROUND, label.height))
    for end, spot in zip((chain.upper, chain.lower), beside, strict=False):
        away = (end.width + spot.width) / 2 + _LINE_GAP
        spot.pulls = [(end, -away if left else away, 0.5)]


def _linked(chain: _Chain) -> list[_Spot]:
    """What should be above one another."""
    return chain.spots if chain.back else [chain.upper, *chain.spots, chain.lower]


def _connect(chain: _Chain) -> None:
    """Let neighbours pull each other; lines that pass several layers should be straight."""
    for one, two in pairwise(_linked(chain)):
        strength = (1.0, 2.0, 16.0)[one.passing + two.passing]
        one.pulls = [*one.pulls, (two, 0.0, strength)]
        two.pulls = [*two.pulls, (one, 0.0, strength)]


# --- places across ----------------------------------------------------------------------------------------------------


def _settle(layers: list[list[_Spot]]) -> None:
    """Move the spots of each layer to where their neighbours pull them, keeping their order and their distance."""
    for layer in layers:
        x = 0.0
        for before, spot in zip([None, *layer], layer, strict=False):
            x += _distance(before, spot) if before is not None else 0.0
            spot.x = x
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        alone = sweep < _SWEEPS // 4  # first with regard to what was placed in this sweep, then to all
        for layer in layers if down else reversed(layers):
            _spread(layer, (-1 if down else 1) if alone else 0)


def _spread(layer: list[_Spot], side: int) -> None:
    """The nearest places to where each is pulled (least squares), by pooling those that would come too close."""
    pools: list[tuple[float, float, int]] = []  # the place of the first, the weight, and how many
    offset, offsets = 0.0, []
    for before, spot in zip([None, *layer], layer, strict=False):
        offset += _distance(before, spot) if before is not None else 0.0
        offsets.append(offset)
        pulls = [pull for pull in spot.pulls if not side or (pull[0].level - spot.level) * side >= 0]
        weight = sum(strength for _, _, strength in pulls)
        wish = sum((near.x + away) * strength for near, away, strength in pulls) / weight if weight else spot.x
        place, weight, count = wish - offset, weight or 0.1, 1
        while pools and pools[-1][0] > place:
            other, other_weight, other_count = pools.pop()
            place = (place * weight + other * other_weight) / (weight + other_weight)
            weight, count = weight + other_weight, count + other_count
        pools.append((place, weight, count))
    places = [place for place, _, count in pools for _ in range(count)]
    for spot, place, offset in zip(layer, places, offsets, strict=True):
        spot.x = place + offset


def _distance(one: _Spot, two: _Spot) -> float:
    gap = _LINE_GAP if one.passing or two.passing else _GAP
    return (one.width + two.width) / 2 + gap


def _straighten(layers: list[list[_Spot]], chains: list[_Chain]) -> None:
    """Put what is nearly above one another exactly so, where there is room: first lines, then marks."""
    column = {id(spot): [spot] for layer in layers for spot in layer}
    place = {id(spot): index for layer in layers for index, spot in enumerate(layer)}
    links = [pair for chain in chains for pair in pairwise(_linked(chain))]
    for one, two in sorted(links, key=lambda link: (-link[0].passing - link[1].passing, abs(link[0].x - link[1].x))):
        both = column[id(one)] + column[id(two)]
        if column[id(one)] is column[id(two)] or len({spot.level for spot in both}) < len(both):
            continue
        lowest, highest = -inf, inf
        for spot in both:
            layer, index = layers[spot.level], place[id(spot)]
            if index:
                lowest = max(lowest, layer[index - 1].x + _distance(layer[index - 1], spot))
            if index + 1 < len(layer):
                highest = min(highest, layer[index + 1].x - _distance(spot, layer[index + 1]))
        x = min(max(sum(spot.x for spot in both) / len(both), lowest), highest)
        if lowest <= x and max(abs(spot.x - x) for spot in both) <= _NEARLY:
            for spot in both:
                spot.x = x
                column[id(spot)] = both


# --- the whole --------------------------------------------------------------------------------------------------------


def _finished(layers: list[list[_Spot]], spots: dict[str, _Spot], chains: list[_Chain]) -> Layout:
    left = min(spot.x - spot.width / 2 for layer in layers for spot in layer)
    right = max(spot.x + spot.width / 2 for layer in layers for spot in layer)
    middles, bottom = [], 0.0
    for number, layer in enumerate(layers):
        if number:
            marked = all(any(not spot.passing for spot in layers[index]) for index in (number - 1, number))
            bottom += _LEVEL_GAP if marked else _LABEL_GAP
        height = max((spot.height for spot in layer), default=0.0)
        middles.append(bottom + height / 2)
        bottom += height

    def place(spot: _Spot) -> Place:
        return Place(spot.x - left, middles[spot.level], spot.width, spot.height)

    def room(spot: _Spot) -> Place:
        """Where a line passes it goes through the whole height of the layer."""
        return Place(spot.x - left, middles[spot.level], spot.width, max(each.height for each in layers[spot.level]))

    routes = tuple(
        Route(
            line=chain.line,
            back=chain.back,
            spots=tuple(map(room, chain.spots[::-1] if chain.back else [chain.upper, *chain.spots, chain.lower])),
            label=place(chain.label) if chain.label is not None else None,
        )
        for chain in chains
    )
    return Layout(
        width=right - left,
        height=bottom,
        marks={name: place(spot) for name, spot in spots.items()},
        routes=routes,
    )
