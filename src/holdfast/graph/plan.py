"""What comes next: the pure part of running a graph. Nothing here waits, writes or calls a node.

A run's place in its graph is a part of the tree that it saves, beside the state:

    queue     the tasks of this stage that have not ended: ``"search"``, or ``"fetch:3"`` for the third item of a map
    node      the node that ended last
    graph     visits    how often each node was queued
              pending   the updates of those tasks of this stage that have ended
              waiting   joins that wait, and the nodes that have arrived there
              items     the items of the maps of this stage
              taken     where a node goes that ended before its stage, if a join may be decided by that
              trod      the ways that were ever taken, by the node that they lead from
              after     interrupts that are due before the next stage
              allowance, spent    what the guards count from
              topology, fields, digest    of the graph that wrote this

All tasks of the queue run side by side. When one ends, `Plan.finish` says what changes in that tree: its update is kept
as pending; and when it was the last, all updates are applied, in the order in which the nodes were declared (and the
items of a map in theirs), and the ways out of the nodes decide the next queue. The plan reads the tree that the lease
holds, and never changes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from holdfast.codec import Codec, Tree
from holdfast.codec.readonly import frozen
from holdfast.errors import UpdateRefused
from holdfast.graph.model import END, Node
from holdfast.graph.reducers import Delta
from holdfast.graph.routing import Ways, fire
from holdfast.graph.state import Held, Update

ITEM = ":"  # between a map and the number of its item
EDIT = "edit"  # in the place of a node's name, for what a person changed


class Task(Struct, frozen=True):
    """One call of a node: of which visit, and for which item if it is a map."""

    node: str
    visit: int
    item: int | None = None

    @property
    def name(self) -> str:
        """What the queue calls it."""
        return self.node if self.item is None else f"{self.node}{ITEM}{self.item}"

    @property
    def path(self) -> str:
        """What the keys of its calls begin with."""
        return f"{self.node}#{self.visit}" if self.item is None else f"{self.node}#{self.visit}.{self.item}"


class Ended(Struct, frozen=True):
    """What a task's end changes: the delta to save, and the tasks that nobody needs any more, with the join of each."""

    delta: Delta
    given_up: tuple[tuple[Task, str], ...] = ()


class Plan:
    """A run's place in its graph."""

    def __init__(self, ways: Ways, held: Held, tree: Any) -> None:
        self.ways = ways
        self.held = held
        self.tree = tree
        self.count = sum(tree["graph"]["visits"].values())  # how many nodes were visited, those of this stage included

    # --- what is to be done

    @property
    def book(self) -> Any:
        """The part of the tree that only graphs have."""
        return self.tree["graph"]

    def tasks(self) -> list[Task]:
        """The tasks of this stage that have not ended."""
        return [self._task(name) for name in self.tree["queue"]]

    def _task(self, name: str) -> Task:
        node, _, item = name.partition(ITEM)
        return Task(node, self.book["visits"][node], int(item) if item else None)

    def item(self, task: Task) -> Any:
        """The item that a task of a map is for."""
        return frozen(self.held.codec.decode(self.book["items"][task.node][(task.item or 0) - 1], None, "item"))

    # --- a task has ended

    def finish(self, task: Task, entry: Tree) -> Ended:
        """What changes in the tree when a task has ended with this: its update, or its result."""
        if len(self.tree["queue"]) > 1 and not self.ways.early(task.node):  # most tasks of a large map
            place = self.tree["queue"].index(task.name)
            queue: Delta = {"l": [place, len(self.tree["queue"]) - place - 1, []]}
            graph = _set_in(self.book, "pending", {task.name: entry})
            return Ended(_changed({"queue": queue, "graph": graph}, self._node(task.node)))
        left = [name for name in self.tree["queue"] if name != task.name]
        return self._finish(task.node, left, {**self.book.get("pending", {}), task.name: entry})

    def finish_as(self, node: str, update: Update) -> Ended:
        """What changes when a person says what a queued node brings: all its tasks have ended by that."""
        pending = {name: one for name, one in self.book.get("pending", {}).items() if name.partition(ITEM)[0] != node}
        left = [name for name in self.tree["queue"] if name.partition(ITEM)[0] != node]
        return self._finish(node, left, {**pending, node: {"u": update, "edited": True}})

    def _finish(self, node: str, left: list[str], pending: dict[str, Any]) -> Ended:
        taken = {**self.book.get("taken", {})}
        given_up: tuple[tuple[Task, str], ...] = ()
        if left and self.ways.early(node) and not _unfinished(node, left):
            taken[node] = self.ways.taken(node, self.held.preview(self._updates(pending, {node})))
            given_up = self._given_up(taken, left)
            lost = {loser.name for loser, _ in given_up}
            left = [name for name in left if name not in lost]
            half_done = {
                loser.node for loser, _ in given_up
            }  # of a map, items that had ended: it brings all, or nothing
            pending = {name: one for name, one in pending.items() if name.partition(ITEM)[0] not in half_done}
        if not left:
            return Ended(self._end_stage(node, pending, taken), given_up)
        graph: Delta = {"s": {"pending": pending, "taken": taken} if taken else {"pending": pending}}
        return Ended(_changed({"graph": graph}, {"queue": list[Tree](left), **self._node(node)}), given_up)

    def _node(self, name: str) -> dict[str, Tree]:
        return {} if self.tree.get("node") == name else {"node": name}

    def _given_up(self, taken: dict[str, list[str]], left: list[str]) -> tuple[tuple[Task, str], ...]:
        """The tasks of this stage that nobody needs any more, because a join was decided by those that have ended."""
        waiting = self.book.get("waiting", {})
        for join in dict.fromkeys(target for targets in taken.values() for target in targets):
            needed = self.ways.needed(join)
            arrived = {*waiting.get(join, ()), *(node for node, targets in taken.items() if join in targets)}
            if needed is not None and len(arrived) >= needed:
                captives = self.ways.captives(join)
                losers = [one for one in map(self._task, left) if one.node in captives]
                if losers:
                    return tuple((loser, join) for loser in losers)
        return ()

    def _updates(self, pending: dict[str, Any], only: Iterable[str] | None = None) -> list[tuple[str, Update]]:
        """The updates of a stage in their order: that of declaration, and of the items in a map."""
        names = sorted(pending, key=lambda name: self._order(name))
        found: list[tuple[str, Update]] = []
        for node in dict.fromkeys(name.partition(ITEM)[0] for name in names):
            if only is not None and node not in only:
                continue
            mine = [pending[name] for name in names if name.partition(ITEM)[0] == node]
            reduce = self.ways.nodes[node].reduce
            if reduce is not None and not (len(mine) == 1 and "edited" in mine[0]):
                results = [frozen(self.held.codec.decode(one["r"], None, "result")) for one in mine if "r" in one]
                mine = [{"u": self.update(node, reduce(self.held.view(), results))}]
            found += [(node, one["u"]) for one in mine]
        return found

    def _order(self, name: str) -> tuple[int, int]:
        node, _, item = name.partition(ITEM)
        return self.ways.place.get(node, -1), int(item or 0)

    def update(self, node: str, returned: Any) -> Update:
        """What a node returned, checked and as it is stored."""
        ways = self.ways
        writes = ways.nodes[node].writes if node in ways.nodes else None
        return ways.state.update(self.held, node, returned, writes)

    # --- the end of a stage

    def _end_stage(self, node: str, pending: dict[str, Any], taken: dict[str, list[str]]) -> Delta:
        state = self.held.apply(self._updates(pending))
        view = self.held.view()
        nodes = sorted({name.partition(ITEM)[0] for name in pending}, key=lambda name: self.ways.place[name])
        arrived: dict[str, list[str]] = {}
        goal = self.ways.definition.goal
        if goal is None or not goal(view):
            arrived = {target: list(sources) for target, sources in self.book.get("waiting", {}).items()}
            trod: dict[str, list[str]] = {}
            for source in nodes:
                trod[source] = taken[source] if source in taken else self.ways.taken(source, view)
                for target in trod[source]:
                    arrived.setdefault(target, []).append(source)
        else:
            trod = {source: [] for source in nodes}
        after = [f"{one}#{self.book['visits'][one]}" for one in nodes if one in self.ways.definition.after]
        firing, waiting = fire(self.ways, arrived)
        queue, items = self.queued(firing, view)
        parts = {"pending": None, "taken": None, "waiting": waiting, "items": items, "after": after}
        graph = self._booked(firing, trod, parts)
        changed = self._node(node)
        if queue != self.tree["queue"]:
            changed["queue"] = queue
        return _changed(_there(graph=graph, state=state), changed)

    def _booked(self, firing: list[str], trod: dict[str, list[str]], parts: dict[str, Any]) -> Delta:
        """What changes in the book when nodes are queued. Of the parts, those that are empty are taken out."""
        book = self.book
        visits = {name: book["visits"].get(name, 0) + 1 for name in firing}
        self.count += len(visits)
        inside: dict[str, Delta] = {"visits": {"s": visits}} if visits else {}
        known = book.get("trod", {})
        new = {source: _with(known.get(source, []), targets or [END]) for source, targets in trod.items()}
        new = {source: ways for source, ways in new.items() if ways != known.get(source)}
        changed = {name: value for name, value in parts.items() if value}
        if new and "trod" in book:
            inside["trod"] = {"s": new}
        elif new:
            changed["trod"] = new
        gone = [name for name, value in parts.items() if not value and name in book]
        return {key: part for key, part in (("x", gone), ("d", inside), ("s", changed)) if part}

    # --- what a person changes

    def edit(self, update: Update, as_node: str | None) -> Delta:
        """What changes when a person brings an update: of nobody, or in the place of a node."""
        queued = {name.partition(ITEM)[0] for name in self.tree["queue"]}
        if as_node is not None and as_node in queued:
            return self.finish_as(as_node, update).delta
        state = self.held.apply([(as_node or EDIT, update)])
        if as_node is None:
            return _changed(_there(state=state), {})
        view = self.held.view()
        targets = self.ways.taken(as_node, view)
        waiting = self.book.get("waiting", {})
        arrived = {target: list(sources) for target, sources in waiting.items() if target != as_node}
        for target in targets:
            arrived.setdefault(target, []).append(as_node)
        firing, waiting = fire(self.ways, {t: s for t, s in arrived.items() if t not in queued}, queued)
        queue, items = self.queued(firing, view)
        parts = {"waiting": waiting, "items": {**self.book.get("items", {}), **items}}
        graph = self._booked(firing, {as_node: targets}, parts)
        changed: dict[str, Tree] = {"queue": [*self.tree["queue"], *queue], **self._node(as_node)}
        return _changed(_there(graph=graph, state=state), changed)

    def queued(self, firing: list[str], view: Any) -> tuple[list[Tree], dict[str, Tree]]:
        """The tasks for these nodes, and the items of those that are maps."""
        queue: list[Tree] = []
        items: dict[str, Tree] = {}
        for name in firing:
            node = self.ways.nodes[name]
            if node.kind != "map":
                queue.append(name)
                continue
            found = items_of(self.ways.definition.name, node, view)
            stored = [self.held.codec.encode(item, f"{name}.item[{n}]") for n, item in enumerate(found)]
            items[name] = stored
            queue += [f"{name}{ITEM}{n}" for n in range(1, len(stored) + 1)] or [f"{name}{ITEM}0"]
        return queue, items


def items_of(graph: str, node: Node, view: Any) -> list[Any]:
    """The items of a map, as it begins."""
    what = "it"
    if isinstance(node.over, str):
        what = f"field {node.over!r}"
        found: Any = view.get(node.over) if isinstance(view, dict) else getattr(view, node.over)
    else:
        assert node.over is not None
        found = node.over(view)
    if isinstance(found, str | bytes) or not hasattr(found, "__iter__"):
        shown = "not set" if found is None else f"{type(found).__name__} {found!r:.80}"
        raise UpdateRefused(graph, node.name, None, f"a map goes over a collection, and {what} is {shown}")
    return list(found)


def begun(ways: Ways, codec: Codec, state: Any) -> dict[str, Any]:
    """The tree that a run begins with."""
    definition = ways.definition
    tree: dict[str, Any] = {"state": codec.encode(state, "state"), "queue": []}
    tree["graph"] = {"visits": {}, "topology": ways.topology, "fields": ways.state.described, "digest": ways.digest}
    plan = Plan(ways, Held(ways.state, codec, definition.name, tree["state"]), tree)
    firing = sorted(set(definition.entries), key=lambda name: ways.place[name])
    tree["queue"], items = plan.queued(firing, plan.held.view())
    tree["graph"]["visits"] = dict.fromkeys(firing, 1)
    if items:
        tree["graph"]["items"] = items
    return tree


def _unfinished(node: str, queue: list[str]) -> bool:
    return any(name.partition(ITEM)[0] == node for name in queue)


def _set_in(book: dict[str, Any], name: str, entries: dict[str, Tree]) -> Delta:
    """The delta that adds entries to a part of the book, which may not be there yet."""
    return {"d": {name: {"s": entries}}} if name in book else {"s": {name: entries}}


def _with(known: list[str], more: list[str]) -> list[str]:
    return [*known, *(one for one in more if one not in known)]


def _there(**parts: Delta | None) -> dict[str, Delta]:
    return {name: delta for name, delta in parts.items() if delta}


def _changed(inside: dict[str, Delta], changed: dict[str, Tree]) -> Delta:
    """A delta of the tree: what changed inside of its parts, and the parts that are new as a whole."""
    return {key: part for key, part in (("d", inside), ("s", changed)) if part}
