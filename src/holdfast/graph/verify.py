"""Finds the mistakes of a graph before its first step: all at once, each with the line that made it.

What follows from another mistake is not told: a node behind an edge from an unknown node is not called unreachable.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, get_origin

from holdfast.errors import UsageError
from holdfast.graph.annotations import certain_writes, results_of, updates_of
from holdfast.graph.fields import Field, Reducer, fields_of, type_name
from holdfast.graph.model import END, Definition, Node, Problem, Quorum, Router
from holdfast.graph.parallel import most_arrivals, side_by_side
from holdfast.graph.topology import Topology, captives, label_of, loops, reachable, topology, ways_in, ways_out

_BUILT_IN = ("append", "add", "merge", "union", "keep_last")
_MOST_NAMES = 9  # in one message
_NO_ITEMS = (bool, int, float, complex, str, bytes)


def verify(definition: Definition) -> list[Problem]:
    """All that is wrong with a graph, in the order of places; nothing if it can be run."""
    shape = topology(definition)
    found = [*_names(definition), *_routers(definition), *_reach(definition, shape), *_joins(definition, shape)]
    found += _rounds(definition, shape)
    try:
        fields = fields_of(definition.state)
    except UsageError as error:
        found.append(Problem(definition.place, f"graph {definition.name}: {error}"))
    else:
        found += [*_reducers(definition, fields), *_fields(definition, fields), *_writers(definition, shape, fields)]
    return sorted(dict.fromkeys(found), key=_order)


def _order(problem: Problem) -> tuple[str, int, str]:
    file, _, line = problem.place.rpartition(":")
    return file, int(line) if line.isdecimal() else 0, problem.message


# --- names ------------------------------------------------------------------------------------------------------------


def _names(definition: Definition) -> Iterator[Problem]:
    nodes, place = definition.nodes, definition.place
    known = f"the nodes are {_listed(nodes)}" if nodes else "the graph has no nodes; add one with @graph.node"
    if END in nodes:
        yield Problem(nodes[END].place, f"a node cannot be called {END}, which is the end; give it another name")
    if not definition.entries:
        yield Problem(place, f"graph {definition.name} has no entry; say where it begins with graph.entry(...)")
    for name in definition.entries:
        if name not in nodes:
            yield Problem(place, f"the entry {_shown(name)} is not a node; {known}")
    for edge in definition.edges:
        if edge.source == END:
            yield Problem(edge.place, f"an edge to {_shown(edge.target)} begins at the end, which nothing leaves")
        elif edge.source not in nodes:
            yield Problem(edge.place, f"an edge begins at {_shown(edge.source)}, which is not a node; {known}")
        if edge.target not in nodes and edge.target != END:
            yield Problem(edge.place, f"an edge leads to {_shown(edge.target)}, which is not a node; {known}")
    for when, names in (("before", definition.before), ("after", definition.after)):
        for name in sorted(names - nodes.keys()):
            yield Problem(place, f"the interrupt {when} {_shown(name)} can never come: that is not a node; {known}")


def _shown(name: object) -> str:
    return "END" if name == END else repr(name)


def _listed(names: Iterable[str]) -> str:
    """The names in a sentence; of very many, the first."""
    shown = [_shown(name) for name in names]
    if len(shown) > _MOST_NAMES:
        shown = [*shown[: _MOST_NAMES - 1], f"{len(shown) - _MOST_NAMES + 1} more"]
    *most, last = shown
    return f"{', '.join(most)} and {last}" if most else last


# --- routers ----------------------------------------------------------------------------------------------------------


def _routers(definition: Definition) -> Iterator[Problem]:
    for router in definition.routers:
        title = f"the router {label_of(router.function)}".rstrip() + f" of {_shown(router.source)}"
        if router.source not in definition.nodes:
            yield Problem(router.place, f"{title}: there is no such node; declare it, or mend the name")
        if not router.targets:
            yield Problem(router.place, f"{title} has no targets; list where it may lead, as in to=['plan', END]")
        for name in router.targets:
            if name not in definition.nodes and name != END:
                yield Problem(router.place, f"{title} may lead to {_shown(name)}, which is not a node; mend its `to`")
        if router.targets:
            yield from _results(router, title)


def _results(router: Router, title: str) -> Iterator[Problem]:
    results = results_of(router.function)
    for name in sorted(results.names - set(router.targets)):
        yield Problem(router.place, f"{title} may give {_shown(name)}, which is not among its targets; add it to `to`")
    for other in sorted(results.others):
        yield Problem(
            router.place, f"{title} may give {other}; it must give the name of a node, END, or a list of these"
        )
    if not results.open and results.names:
        for name in sorted(set(router.targets) - results.names):
            yield Problem(router.place, f"{title} never gives {_shown(name)}, as annotated; take it out of `to`")


# --- reach ------------------------------------------------------------------------------------------------------------


def _reach(definition: Definition, shape: Topology) -> Iterator[Problem]:
    """Nodes that nothing leads to."""
    ways, nodes = ways_out(shape), definition.nodes
    if not definition.entries or not nodes.keys() & set(definition.entries):
        return
    excused = [target for source, targets in ways.items() if source not in nodes for target in targets]
    for name in nodes.keys() - reachable(ways, [*definition.entries, *excused]):
        yield Problem(
            nodes[name].place,
            f"node {_shown(name)} cannot be reached from the entry; lead an edge or a router to it, or remove it",
        )


def _rounds(definition: Definition, shape: Topology) -> Iterator[Problem]:
    """Loops that never end. A goal may end any."""
    if definition.goal is not None:
        return
    nodes = definition.nodes.keys() - {END}
    ways = {name: targets for name, targets in ways_out(shape).items() if name in nodes}
    trapped = [knot for knot in loops(ways) if all(ways[name] <= knot for name in knot)]
    for knot in trapped:
        yield Problem(
            _first(definition, knot).place,
            f"{_round(definition, knot)}: there is no way to the end; add an edge to END",
        )
    certain: dict[str, frozenset[str]] = {}
    for edge in definition.edges:
        if edge.when is None and edge.source in nodes:
            certain[edge.source] = certain.get(edge.source, frozenset()) | {edge.target}
    for knot in loops(certain):
        if not any(knot <= trap for trap in trapped) and not _given_up(definition, shape, knot):
            yield Problem(
                _first(definition, knot).place,
                f"{_round(definition, knot)} for ever: these edges are always taken; give one a condition (when=...)",
            )


def _first(definition: Definition, knot: frozenset[str]) -> Node:
    return next(node for name, node in definition.nodes.items() if name in knot)


def _round(definition: Definition, knot: frozenset[str]) -> str:
    names = [name for name in definition.nodes if name in knot]
    return f"node {_shown(names[0])} leads to itself" if len(names) == 1 else f"nodes {_listed(names)} go round"


def _given_up(definition: Definition, shape: Topology, knot: frozenset[str]) -> bool:
    """Whether a join ends the loop: what can only lead to it is given up when it fires."""
    joins = (name for name, node in definition.nodes.items() if node.join != "all")
    return any(knot <= captives(shape, name) for name in joins)


# --- joins ------------------------------------------------------------------------------------------------------------


def _joins(definition: Definition, shape: Topology) -> Iterator[Problem]:
    sources = ways_in(shape)
    for name, node in definition.nodes.items():
        if not isinstance(node.join, Quorum):
            continue
        wanted, known = node.join.count, sources[name] <= definition.nodes.keys()
        if wanted < 1:
            yield Problem(node.place, f"node {_shown(name)} joins quorum({wanted}); a quorum is of 1 or more branches")
        elif sources[name] and known and wanted > (most := most_arrivals(definition, shape, name)):
            yield Problem(
                node.place,
                f"the join of node {_shown(name)} can never fire: it waits for {wanted} branches, and at most {most} "
                f"can arrive; lower its quorum, or lead more branches to it",
            )


# --- the state --------------------------------------------------------------------------------------------------------


def _reducers(definition: Definition, fields: dict[str, Field]) -> Iterator[Problem]:
    for field in fields.values():
        title = f"field {field.name!r} of {type_name(definition.state)}"
        if len(field.reducers) > 1:
            names = _listed_reducers(field.reducers)
            yield Problem(definition.place, f"{title} has {len(field.reducers)} reducers ({names}); leave one")
        for reducer in field.reducers:
            if fault := _fault(reducer):
                name = _listed_reducers([reducer])
                yield Problem(
                    definition.place, f"{title}: its reducer {name} {fault}; write it as def f(old, new): ..."
                )
        metadata = field.type.__metadata__ if get_origin(field.type) is Annotated else ()
        for name in (item for item in metadata if isinstance(item, str) and item in _BUILT_IN):
            yield Problem(definition.place, f"{title}: {name!r} is text; write the reducer itself: holdfast.{name}")


def _listed_reducers(reducers: Any) -> str:
    return ", ".join(label_of(reducer) or repr(reducer) for reducer in reducers)


def _fault(reducer: Reducer) -> str | None:
    if inspect.iscoroutinefunction(reducer):
        return "is async, and must be a plain function"
    try:
        inspect.signature(reducer).bind(None, None)
    except TypeError:
        return "does not take two arguments"
    except ValueError:  # of a builtin such as max, which does not tell
        return None
    return None


def _fields(definition: Definition, fields: dict[str, Field]) -> Iterator[Problem]:
    """Fields that the nodes name and the state does not have."""
    has = f"{type_name(definition.state)} has {_listed(fields) if fields else 'no fields'}"
    for node in definition.nodes.values():
        title = f"node {_shown(node.name)}"
        for name in node.writes or ():
            if name not in fields:
                yield Problem(node.place, f"{title} writes {name!r}, which is not a field; {has}")
        if isinstance(node.over, str):
            if node.over not in fields:
                yield Problem(node.place, f"{title} maps over {node.over!r}, which is not a field; {has}")
            elif fields[node.over].type in _NO_ITEMS:
                kind = type_name(fields[node.over].type)
                yield Problem(node.place, f"{title} maps over {node.over!r}, which is {kind}; map over a list")
        if node.limit is not None and node.limit < 1:
            yield Problem(node.place, f"{title} has limit={node.limit}; let it be 1 or more, or None for no limit")
        if (updates := updates_of(_updater(node))) is not None:
            for name in updates[1].keys() - fields.keys():
                yield Problem(node.place, f"{title} gives {type_name(updates[0])}.{name}, which is not a field; {has}")


def _updater(node: Node) -> Any:
    """The function whose results are a node's updates."""
    return node.reduce if node.kind == "map" and node.reduce is not None else node.function


# --- writers ----------------------------------------------------------------------------------------------------------


def _writers(definition: Definition, shape: Topology, fields: dict[str, Field]) -> Iterator[Problem]:
    """Fields that would be overwritten by one another: what the first wrote would be lost."""
    plain = {name for name, field in fields.items() if field.reducer is None}
    writes = {name: _written(definition, node) & plain for name, node in definition.nodes.items()}
    for name, node in definition.nodes.items():
        if node.kind == "map" and node.reduce is None:
            for field in sorted(writes[name]):
                yield Problem(
                    node.place,
                    f"the items of node {_shown(name)} all write {field!r}, which has no reducer, "
                    f"so only one would stay; {_remedy(definition, field)}, or the map a reduce=",
                )
    writers: dict[str, int] = {}
    for field in (field for written in writes.values() for field in written):
        writers[field] = writers.get(field, 0) + 1
    if all(count < 2 for count in writers.values()):
        return
    clashes: dict[tuple[str, str], list[str]] = {}  # the later node and the field: the earlier nodes
    for one, two in side_by_side(definition, shape):
        for field in writes[one] & writes[two]:
            clashes.setdefault((two, field), []).append(one)
    for (name, field), others in clashes.items():
        yield Problem(
            definition.nodes[name].place,
            f"node {_shown(name)} may run side by side with {_listed(sorted(others))}, and both write {field!r}, "
            f"which has no reducer, so only one would stay; {_remedy(definition, field)}, or join the branches first",
        )


def _written(definition: Definition, node: Node) -> frozenset[str]:
    if node.writes is not None:
        return frozenset(node.writes)
    updates = updates_of(_updater(node))
    return certain_writes(*updates, definition.state) if updates is not None else frozenset()


def _remedy(definition: Definition, field: str) -> str:
    return f"give {type_name(definition.state)}.{field} a reducer, such as Annotated[..., append]"
