"""patch(old, diff(old, new)) is new, to the type and the order of keys; and a delta costs what changed."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.codec import Codec, Tree, diff, pack, patch, unpack

scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.0, -0.0, 1.0, "", "a", "=", "$"])
keys = st.sampled_from(["a", "b", "c", "d", "=", "l", "s", "x", "i", "$"])
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=25,
)


def exact(tree: Tree) -> bytes:
    """JSON tells types, signs and the order of keys apart."""
    return pack(tree, compress_over=None)


@st.composite
def edits(draw: st.DrawFn) -> tuple[Any, Any]:
    """A tree, and what a few changes made of it."""
    old = draw(trees)
    new = copy.deepcopy(old)
    for _ in range(draw(st.integers(1, 4))):
        new = draw(edited(new))
    return old, new


@st.composite
def edited(draw: st.DrawFn, tree: Any) -> Any:
    if isinstance(tree, list) and draw(st.booleans()):
        at = draw(st.integers(0, len(tree)))
        if at < len(tree) and draw(st.booleans()):
            tree[at : at + 1] = draw(st.sampled_from([[], [draw(edited(tree[at]))]]))
        else:
            tree.insert(at, draw(trees))
        return tree
    if isinstance(tree, dict) and draw(st.booleans()):
        key = draw(keys)
        if key in tree and draw(st.booleans()):
            del tree[key]
        else:
            tree[key] = draw(edited(tree.get(key)))
        return tree
    return draw(trees)


def check(old: Any, new: Any) -> None:
    before = exact(old), exact(new)
    delta = diff(old, new)
    assert (delta is None) == (before[0] == before[1])
    if delta is None:
        assert patch(old, None) is old
        return
    stored = unpack(pack(delta))
    assert exact(patch(old, stored)) == exact(patch(old, delta)) == before[1]
    assert (exact(old), exact(new)) == before


@given(trees, trees)
def test_any_two_trees(old: Any, new: Any) -> None:
    check(old, new)


@given(edits())
def test_a_tree_and_its_edit(pair: tuple[Any, Any]) -> None:
    check(*pair)


@pytest.mark.parametrize(
    ("old", "new", "delta"),
    [
        (1, 1, None),
        (1, True, {"=": True}),
        (1, 1.0, {"=": 1.0}),
        (0.0, -0.0, {"=": -0.0}),
        ([], {}, {"=": {}}),
        ({}, {}, None),
        ({}, {"a": 1}, {"s": {"a": 1}}),
        ({"a": 1}, {}, {"=": {}}),
        ({"a": 1, "b": 2}, {"b": 3, "c": 4}, {"x": ["a"], "s": {"b": 3, "c": 4}}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"=": {"b": 2, "a": 1}}),
        ({"a": 1}, {"b": 1, "a": 1}, {"=": {"b": 1, "a": 1}}),
        ({"a": {"b": [1]}}, {"a": {"b": [1, 2]}}, {"d": {"a": {"d": {"b": {"l": [1, 0, [2]]}}}}}),
        ([1, 2, 3], [1, 3], {"l": [1, 1, []]}),
        ([1, 3], [1, 2, 3], {"l": [1, 1, [2]]}),
        ([1, 1], [1, 1, 1], {"l": [2, 0, [1]]}),
        ([1, 2, 3], [1, 5, 3], {"l": [1, 1, [5]]}),
        ([0, {"a": 1, "b": 2}, 0], [0, {"a": 1, "b": 3}, 0], {"i": [1, {"s": {"b": 3}}]}),
    ],
)
def test_deltas(old: Any, new: Any, delta: Any) -> None:
    made = diff(old, new)
    assert repr(made) == repr(delta)
    check(old, new)


def test_unchanged_parts_are_shared() -> None:
    old: Any = {"big": [1, 2, 3], "n": [{"a": [0]}, 1]}
    new: Any = patch(old, {"d": {"n": {"l": [1, 0, [2]]}}})
    assert new == {"big": [1, 2, 3], "n": [{"a": [0]}, 2]}
    assert new["big"] is old["big"]
    assert new["n"][0] is old["n"][0]
    assert old["n"][1] == 1


@dataclass
class Thread:
    title: str
    messages: list[Any] = field(default_factory=list)
    seen: tuple[int, ...] = ()
    by_number: dict[int, list[str]] = field(default_factory=dict)


def test_a_growing_object_costs_its_growth(codec: Codec) -> None:
    thread = Thread("t", [{"role": "user", "text": "x" * 1000} for _ in range(100)], tuple(range(100)))
    thread.by_number = {number: ["x" * 100] for number in range(100)}
    old = codec.encode([thread])
    thread.messages.append({"role": "tool", "text": "hi"})
    thread.seen += (100,)
    thread.by_number[50].append("y")
    thread.by_number[100] = []
    del thread.by_number[100]
    new = codec.encode([thread])
    delta = diff(old, new)
    assert len(pack(delta)) < 250
    assert codec.decode(patch(old, delta)) == [thread]


@pytest.mark.parametrize(
    ("old", "delta"),
    [
        ({}, {}),
        ({}, []),
        ({}, 1),
        ({}, {"?": 1}),
        ({}, {"=": 1, "s": {}}),
        ([], {"s": {"a": 1}}),
        ({}, {"x": ["a"]}),
        ({}, {"x": [[]]}),
        ({}, {"x": "a"}),
        ({}, {"d": {"a": {"=": 1}}}),
        ({"a": 1}, {"d": {"a": 1}}),
        ({}, {"s": []}),
        ({}, {"l": [0, 0, []]}),
        ([1], {"l": [1, 1, []]}),
        ([1], {"l": [-1, 0, []]}),
        ([1], {"l": [0, -1, []]}),
        ([1], {"l": [0, 0]}),
        ([1], {"l": [0, 0, 1]}),
        ([1], {"l": [0.0, 0, []]}),
        ([1], {"l": 1}),
        ([1], {"i": [1, {"=": 1}]}),
        ([1], {"i": [-1, {"=": 1}]}),
        ([1], {"i": [0, {}]}),
        (1, {"i": [0, {"=": 1}]}),
    ],
)
def test_deltas_that_do_not_fit(old: Any, delta: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        patch(old, delta)


def test_deep_deltas_are_refused() -> None:
    delta: Any = {"=": 1}
    old: Any = 1
    for _ in range(100_000):
        delta, old = {"i": [0, delta]}, [old]
    with pytest.raises(ValueError, match="nested too deeply"):
        patch(old, delta)
