"""Which nodes may run side by side: a fork is a node, or the start, with ways out that are taken at once.

Conditions cannot be read. Where an answer must not raise a false alarm (``sure``), two conditional edges are taken to
exclude each other, and a router to give one name, unless they say otherwise; else all that may be is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import combinations, product
from typing import Any

from msgspec import Struct

from holdfast.graph.annotations import results_of
from holdfast.graph.model import Definition
from holdfast.graph.topology import Topology, feeders, reachable, ways_in, ways_out

Pair = tuple[str, str]


class Way(Struct, frozen=True):
    """A way out of a node."""

    target: str
    condition: Any = None  # of an edge
    router: int | None = None  # which one, of all routers
    several: bool | None = False  # whether its router gives several names; None: not said


def forks(definition: Definition, *, sure: bool) -> dict[str | None, list[Pair]]:
    """The targets that may be taken at once, two by two, for each node; None is the start."""
    ways: dict[str, list[Way]] = {}
    for edge in definition.edges:
        ways.setdefault(edge.source, []).append(Way(edge.target, edge.when))
    for number, router in enumerate(definition.routers):
        several = results_of(router.function).several
        ways.setdefault(router.source, []).extend(Way(name, None, number, several) for name in set(router.targets))
    found: dict[str | None, list[Pair]] = {None: list(combinations(dict.fromkeys(definition.entries), 2))}
    for source, out in ways.items():
        pairs = ((one, two) for one, two in combinations(out, 2) if one.target != two.target)
        found[source] = [(one.target, two.target) for one, two in pairs if _at_once(one, two, sure)]
    return found


def _at_once(one: Way, two: Way, sure: bool) -> bool:
    if one.router is not None and one.router == two.router:
        return one.several is True or (one.several is None and not sure)
    if not sure or (one.condition is None and two.condition is None):
        return True
    if one.router is None and two.router is None:
        return None in (one.condition, two.condition) or one.condition is two.condition
    return False


def side_by_side(definition: Definition, topology: Topology) -> set[Pair]:
    """The pairs of nodes that may run in one stage, each pair in the order of declaration."""
    return _Stages(definition, topology).walk()


class _Stages:
    """A walk, stage by stage, over the pairs of nodes that are active at once: called in this stage, or waiting."""

    def __init__(self, definition: Definition, topology: Topology) -> None:
        self.definition = definition
        self.out = ways_out(topology)
        self.rank = {name: number for number, name in enumerate(definition.nodes)}
        ways = {name: len(sources) + (name in definition.entries) for name, sources in ways_in(topology).items()}
        self.patient = {name for name, node in definition.nodes.items() if node.join != "any" and ways[name] > 1}
        self.awaited = cache(lambda name: feeders(topology, name) if self._awaits_all(name) else frozenset[str]())
        self.todo: list[Pair] = []
        self.active: set[Pair] = set()
        self.called: set[Pair] = set()

    def walk(self) -> set[Pair]:
        splits = forks(self.definition, sure=True)
        for one, two in splits[None]:  # a run begins with all its entries, be they joins or not
            if one in self.rank and two in self.rank:
                self._call(one, two)
        for source in reachable(self.out, self.definition.entries):
            self._meet(splits.get(source, ()))
        while self.todo:
            one, two = self.todo.pop()
            held, other_held = two in self.awaited(one), one in self.awaited(two)
            if not held and not other_held:
                self._call(one, two)
            if two in self.patient and (not held or other_held):  # if each waits for the other, the first goes on
                self._meet(product(self._after(one), [two]))
            if one in self.patient and not other_held:
                self._meet(product([one], self._after(two)))
        return self.called

    def _awaits_all(self, name: str) -> bool:
        return name in self.patient and self.definition.nodes[name].join == "all"

    def _call(self, one: str, two: str) -> None:
        self.called.add(self._ordered(one, two))
        self._meet(product(self._after(one), self._after(two)))

    def _after(self, name: str) -> set[str]:
        """Where a branch may be after a stage in which the node was called."""
        return {*self.out[name], name} if self.definition.nodes[name].until is not None else set(self.out[name])

    def _meet(self, pairs: Iterable[Pair]) -> None:
        for one, two in pairs:
            if one != two and one in self.rank and two in self.rank:
                pair = self._ordered(one, two)
                if pair not in self.active:
                    self.active.add(pair)
                    self.todo.append(pair)

    def _ordered(self, one: str, two: str) -> Pair:
        return (one, two) if self.rank[one] < self.rank[two] else (two, one)


def most_arrivals(definition: Definition, topology: Topology, join: str) -> int:
    """No more branches than this can arrive at a join before it fires, each from another node; it may be fewer."""
    sources = ways_in(topology)[join]
    out = ways_out(topology)
    meeting: dict[str, set[str]] = {source: {source} for source in sources}
    for fork, pairs in forks(definition, sure=False).items():
        for one, two in pairs:
            for first, second in product(*(_arriving(out, fork, way, join, sources) for way in (one, two))):
                meeting[first].add(second)
                meeting[second].add(first)
    counts = range(len(sources), 0, -1)
    return next((count for count in counts if sum(len(met) >= count for met in meeting.values()) >= count), 0)


def _arriving(
    out: dict[str, frozenset[str]], fork: str | None, way: str, join: str, sources: frozenset[str]
) -> Iterator[str]:
    """From where a branch that takes this way may arrive at the join."""
    if way != join:
        yield from reachable(out, [way], without=join) & sources
    elif fork is not None:
        yield fork
