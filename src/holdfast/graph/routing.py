"""The ways through a graph: where a node leads in some state, and which of the nodes arrived at are called next."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from holdfast.errors import UsageError
from holdfast.graph.model import END, Definition, Edge, Quorum, Router
from holdfast.graph.state import StateType
from holdfast.graph.topology import Topology, captives, digest, feeders, topology, ways_in, ways_out


class Ways:
    """A definition, prepared for finding the way through it."""

    def __init__(self, definition: Definition, state: StateType) -> None:
        self.definition = definition
        self.state = state
        self.nodes = definition.nodes
        self.place = {name: n for n, name in enumerate(definition.nodes)}
        self._names = {id(node.function): name for name, node in reversed(definition.nodes.items())}
        self.edges: dict[str, list[Edge]] = {}
        self.routers: dict[str, list[Router]] = {}
        for edge in definition.edges:
            self.edges.setdefault(edge.source, []).append(edge)
        for router in definition.routers:
            self.routers.setdefault(router.source, []).append(router)
        self.topology: Topology = topology(definition)
        self.digest = digest(self.topology, state.described)
        self._in = ways_in(self.topology)
        self._out = ways_out(self.topology)
        self._feeders: dict[str, frozenset[str]] = {}
        self._captives: dict[str, frozenset[str]] = {}

    def needed(self, name: str) -> int | None:
        """How many branches a join needs; None: all that can come."""
        join = self.nodes[name].join
        return join.count if isinstance(join, Quorum) else 1 if join == "any" else None

    def is_join(self, name: str) -> bool:
        """Whether a node has several ways into it, or needs some number of branches."""
        entries = 1 if name in self.definition.entries else 0
        return len(self._in.get(name, ())) + entries > 1 or self.needed(name) is not None

    def feeders(self, join: str) -> frozenset[str]:
        """The nodes for which a join waits while they are active."""
        if join not in self._feeders:
            self._feeders[join] = feeders(self.topology, join)
        return self._feeders[join]

    def captives(self, join: str) -> frozenset[str]:
        """The nodes that nobody needs any more once the join has fired."""
        if join not in self._captives:
            self._captives[join] = captives(self.topology, join)
        return self._captives[join]

    def early(self, name: str) -> bool:
        """Whether a join may be decided by this node before its stage has ended."""
        return any(target != END and self.needed(target) is not None for target in self._out.get(name, ()))

    def taken(self, name: str, state: Any) -> list[str]:
        """Where a node leads in this state."""
        node = self.nodes[name]
        if node.until is not None and not node.until(state):
            return [name]
        found = [edge.target for edge in self.edges.get(name, ()) if edge.when is None or edge.when(state)]
        for router in self.routers.get(name, ()):
            found += self._routed(name, router, router.function(state))
        return list(dict.fromkeys(target for target in found if target != END))

    def _routed(self, name: str, router: Router, result: Any) -> list[str]:
        given = result if isinstance(result, list | tuple | set | frozenset) else [result]
        chosen: list[Any] = [self._names.get(id(one), one) if callable(one) else one for one in given]
        for target in chosen:
            if target not in router.targets:
                allowed = ", ".join("END" if one == END else one for one in router.targets)
                raise UsageError(
                    f"graph {self.definition.name}: the router of node {name} gave {target!r}, which is not one of its "
                    f"targets: {allowed}; add it to to= at {router.place}"
                )
        return sorted(chosen, key=lambda target: self.place.get(target, -1))


def fire(
    ways: Ways, arrived: dict[str, list[str]], active: Collection[str] = ()
) -> tuple[list[str], dict[str, list[str]]]:
    """Which of the nodes that were arrived at are called next, and which wait for others to arrive.

    ``active`` are nodes that are being called meanwhile.
    """
    order = sorted(arrived, key=lambda name: ways.place[name])
    fires = [name for name in order if _has_enough(ways, name, arrived)]
    for join in [name for name in fires if ways.needed(name) is not None]:
        if join in fires:  # else it was given up itself
            order = [name for name in order if name == join or name not in ways.captives(join)]
            fires = [name for name in fires if name in order]
    patient = [name for name in order if name not in fires]
    for name in patient:
        others = [other for other in (*order, *active) if other != name]
        if ways.needed(name) is None and not any(other in ways.feeders(name) for other in others):
            fires.append(name)
    if not fires and not active:  # they wait for each other, and nobody else can come
        fires = [name for name in patient if ways.needed(name) is None][:1]
    fires.sort(key=lambda name: ways.place[name])
    return fires, {name: arrived[name] for name in order if name not in fires}


def _has_enough(ways: Ways, name: str, arrived: dict[str, list[str]]) -> bool:
    again = ways.nodes[name].until is not None and name in arrived[name]  # it is repeated, and waits for nobody
    if again or not ways.is_join(name):
        return True
    needed = ways.needed(name)
    return needed is not None and len(set(arrived[name])) >= needed
