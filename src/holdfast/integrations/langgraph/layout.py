"""How a thread of LangGraph lies in a run's state. Pure functions over trees.

Each checkpoint that is put is one save of the run, so the saves of a thread, read one after the other, are its
checkpoints. What is saved:

    state       the channels of the graph itself, by name: what ``holdfast state`` shows
    sub         the same of its sub-graphs, by namespace
    versions    the versions of the channels, by namespace
    seen        which versions each node has seen, by namespace
    tops        the checkpoint with the largest id, by namespace: [seq, id], and a third if another one was put since
    checkpoint  what else belongs to the checkpoint that this save is: ns, id, parent, seq, meta, rest, early, trail

A save holds the namespaces that may still go on. Those of tasks are left out once the graph around them has gone on;
earlier saves still have them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import islice
from operator import getitem, is_
from typing import Any

from msgspec import Struct

from holdfast.codec import Tree, diff
from holdfast.codec.tree import TAG
from holdfast.kernel.journal import Data

BETWEEN = "|"  # the parts of a namespace
TASK = ":"  # a part of a namespace, and the task that it is the graph of

_PART = "part"  # of a list: [first, count]; stands for what the checkpoint says itself

State = dict[str, Any]
Grown = dict[tuple[str, str], int]  # lists that are the same objects as before, but longer: how long they were


class Header(Struct, frozen=True, omit_defaults=True):
    """A checkpoint without its channels.

    ``early`` are writes to it that came before it, by their seqs. ``trail`` is what its ancestors had to say of some
    channels, if they were deleted.
    """

    ns: str
    id: str
    parent: str | None
    seq: int
    meta: Tree
    rest: dict[str, Tree]
    early: tuple[int, ...] = ()
    trail: dict[str, Data] | None = None


class Contents(Struct, frozen=True):
    """The channels of a checkpoint, as trees, with their versions and who has seen them."""

    channels: dict[str, Tree]
    versions: Mapping[str, Any]
    seen: Mapping[str, Any]


def blank() -> State:
    """The state of a thread that has no checkpoint yet."""
    return {"state": {}, "step": -1, "sub": {}, "versions": {}, "seen": {}, "tops": {}, "checkpoint": None}


def state_of(tree: Mapping[str, Any]) -> State:
    """The state that was read; with what is missing, if somebody else has saved something in its place."""
    return {**blank(), **tree}


def is_checkpoint(tree: Mapping[str, Any], seq: int) -> bool:
    """Whether a save is a checkpoint of the thread, and not something that somebody else has saved since."""
    return tree.keys() == blank().keys() and tree["checkpoint"] is not None and tree["checkpoint"]["seq"] == seq


def channels(state: State, ns: str) -> dict[str, Tree] | None:
    """The channels of a namespace, if they are in the state."""
    if ns not in state["tops"]:
        return None
    found: dict[str, Tree] = state["sub"].get(ns, {}) if ns else state["state"]
    return found


def contents(state: State, ns: str) -> Contents:
    """The checkpoint of a namespace that was put last."""
    return Contents(channels(state, ns) or {}, state["versions"].get(ns, {}), state["seen"].get(ns, {}))


def is_lasting(ns: str) -> bool:
    """Whether a namespace is never left out. Of one that was, the state does not tell what was before."""
    return TASK not in ns


def holds_top(state: State, ns: str) -> bool:
    """Whether the channels in the state are those of the checkpoint with the largest id."""
    return len(state["tops"].get(ns, ())) == 2


def header_of(stored: Data) -> Header:
    """A header as it is stored."""
    early, trail = tuple(stored.get("early", ())), stored.get("trail")
    rest, parent = stored["rest"], stored.get("parent")
    return Header(stored["ns"], stored["id"], parent, stored["seq"], stored["meta"], rest, early, trail)


def stored_header(data: Data) -> Data | None:
    """The header in a save, as it is stored; None if it is somebody else's, or erased."""
    whole = data.get("s") or (data.get("d") or {}).get("s") or {}
    found: Data | None = whole.get("checkpoint")
    return found


def top(state: State, ns: str) -> tuple[int, str] | None:
    """The seq and id of the checkpoint with the largest id."""
    found = state["tops"].get(ns)
    return (found[0], found[1]) if found is not None else None


def placed(state: State, header: Header, given: Contents) -> State:
    """The state with a checkpoint put into it."""
    ns = header.ns
    stored: Data = {
        "ns": ns,
        "id": header.id,
        "parent": header.parent,
        "seq": header.seq,
        "meta": header.meta,
        "rest": header.rest,
    }
    if header.early:
        stored["early"] = list(header.early)
    if header.trail:
        stored["trail"] = header.trail
    before = state["tops"].get(ns)
    top = [header.seq, header.id] if before is None or header.id >= before[1] else [*before[:2], True]
    gone = [other for other in state["tops"] if other != ns and _is_over(other, ns)]
    sub = _without(state["sub"], gone)
    return {
        "state": state["state"] if ns else given.channels,
        "step": state["step"] + 1,
        "sub": {**sub, ns: given.channels} if ns else sub,
        "versions": {**_without(state["versions"], gone), ns: dict(given.versions)},
        "seen": {**_without(state["seen"], gone), ns: {node: dict(part) for node, part in given.seen.items()}},
        "tops": {**_without(state["tops"], gone), ns: top},
        "checkpoint": stored,
    }


def difference(before: State, after: State, grown: Grown) -> Data:
    """How a state differs from the one before. The header is always in it as a whole, to be read by itself."""
    whole: Data = {"step": after["step"], "checkpoint": after["checkpoint"]}
    inside: Data = {}
    for name in ("state", "sub", "versions", "seen", "tops"):
        delta: Any = diff(before[name], after[name])
        if delta is not None and "=" in delta:
            whole[name] = delta["="]
        elif delta is not None:
            inside[name] = delta
    for (ns, channel), length in grown.items():
        _add_growth(whole, inside, ("sub", ns) if ns else ("state",), channel, after, length)
    return {"d": inside, "s": whole} if inside else {"s": whole}


def _add_growth(put: Data, inside: Data, path: Sequence[str], channel: str, part: dict[str, Any], length: int) -> None:
    """Add to a difference that a list has grown, unless what it is in is there as a whole."""
    for name in path:
        if name in put:
            return
        part, delta = part[name], inside.setdefault(name, {})
        put, inside = delta.get("s", {}), delta.setdefault("d", {})
    inside[channel] = {"l": [length, 0, part[channel][length:]]}


def _without(parts: dict[str, Any], gone: Sequence[str]) -> dict[str, Any]:
    return {ns: part for ns, part in parts.items() if ns not in gone} if gone else parts


def _is_over(ns: str, around: str) -> bool:
    """Whether a namespace is that of a task inside of another one, which has gone on."""
    if ns == around or not (around == "" or ns.startswith(around + BETWEEN)):
        return False
    return TASK in ns[len(around) :]


def task_data(ns: str, id: str, task: str, path: str, writes: list[list[Any]]) -> Data:
    """What a task wrote, as a step of the run that is done. Each of its writes is [index, channel, value]."""
    node = path.rpartition(", ")[2] or "writes"
    return {"key": f"{id}/{task}", "tool": node, "ns": ns, "of": id, "task": task, "path": path, "result": writes}


def referring(data: Data, ns: str, channels: Mapping[str, Any], grown: Grown) -> Data:
    """What a task wrote, as it is stored with the checkpoint that it led to.

    Elements that the checkpoint has added to a list are not said twice: they are the same objects in both.
    """
    if data["ns"] != ns or not grown:
        return data
    result = [_referring(write, channels.get(write[1]), grown.get((ns, write[1]))) for write in data["result"]]
    return {**data, "result": result}


def _referring(write: list[Any], now: Any, length: int | None) -> list[Any]:
    index, channel, tree = write
    if type(tree) is list and tree and length is not None:
        for start in range(length, len(now) - len(tree) + 1):
            if now[start] is tree[0] and all(map(is_, tree, islice(now, start, None))):
                return [index, channel, {TAG: _PART, "v": [start, len(tree)]}]
    return write


def tasks_in(data: Data) -> Sequence[Data]:
    """What tasks wrote, of an entry's payload: it is such an entry, or a checkpoint that took some along."""
    if "of" in data:
        return (data,)
    return [
        {**task, "result": [_referred(write, task["ns"], data) for write in task["result"]]}
        for task in data.get("tasks", ())
    ]


def _referred(write: list[Any], ns: str, data: Data) -> list[Any]:
    index, channel, tree = write
    if type(tree) is dict and tree.get(TAG) == _PART:
        start, count = tree["v"]
        front, elements = _added(data, ("sub", ns, channel) if ns else ("state", channel))
        return [index, channel, elements[start - front : start - front + count]]
    return write


def _added(data: Data, path: Sequence[str]) -> tuple[int, list[Tree]]:
    """What a save says of a list: the number of the first element that it names, and it and all that follow."""
    part: Any = {"s": data["s"]} if "s" in data else data["d"]
    for depth, name in enumerate(path):
        if name in part.get("s", ()):
            return 0, reduce(getitem, path[depth:], part["s"])
        part = part["d"][name]
    return part["l"][0], part["l"][2]
