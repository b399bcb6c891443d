"""What differs between two values of JSON: a list of places, each with what was there and what is there now."""

from __future__ import annotations

import json
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any, Literal, NamedTuple

from holdfast.codec.refused import key_part

_LONG = 2_000  # items of lists that are compared place by place only


class Difference(NamedTuple):
    """One place where two values differ."""

    path: str
    change: Literal["added", "removed", "changed"]
    a: Any = None
    b: Any = None


def differences(a: Any, b: Any, path: str = "") -> Iterator[Difference]:
    """All places where the values differ, in their order. Integers, booleans and numbers are not the same."""
    if isinstance(a, dict) and isinstance(b, dict):
        for name in [*a, *(name for name in b if name not in a)]:
            inner = f"{path}{key_part(name)}".lstrip(".")
            if name not in b:
                yield Difference(inner, "removed", a=a[name])
            elif name not in a:
                yield Difference(inner, "added", b=b[name])
            else:
                yield from differences(a[name], b[name], inner)
    elif isinstance(a, list) and isinstance(b, list):
        yield from _in_lists(a, b, path)
    elif _text(a) != _text(b):
        yield Difference(path or "value", "changed", a, b)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _in_lists(a: list[Any], b: list[Any], path: str) -> Iterator[Difference]:
    """Items are found again where they moved to; what replaces as many others is compared with them."""
    if len(a) + len(b) > _LONG:
        blocks = [("replace", 0, min(len(a), len(b)), 0, min(len(a), len(b)))]
        blocks += [("delete", len(b), len(a), len(b), len(b))] if len(a) > len(b) else []
        blocks += [("insert", len(a), len(a), len(a), len(b))] if len(b) > len(a) else []
    else:
        matcher = SequenceMatcher(None, [_text(item) for item in a], [_text(item) for item in b], autojunk=False)
        blocks = list(matcher.get_opcodes())
    for change, a_from, a_to, b_from, b_to in blocks:
        if change == "equal":
            continue
        both = min(a_to - a_from, b_to - b_from)
        for n in range(both):
            yield from differences(a[a_from + n], b[b_from + n], f"{path}[{b_from + n}]")
        yield from (Difference(f"{path}[{n}]", "removed", a=a[n]) for n in range(a_from + both, a_to))
        yield from (Difference(f"{path}[{n}]", "added", b=b[n]) for n in range(b_from + both, b_to))
