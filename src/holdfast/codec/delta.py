"""What changed between two trees, so that a growing state costs its growth.

Dicts are compared key by key, lists by what they have in common at the front and at the end, anything else as a whole.
Comparison is strict: 1, True and 1.0 differ, and so do 0.0 and -0.0. A delta is itself a tree:

    {"=": tree}                             this, instead
    {"x": [key], "d": {key: delta}, "s": {key: tree}}
                                            a dict: keys removed, changed inside, set (in place, or else at the end)
    {"l": [front, end, [tree]]}             a list: keep so many from the front and the end, and put these between
    {"i": [index, delta]}                   a list: one element changed inside
    {"n": [[index, tree]]}                  a list: insert these, one after the other

Trees are never mutated, but by `patch_owned`; old, new and delta may share their parts.
"""

from __future__ import annotations

from math import copysign
from operator import is_
from typing import Any

from holdfast.codec.tree import Tree

Delta = dict[str, Any]

# Stands for the value of a key that is not there; of a type that no tree has.
_NEW = object()
_OF_A_DICT = {"x", "d", "s"}


def diff(old: Tree, new: Tree) -> Tree | None:
    """The delta that `patch` makes `new` of `old` with; None if they are the same, also in the order of keys."""
    return _diff(old, new)


def _diff(old: Any, new: Any) -> Delta | None:
    if old is new:
        return None
    kind = type(new)
    if type(old) is not kind:
        return {"=": new}
    if kind is dict:
        return _diff_dict(old, new)
    if kind is list:
        return _diff_list(old, new)
    if old != new or (kind is float and copysign(1.0, old) != copysign(1.0, new)):
        return {"=": new}
    return None


def _diff_dict(old: dict[str, Any], new: dict[str, Any]) -> Delta | None:
    removed: list[str] = []
    keys = list(old)
    if keys != list(new):
        removed = [key for key in keys if key not in new]
        kept = [key for key in keys if key in new]
        if (old and not kept) or kept + [key for key in new if key not in old] != list(new):
            return {"=": new}
    inside: dict[str, Delta] = {}
    changed: dict[str, Any] = {}
    for key, after in new.items():
        before = old.get(key, _NEW)
        if before is after:
            continue
        delta = _diff(before, after)
        if delta is None:
            continue
        if "=" in delta:
            changed[key] = after
        else:
            inside[key] = delta
    if not (removed or inside or changed):
        return None
    parts = (("x", removed), ("d", inside), ("s", changed))
    return {name: part for name, part in parts if part}


def _diff_list(old: list[Any], new: list[Any]) -> Delta | None:
    if len(old) <= len(new) and all(map(is_, old, new)):  # it grew, and nothing else: the usual case, and at C's speed
        return {"l": [len(old), 0, new[len(old) :]]} if len(old) < len(new) else None
    front = 0
    first: Delta | None = None
    for before, after in zip(old, new, strict=False):
        if before is not after and (first := _diff(before, after)) is not None:
            break
        front += 1
    if front == len(old) == len(new):
        return None
    # With equal lengths the element at `front` is known to differ, and is not compared again.
    most = min(len(old), len(new)) - front - (len(old) == len(new))
    end = 0
    while end < most and _diff(old[-1 - end], new[-1 - end]) is None:
        end += 1
    if first is not None and "=" not in first and front + 1 + end == len(old) == len(new):
        return {"i": [front, first]}
    return {"l": [front, end, new[front : len(new) - end]]}


def patch(old: Tree, delta: Tree | None) -> Tree:
    """The tree that the delta was made for; raises ValueError for a delta that does not fit."""
    return _patched(old, delta, False)


def patch_owned(old: Tree, delta: Tree | None) -> Tree:
    """The same for a tree that nobody else has: it is changed in place, so that a growing list is not copied."""
    return _patched(old, delta, True)


def _patched(old: Tree, delta: Tree | None, owned: bool) -> Tree:
    if delta is None:
        return old
    try:
        return _patch(old, delta, owned)  # type: ignore[no-any-return]
    except RecursionError:
        raise ValueError("the delta is nested too deeply") from None


def _patch(old: Any, delta: Any, owned: bool) -> Any:
    if type(delta) is not dict or not delta:
        raise ValueError("a delta is a dict that is not empty")
    if delta.keys() <= _OF_A_DICT:
        return _patch_dict(old, delta.get("x", []), delta.get("d", {}), delta.get("s", {}), owned)
    if len(delta) != 1:
        raise ValueError(f"a delta cannot have the keys {', '.join(sorted(delta))}")
    [(name, change)] = delta.items()
    if name == "=":
        return change
    if type(old) is not list or type(change) is not list:
        raise ValueError(f"the change {name!r} is not for this")
    new = old if owned else old.copy()
    match name, change:
        case "l", [int(front), int(end), list(middle)] if front >= 0 <= end and front + end <= len(old):
            new[front : len(old) - end] = middle
        case "i", [int(index), inside] if 0 <= index < len(old):
            new[index] = _patch(old[index], inside, owned)
        case "n", [*insertions]:
            _insert(new, insertions)
        case _:
            raise ValueError(f"the change {name!r} does not fit a list of {len(old)}")
    return new


def _insert(new: list[Any], insertions: list[Any]) -> None:
    for insertion in insertions:
        match insertion:
            case [int(index), tree] if 0 <= index <= len(new):
                new.insert(index, tree)
            case _:
                raise ValueError(f"{insertion!r} cannot be inserted into a list of {len(new)}")


def _patch_dict(old: Any, removed: Any, inside: Any, changed: Any, owned: bool) -> dict[str, Any]:
    if type(old) is not dict or type(removed) is not list or type(inside) is not dict or type(changed) is not dict:
        raise ValueError("a change of keys is not for this")
    new = old if owned else dict(old)
    for key in removed:
        if type(key) is not str or new.pop(key, new) is new:
            raise ValueError(f"the key {key!r} cannot be removed")
    for key, delta in inside.items():
        if key not in new:
            raise ValueError(f"the key {key!r} cannot be changed")
        new[key] = _patch(new[key], delta, owned)
    new.update(changed)
    return new
