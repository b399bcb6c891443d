"""The topology of a graph: which nodes there are and how they are connected, as a tree of plain values.

It is what a run keeps of its graph, so that it can be drawn without the code, and compared when the code has changed.
What has no order is sorted: two graphs that mean the same have the same digest.

**A branch ends where no way out of its node is taken**: at a node without edges, and at one whose edges are all
conditional, if none of the conditions holds. `ways_out` has such an end as a way to END.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from holdfast.codec.tree import digest as digest_of
from holdfast.graph.model import END, Definition, Edge, Join, Node, Quorum, Router

Topology = dict[str, Any]
Ways = Mapping[str, frozenset[str]]


# --- making one -------------------------------------------------------------------------------------------------------


def topology(definition: Definition) -> Topology:
    """The topology of a graph; it can be stored as JSON."""
    return {
        "name": definition.name,
        "nodes": [_node(node) for node in definition.nodes.values()],  # in their order, in which updates are applied
        "edges": sorted(map(_edge, definition.edges), key=_edge_order),
        "routers": sorted(map(_router, definition.routers), key=lambda router: (router["source"], router["label"])),
        "entries": sorted(set(definition.entries)),
        "before": sorted(definition.before),
        "after": sorted(definition.after),
        "goal": definition.goal is not None,
    }


def digest(topology: Topology, fields: Mapping[str, str]) -> str:
    """The same for graphs with the same topology and the same fields of their state, and for no others."""
    return digest_of([topology, dict(fields)])


def _node(node: Node) -> dict[str, Any]:
    told = {
        "name": node.name,
        "kind": node.kind,
        "join": _join(node.join),
        "over": node.over if node.over is None or isinstance(node.over, str) else label_of(node.over),
        "limit": node.limit,
        "until": node.until is not None,
        "undo": node.undo,
        "reduce": node.reduce is not None,
    }
    usual = {"kind": "node", "join": "all", "over": None, "limit": None, "until": False, "undo": None, "reduce": False}
    return {key: value for key, value in told.items() if key == "name" or value != usual[key]}


def _join(join: Join) -> str | int:
    return join.count if isinstance(join, Quorum) else join


def _edge(edge: Edge) -> dict[str, Any]:
    label = edge.label or (label_of(edge.when) if edge.when is not None else "")
    return {"source": edge.source, "target": edge.target, "conditional": edge.when is not None, "label": label}


def _edge_order(edge: dict[str, Any]) -> tuple[Any, ...]:
    return edge["source"], edge["target"], edge["conditional"], edge["label"]


def _router(router: Router) -> dict[str, Any]:
    return {"source": router.source, "targets": sorted(set(router.targets)), "label": label_of(router.function)}


def label_of(function: Callable[..., Any]) -> str:
    """What to call a condition or a router: its name, or nothing if it has none."""
    name = getattr(function, "__name__", "")
    return "" if name.startswith("<") else str(name)


# --- ways -------------------------------------------------------------------------------------------------------------


def ends_by_itself(topology: Topology) -> frozenset[str]:
    """The nodes at which a branch may end without an edge to END: no edge is certain, and no router decides."""
    goes_on = {edge["source"] for edge in topology["edges"] if not edge["conditional"]}
    goes_on |= {router["source"] for router in topology["routers"]}
    return frozenset(node["name"] for node in topology["nodes"]) - goes_on


def ways_out(topology: Topology) -> dict[str, frozenset[str]]:
    """Where each node may lead in one step, END among it."""
    out: dict[str, set[str]] = {node["name"]: set() for node in topology["nodes"]}
    for edge in topology["edges"]:
        out.setdefault(edge["source"], set()).add(edge["target"])
    for router in topology["routers"]:
        out.setdefault(router["source"], set()).update(router["targets"])
    for name in ends_by_itself(topology):
        out[name].add(END)
    return {source: frozenset(targets) for source, targets in out.items()}


def ways_in(topology: Topology) -> dict[str, frozenset[str]]:
    """From where each node may be reached in one step."""
    return reverse(ways_out(topology))


def reverse(ways: Ways) -> dict[str, frozenset[str]]:
    """The same ways, walked the other way round."""
    back: dict[str, set[str]] = {name: set() for name in ways}
    for source, targets in ways.items():
        for target in targets:
            back.setdefault(target, set()).add(source)
    return {target: frozenset(sources) for target, sources in back.items()}


def reachable(ways: Ways, starts: Iterable[str], *, without: str | None = None) -> frozenset[str]:
    """What the ways lead to from the starts, these included, never entering the node ``without``."""
    seen = {start for start in starts if start != without}
    todo = list(seen)
    while todo:
        for target in ways.get(todo.pop(), ()):
            if target not in seen and target != without:
                seen.add(target)
                todo.append(target)
    return frozenset(seen)


def loops(ways: Ways) -> list[frozenset[str]]:
    """The sets of nodes that can all reach each other: each loop, or knot of loops, is one."""
    finished: list[str] = []
    seen: set[str] = set()
    for root in ways:
        todo = [(root, iter(ways[root]))] if root not in seen else []
        seen.add(root)
        while todo:
            node, targets = todo[-1]
            target = next((target for target in targets if target in ways and target not in seen), None)
            if target is None:
                finished.append(node)
                todo.pop()
            else:
                seen.add(target)
                todo.append((target, iter(ways[target])))
    found: list[frozenset[str]] = []
    back = {name: set(sources) for name, sources in reverse(ways).items()}
    for root in reversed(finished):  # what can still reach it, of what is left, is in a loop with it
        if root not in back:
            continue
        knot = {root}
        todo_back = [root]
        while todo_back:
            for source in back.pop(todo_back.pop()):
                if source in back and source not in knot:
                    knot.add(source)
                    todo_back.append(source)
        if len(knot) > 1 or root in ways[root]:
            found.append(frozenset(knot))
    return found


def feeders(topology: Topology, join: str) -> frozenset[str]:
    """The nodes from which a join can be reached: it waits while one of them is active.

    The join itself is one if a loop leads from it back to it.
    """
    back = ways_in(topology)
    return reachable(back, back.get(join, ()))


def captives(topology: Topology, join: str) -> frozenset[str]:
    """The nodes that can only lead to a join: the end cannot be reached from them without passing through it.

    When the join has fired, nobody needs what is still active of these.
    """
    escaping = reachable(ways_in(topology), [END], without=join)
    return feeders(topology, join) - escaping - {join}


# --- comparing --------------------------------------------------------------------------------------------------------


def differences(old: Topology, new: Topology) -> list[str]:
    """What has changed from one topology to another, in plain words; nothing if they are the same."""
    told = [*_node_differences(old, new), *_edge_differences(old, new), *_router_differences(old, new)]
    told += _differences_of_names("entry", old["entries"], new["entries"])
    for when in ("before", "after"):
        told += _differences_of_names(f"interrupt {when}", old[when], new[when])
    if old["goal"] != new["goal"]:
        told.append("the goal is new" if new["goal"] else "the goal was removed")
    if old["name"] != new["name"]:
        told.append(f"the graph was called {old['name']}, and is now {new['name']}")
    return told


def _node_differences(old: Topology, new: Topology) -> list[str]:
    before = {node["name"]: node for node in old["nodes"]}
    after = {node["name"]: node for node in new["nodes"]}
    told = [f"node {name} was removed" for name in before if name not in after]
    told += [f"node {name} is new" for name in after if name not in before]
    stayed = [name for name in before if name in after]
    for name in stayed:
        told += _node_changes(before[name], after[name])
    if stayed != [name for name in after if name in before]:
        told.append("the nodes are declared in another order")
    return told


def _node_changes(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    name, told = old["name"], []
    if (was := old.get("kind", "node")) != (now := new.get("kind", "node")):
        told.append(f"node {name} was a {was}, and is now a {now}")
    if (was := old.get("join", "all")) != (now := new.get("join", "all")):
        told.append(f"node {name} joined {_join_words(was)}, and now {_join_words(now)}")
    if (was := old.get("over")) != (now := new.get("over")):
        told.append(f"node {name} mapped over {was or 'a function'}, and now over {now or 'a function'}")
    if (was := old.get("limit")) != (now := new.get("limit")):
        told.append(f"the limit of node {name} was {_or_none(was)}, and is now {_or_none(now)}")
    if old.get("until", False) != new.get("until", False):
        told.append(
            f"node {name} {'is now repeated' if new.get('until') else 'is no longer repeated'} until it is done"
        )
    if old.get("reduce", False) != new.get("reduce", False):
        told.append(f"the results of node {name} are {'now' if new.get('reduce') else 'no longer'} reduced")
    if (was := old.get("undo")) != (now := new.get("undo")):
        told.append(f"the undo of node {name} was {_or_none(was)}, and is now {_or_none(now)}")
    return told


def _join_words(join: str | int) -> str:
    return f"a quorum of {join}" if isinstance(join, int) else join


def _or_none(value: object) -> str:
    return "none" if value is None else str(value)


def _edge_differences(old: Topology, new: Topology) -> list[str]:
    before, after = _edges_by_ends(old), _edges_by_ends(new)
    told = [f"edge {_arrow(*ends)} was removed" for ends in before if ends not in after]
    told += [f"edge {_arrow(*ends)} is new" for ends in after if ends not in before]
    for ends, was in before.items():
        if ends in after and was != (now := after[ends]):
            told.append(f"edge {_arrow(*ends)} was {', '.join(was)}, and is now {', '.join(now)}")
    return told


def _edges_by_ends(topology: Topology) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for edge in topology["edges"]:
        words = "conditional" if edge["conditional"] else "certain"
        found.setdefault((edge["source"], edge["target"]), []).append(
            f"{words} ({edge['label']})" if edge["label"] else words
        )
    return found


def _arrow(source: str, target: str) -> str:
    return f"{source} → {end_or(target)}"


def end_or(name: str) -> str:
    """The name as people read it: END is the end."""
    return "the end" if name == END else name


def _router_differences(old: Topology, new: Topology) -> list[str]:
    before, after = _routers_by_name(old), _routers_by_name(new)
    told = [f"the {name} was removed" for name in before if name not in after]
    told += [f"the {name} is new" for name in after if name not in before]
    for name, was in before.items():
        now = after.get(name, was)
        told += [f"the {name} no longer leads to {end_or(target)}" for target in sorted(was - now)]
        told += [f"the {name} now leads to {end_or(target)}" for target in sorted(now - was)]
    return told


def _routers_by_name(topology: Topology) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for router in topology["routers"]:
        name = f"router {router['label']} of {router['source']}".replace("  ", " ")
        found[name] = found.get(name, frozenset()) | frozenset(router["targets"])
    return found


def _differences_of_names(what: str, old: list[str], new: list[str]) -> list[str]:
    told = [f"{what} {name} was removed" for name in old if name not in new]
    return told + [f"{what} {name} is new" for name in new if name not in old]
