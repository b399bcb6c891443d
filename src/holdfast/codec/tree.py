"""The stored form of a value, and what can be done with it without knowing any user's class.

A tree is what JSON can say. A dict that has the key ``$`` is a *tag*: it stands for a value that JSON has no form for.

    {"$": "tuple", "v": [...]}               also set, frozenset (both sorted), deque (with "m", its maxlen)
    {"$": "dict", "v": [[key, value], ...]}  a dict whose keys are not all strings; odict for an OrderedDict
    {"$": "map", "v": {...}}                 a dict that has the key "$" itself; what is in "v" is no tag
    {"$": "obj", "t": type, "n": version, "f": {field: value}, "r": {...}}
                                             a user's object; "n" is left out for 1, "r" is what else it carries:
                                             "x" extra attributes, "p" pydantic's private ones, "s" its set fields
    {"$": "enum", "t": type, "n": version, "v": member}
    {"$": "as", "t": type, "n": version, "v": value}    by the encode function that the type was registered with
    {"$": "secret", "n": name, "t": token, "e": 1}      never its value; "e" only of one from the environment
    {"$": "datetime", "v": "2024-…", "z": zone, "o": 1} and the other scalars; see `scalars`

What JSON itself can say is written here. The readers are for tools: `raw` shows a tree to a person, `digest` compares
two.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable
from datetime import timedelta, timezone
from math import isfinite
from types import NoneType
from typing import Any, TypeAlias

import msgspec

from holdfast.codec.refused import Refused

Tree: TypeAlias = "bool | int | float | str | list[Tree] | dict[str, Tree] | None"

Writer = Callable[[Any, int], Tree]

TAG = "$"
# Other readers of JSON know no integers beyond 64 bits.
_INT_LIMIT = 2**63

_sorted_json = msgspec.json.Encoder(order="deterministic").encode
_blake2b: Any = None


def check_text(text: str) -> str:
    """The text itself; refused if it is not valid Unicode."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Refused("text with a lone surrogate cannot be stored") from None
    return text


def _same(value: Any, _depth: int) -> Tree:
    return value  # type: ignore[no-any-return]


def _write_str(value: str, _depth: int) -> Tree:
    return check_text(value)


def _write_int(value: int, _depth: int) -> Tree:
    # Hexadecimal, because Python limits the length of decimal conversions.
    return value if -_INT_LIMIT <= value < _INT_LIMIT else {TAG: "int", "v": hex(value)}


def write_float(value: float, _depth: int) -> Tree:
    return value if isfinite(value) else {TAG: "float", "v": repr(value)}


PLAIN_WRITERS: dict[type, Writer] = {
    NoneType: _same,
    bool: _same,
    str: _write_str,
    int: _write_int,
    float: write_float,
}


def canonical(tree: Tree) -> bytes:
    """One spelling for all trees that differ only in the order of dict keys, or in the tokens of secrets."""
    data = _sorted_json(tree)
    # Only dicts that are kept as pairs have an order that the sorting encoder does not see.
    settled = b'"$":"dict"' not in data and b'"$":"secret"' not in data
    return data if settled else _sorted_json(_settled(tree))


def digest(tree: Tree) -> str:
    """32 hexadecimal digits, the same for trees that differ only in the order of dict keys or the tokens of secrets."""
    global _blake2b
    if _blake2b is None:
        from hashlib import blake2b as _blake2b  # when it is first needed, and then at hand
    data = _sorted_json(tree)
    return _blake2b(data if b"$" not in data else canonical(tree), digest_size=16).hexdigest()  # type: ignore[no-any-return]


def short_digest(tree: Tree) -> str:
    """The same, but of a tree whose text is no longer than a digest, the text itself, which is made faster."""
    data = _sorted_json(tree)
    return data.decode() if len(data) <= 32 and b"$" not in data else digest(tree)


def _settled(tree: Any) -> Any:
    """The tree with its pairs, and the sets that hold such, put into canonical order; of a secret, its name."""
    if type(tree) is list:
        return [_settled(item) for item in tree]
    if type(tree) is not dict:
        return tree
    tag = tree.get(TAG)
    if tag == "secret":
        return {TAG: tag, "n": tree["n"]}
    plain = "v" if tag == "map" else "f" if tag == "obj" else None
    out: dict[str, Any] = {
        key: {name: _settled(part) for name, part in item.items()} if key == plain else _settled(item)
        for key, item in tree.items()
    }
    if tag == "dict":
        out["v"].sort(key=lambda pair: _sorted_json(pair[0]))
    elif tag in ("set", "frozenset"):
        out["v"].sort(key=_sorted_json)
    return out


def raw(tree: Tree) -> Any:
    """The tree as plain JSON-like values that a person can read; needs no class and no registration.

    Objects become ``{"$type": name, **fields}``, enums their member's name, tuples and sets lists, bytes base64 text,
    dates ISO text, durations seconds. It shows a value, and cannot be turned back into it.
    """
    return _raw(tree)


def _raw(tree: Any) -> Any:
    if type(tree) is list:
        return [_raw(item) for item in tree]
    if type(tree) is not dict:
        return tree
    tag = tree.get(TAG)
    show = _SHOWN.get(tag) if type(tag) is str else None
    return show(tree) if show else _raw_entries(tree)


def _raw_entries(entries: dict[str, Any]) -> dict[str, Any]:
    return {key: _raw(item) for key, item in entries.items()}


def _raw_value(tree: dict[str, Any]) -> Any:
    return _raw(tree["v"])


def _raw_object(tree: dict[str, Any]) -> dict[str, Any]:
    shown = {"$type": tree["t"], **_raw_entries(tree["f"])}
    more = tree.get("r", {})
    for section in ("x", "p"):
        for key, item in _raw(more.get(section, {})).items():
            shown.setdefault(key, item)
    return shown


def _raw_pairs(tree: dict[str, Any]) -> Any:
    """A dict where its keys can be told apart as text; else the pairs."""
    pairs = [(_raw(key), _raw(item)) for key, item in tree["v"]]
    try:
        texts = [key if type(key) is str else msgspec.json.encode(key).decode() for key, _ in pairs]
    except ValueError:  # an integer with more digits than Python will write
        texts = []
    if len(set(texts)) < len(pairs):
        return [list(pair) for pair in pairs]
    return {text: item for text, (_, item) in zip(texts, pairs, strict=True)}


def _raw_zone(zone: dict[str, Any]) -> str:
    if zone[TAG] == "zone":
        return f"[{zone['v']}]"
    return str(timezone(timedelta(microseconds=zone["v"]))).removeprefix("UTC") or "+00:00"


def _raw_time(tree: dict[str, Any]) -> str:
    return str(tree["v"]) + (_raw_zone(tree["z"]) if "z" in tree else "")


def _raw_complex(tree: dict[str, Any]) -> str:
    real, imaginary = (float(_raw(part)) for part in tree["v"])
    return str(complex(real, imaginary))


_SHOWN: dict[str, Callable[[dict[str, Any]], Any]] = {
    "as": lambda tree: {"$type": tree["t"], "value": _raw(tree["v"])},
    "complex": _raw_complex,
    "datetime": _raw_time,
    "dict": _raw_pairs,
    "int": lambda tree: int(tree["v"], 16),
    "map": lambda tree: _raw_entries(tree["v"]),
    "obj": _raw_object,
    "odict": _raw_pairs,
    "secret": lambda tree: {"secret": tree["n"]},
    "time": _raw_time,
    "timedelta": lambda tree: timedelta(*tree["v"]).total_seconds(),
    "tz": _raw_zone,
    "unset": lambda tree: None,
    **dict.fromkeys(("deque", "frozenset", "set", "tuple"), _raw_value),
    **dict.fromkeys(("bytearray", "bytes", "date", "decimal", "enum", "float", "path", "uuid", "zone"), _raw_value),
}


def to_base64(data: bytes | bytearray) -> str:
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def from_base64(text: str) -> bytes:
    return binascii.a2b_base64(text, strict_mode=True)
