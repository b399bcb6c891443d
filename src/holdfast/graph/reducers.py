"""How an update and what a field was become what the field is.

A reducer is a pure function of what the field is and what the update brings. Those of this module are known by
identity: they change what is held in place, and say directly what changed in the stored tree, so that an update costs
its own size and not that of the state. For any other function the new value is compared with the old one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_origin

from holdfast.codec import Codec, Tree, diff
from holdfast.codec.readonly import ReadOnlyDict, ReadOnlyList, ReadOnlySet, frozen
from holdfast.codec.tree import TAG, canonical
from holdfast.graph.type_fit import contents

Delta = dict[str, Any]
Reducer = Callable[[Any, Any], Any]
ABSENT: Any = object()  # stands for a field that the state does not have


def append(old: Any, update: Any) -> Any:
    """The list (or tuple) with the items of the update at its end. An update that is neither is one item."""
    items = [*old, *(update if isinstance(update, list | tuple) else [update])]
    return tuple(items) if isinstance(old, tuple) else items


def add(old: Any, update: Any) -> Any:
    """The sum."""
    return old + update


def merge(old: Mapping[Any, Any], update: Mapping[Any, Any]) -> dict[Any, Any]:
    """The dict with the entries of the update: new ones at its end, others in their place."""
    return {**old, **update}


def union(old: Any, update: Any) -> Any:
    """The set (or frozenset) with the elements of the update, which may be any collection."""
    return frozenset({*old, *update}) if isinstance(old, frozenset) else {*old, *update}


def keep_last(old: Any, update: Any) -> Any:
    """The update. Says that of several branches which write the field, the one declared last counts."""
    return update


_EMPTY: dict[Any, Callable[[], Any]] = {append: list, merge: dict, union: set}
_UNCHANGEABLE: dict[Any, Callable[[], Any]] = {append: tuple, union: frozenset}


def empty(reducer: Reducer | None, kind: Any) -> Any:
    """What a field is to begin with, if a state does not say; `ABSENT` if neither its reducer nor its type tells."""
    container, _ = contents(kind)
    if reducer is add and container in (int, float):
        return container()
    make = _EMPTY.get(reducer)
    if make is None:
        return ABSENT
    other = _UNCHANGEABLE.get(reducer)
    return other() if other is not None and other in (container, get_origin(container)) else make()


class Cell(NamedTuple):
    """A field as it is held: its value, which refuses to be changed, and its tree. Both are `ABSENT` if it has none."""

    value: Any
    tree: Any


class Change(NamedTuple):
    """What became of a field: its value, and the delta of its tree; None if that is the same."""

    value: Any
    delta: Delta | None


def reduced(codec: Codec, kind: Any, reducer: Reducer | None, cell: Cell, update: Tree) -> Any:
    """What any reducer makes of the field; a plain value."""
    brought = codec.decode(update, kind, "update")
    if reducer is None:
        return brought
    begins = cell.value is ABSENT or (cell.value is None and reducer in _EMPTY)
    old = empty(reducer, kind) if begins else cell.value
    return brought if old is ABSENT else reducer(old, brought)


def whole(codec: Codec, kind: Any, cell: Cell, value: Any, what: str) -> Change:
    """The field with another value in place of the one that it had."""
    tree: Any = codec.encode(value, what)
    held = frozen(codec.decode(tree, kind, what))
    return Change(held, {"=": tree} if cell.tree is ABSENT else diff(cell.tree, tree))  # type: ignore[arg-type]


def in_place(codec: Codec, kind: Any, reducer: Reducer | None, cell: Cell, updates: list[Tree]) -> Change | None:
    """The field changed where it is held, if its reducer is one that can do so."""
    apply = _IN_PLACE.get(reducer)
    if apply is None or cell.value is ABSENT:
        return None
    return apply(codec, kind, cell, updates)


def _items(update: Any) -> list[Any]:
    """The stored items of an update: those of a list or tuple, or itself."""
    if type(update) is list:
        return update
    return update["v"] if type(update) is dict and update.get(TAG) in ("tuple", "set", "frozenset") else [update]


def _append(codec: Codec, kind: Any, cell: Cell, updates: list[Tree]) -> Change | None:
    if type(cell.value) is not ReadOnlyList:
        return None
    items: list[Tree] = []
    for update in updates:
        is_one = type(update) is dict and update.get(TAG) != "tuple"
        items += [update] if is_one else _items(update)
    if not items:
        return Change(cell.value, None)
    list.extend(cell.value, frozen(codec.decode(items, kind, "update")))
    return Change(cell.value, {"l": [len(cell.tree), 0, items]})


def _merge(codec: Codec, kind: Any, cell: Cell, updates: list[Tree]) -> Change | None:
    plain = [type(update) is dict and TAG not in update for update in updates]
    if type(cell.value) is not ReadOnlyDict or TAG in cell.tree or not all(plain):
        return None
    brought: dict[str, Any] = {}
    for update in updates:
        brought |= update  # type: ignore[arg-type]
    if not brought:
        return Change(cell.value, None)
    dict.update(cell.value, frozen(codec.decode(brought, kind, "update")))
    return Change(cell.value, {"s": brought})


def _union(codec: Codec, kind: Any, cell: Cell, updates: list[Tree]) -> Change | None:
    if type(cell.value) is not ReadOnlySet:
        return None
    stored = cell.tree["v"].copy()
    insertions: list[list[Any]] = []
    for item in (item for update in updates for item in _items(update)):
        value = codec.decode(item, kind, "update")
        if value in cell.value:
            continue
        set.add(cell.value, value)
        place = bisect_left(stored, canonical(item), key=canonical)
        stored.insert(place, item)
        insertions.append([place, item])
    return Change(cell.value, {"d": {"v": {"n": insertions}}} if insertions else None)


_IN_PLACE: dict[Any, Callable[[Codec, Any, Cell, list[Tree]], Change | None]] = {
    append: _append,
    merge: _merge,
    union: _union,
}
