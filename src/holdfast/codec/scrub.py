"""Takes the values of secrets out of what is about to be stored or shown.

A value is replaced as it is, and in the spellings that it has in messages: as `repr`, `ascii` and JSON write it, and as
part of a URL. Short values stand in too many harmless places to be replaced.

What holds a value and cannot be replaced, because a program is to read it again, is refused (`Scrub.is_in`): a value
of eight characters or more anywhere in a text, a shorter one where it is a whole text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast.codec.tree import TAG, from_base64, to_base64

MARK = "***"
_SHORTEST = 4
FOUND_ANYWHERE = 8


class Scrub:
    """Replaces these values in texts and trees."""

    def __init__(self, values: Iterable[str | bytes]) -> None:
        long = [value for value in values if len(value) >= _SHORTEST]
        # The longest first: one secret may be a part of another.
        self._texts = sorted({text for value in long for text in spellings(value)}, key=len, reverse=True)
        self._bytes = sorted({_as_bytes(value) for value in long}, key=len, reverse=True)
        quoted = [msgspec.json.encode(text) for text in self._texts if _is_text(text)]
        self._needles = [text if len(text) < FOUND_ANYWHERE + 2 else text[1:-1] for text in quoted]

    def is_in(self, text: bytes) -> bool:
        """Whether one of the values is in a JSON text."""
        return any(needle in text for needle in self._needles)

    def text(self, text: str) -> str:
        for secret in self._texts:
            text = text.replace(secret, MARK)
        return text

    def tree(self, tree: Any) -> Any:
        """The tree with every text and all bytes in it scrubbed; tags and names of types stay, so that it is read."""
        if type(tree) is str:
            return self.text(tree)
        if type(tree) is list:
            return [self.tree(item) for item in tree]
        if type(tree) is not dict or not self._texts:
            return tree
        return self._tag(tree) if TAG in tree else self._entries(tree)

    def _entries(self, entries: dict[str, Any]) -> dict[str, Any]:
        return {self.text(key): self.tree(item) for key, item in entries.items()}

    def _tag(self, tag: dict[str, Any]) -> dict[str, Any]:
        match tag[TAG]:
            case "bytes" | "bytearray":
                return {**tag, "v": to_base64(self._data(from_base64(tag["v"])))}
            case "map":
                return {**tag, "v": self._entries(tag["v"])}
            case "as" | "deque" | "dict" | "frozenset" | "odict" | "path" | "set" | "tuple":
                return {**tag, "v": self.tree(tag["v"])}
            case "obj":
                return {**tag, **{part: self._fields(tag[part]) for part in ("f", "r") if part in tag}}
            case _:
                return tag

    def _fields(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {name: self.tree(item) for name, item in fields.items()}

    def _data(self, data: bytes) -> bytes:
        for secret in self._bytes:
            data = data.replace(secret, MARK.encode())
        return data


def _is_text(text: str) -> bool:
    """Whether it can be a part of JSON: lone surrogates cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _as_bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")


def spellings(value: str | bytes) -> set[str]:
    """The texts that a value may stand as in a message."""
    from json import dumps
    from urllib.parse import quote

    found = {repr(value)[2:-1]} if isinstance(value, bytes) else set()
    text = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
    as_json = {dumps(text)[1:-1], dumps(text, ensure_ascii=False)[1:-1]}
    return found | as_json | {text, repr(text)[1:-1], ascii(text)[1:-1], quote(text, safe="", errors="replace")}
