"""A YAML file as nodes that know their place.

The events of the YAML parser are put together here, with limits on size, depth and aliases, so that no file can cost
more than a file of that size should. Plain scalars are read as YAML 1.2 does: ``yes``, ``1:30`` and dates are text.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

MAX_BYTES = 1_000_000  # of one file
MAX_NODES = 20_000  # with what aliases stand for
MAX_DEPTH = 40
_MAX_DIGITS = 30  # of a number

_STANDARD = "tag:yaml.org,2002:"
_RESOLVED = {"int", "float", "bool", "null", "timestamp", "value", "merge"}
_CONTAINERS = {"map", "seq"}
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]{1,3})?")
_BREAKS = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}


class Problem(Struct, frozen=True, order=True):
    """Something that is wrong with a flow, at a place in its file; a warning does not keep it from running."""

    file: str
    line: int
    column: int
    message: str
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.severity}: {self.message}"


class Node(Struct, eq=False):
    """A scalar, list or mapping. Lines and columns count from 1; ``start`` and ``end`` are places in the text."""

    line: int
    column: int
    value: Any  # of a scalar: the value; else a list of nodes, or of pairs of nodes
    kind: Literal["scalar", "list", "map"] = "scalar"
    start: int = 0
    end: int = 0
    size: int = 1  # how many nodes it stands for
    depth: int = 0  # how many lists and mappings it has inside of each other
    plain: str = ""  # of a scalar: as it is written

    def plain_data(self) -> Any:
        """The same as lists, dicts and scalars."""
        if self.kind == "scalar":
            return self.value
        if self.kind == "list":
            return [item.plain_data() for item in self.value]
        return {key.value: value.plain_data() for key, value in self.value}


class NotRead(Exception):
    """The text is not a document: line, column and why."""

    def __init__(self, line: int, column: int, message: str) -> None:
        self.line, self.column, self.message = line, column, message
        super().__init__(message)


class Text(Struct, frozen=True):
    """The text of a file, and where its lines begin."""

    name: str
    text: str
    lines: tuple[int, ...]

    @classmethod
    def of(cls, name: str, text: str) -> Text:
        return cls(name, text, (0, *(found.end() for found in _BREAKS.finditer(text))))

    def index(self, line: int, column: int) -> int:
        """The place of a line and column, which count from 0."""
        start = self.lines[line] if line < len(self.lines) else len(self.text)
        return min(start + column, len(self.text))

    def place(self, index: int) -> tuple[int, int]:
        """Line and column of a place, from 1."""
        from bisect import bisect_right

        line = bisect_right(self.lines, index) - 1
        return line + 1, index - self.lines[line] + 1


def decoded(data: bytes) -> str:
    """The text of a file's bytes; raises `NotRead`."""
    if len(data) > MAX_BYTES:
        raise NotRead(1, 1, f"the file has {len(data):,} bytes, and a flow has at most {MAX_BYTES:,}")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        column = error.start - data[: error.start].rfind(b"\n")
        raise NotRead(line, column, "the file is not UTF-8 text") from None


def compose(source: Text) -> Node:
    """The one document of a text; raises `NotRead`."""
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _Composer(source).compose(yaml.parse(source.text, Loader=loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
        raise NotRead(line, column, f"this is not YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        line, column = source.place(min(getattr(error, "position", 0), len(source.text)))
        raise NotRead(line, column, f"this is not YAML: {getattr(error, 'reason', error)}") from None
    except RecursionError:
        raise NotRead(1, 1, f"it is nested more than {MAX_DEPTH} deep") from None


class _Composer:
    def __init__(self, source: Text) -> None:
        self._source = source
        self._anchors: dict[str, Node] = {}
        self._open: list[Node] = []
        self._keys: list[Node | None] = []  # of each open mapping: the key that waits for its value
        self._seen: list[dict[str, int]] = []  # of each open mapping: its keys, and their lines
        self._root: Node | None = None

    def compose(self, events: Any) -> Node:
        import yaml

        documents = total = 0
        for event in events:
            line, column = event.start_mark.line + 1, event.start_mark.column + 1
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise NotRead(line, column, "a file has one flow; a second document begins here")
            elif isinstance(event, yaml.AliasEvent):
                node = self._anchors.get(event.anchor or "")
                if node is None or node in self._open:
                    raise NotRead(line, column, f"there is no anchor &{event.anchor} that ends before here")
                total += node.size
                if len(self._open) + node.depth > MAX_DEPTH:
                    raise NotRead(line, column, f"it is nested more than {MAX_DEPTH} deep")
                self._add(node)
            elif isinstance(event, yaml.ScalarEvent | yaml.SequenceStartEvent | yaml.MappingStartEvent):
                total += 1
                self._begin(event, line, column)
            elif isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent):
                self._end(event)
            if total > MAX_NODES:
                raise NotRead(line, column, f"it stands for more than {MAX_NODES:,} values; write less, or use a file")
        if self._root is None:
            raise NotRead(1, 1, "the file is empty; a flow has at least `name:` and `steps:`")
        return self._root

    def _begin(self, event: Any, line: int, column: int) -> None:
        import yaml

        tag = event.tag
        if tag is not None and not (
            tag.startswith(_STANDARD) and tag[len(_STANDARD) :] in {"str", *_RESOLVED, *_CONTAINERS}
        ):
            raise NotRead(line, column, f"the tag {tag} is not for flows; leave it out")
        start = self._source.index(line - 1, column - 1)
        end = self._source.index(event.end_mark.line, event.end_mark.column)
        if isinstance(event, yaml.ScalarEvent):
            is_text = bool(event.style) or tag == _STANDARD + "str"  # the two parsers tell plain style by "" or None
            value = event.value if is_text else _resolved(event.value, line, column)
            self._added(event, Node(line, column, value, "scalar", start, end, plain=event.value))
            return
        if len(self._open) >= MAX_DEPTH:
            raise NotRead(line, column, f"it is nested more than {MAX_DEPTH} deep")
        kind: Any = "list" if isinstance(event, yaml.SequenceStartEvent) else "map"
        node = Node(line, column, [], kind, start, end)
        self._added(event, node)
        self._open.append(node)
        self._keys.append(None)
        self._seen.append({})

    def _added(self, event: Any, node: Node) -> None:
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        self._add(node)

    def _add(self, node: Node) -> None:
        if not self._open:
            self._root = node
            return
        above = self._open[-1]
        if above.kind == "list":
            above.value.append(node)
        elif self._keys[-1] is None:
            self._keys[-1] = self._key(node)
        else:
            above.value.append((self._keys[-1], node))
            self._keys[-1] = None

    def _key(self, key: Node) -> Node:
        if key.kind != "scalar":
            raise NotRead(key.line, key.column, "a key is text, not a list or mapping")
        if key.value is not None and not isinstance(key.value, str):
            key = replace(key, value=key.plain)
        if not isinstance(key.value, str) or not key.value:
            raise NotRead(key.line, key.column, "a key is text that is not empty")
        if key.value == "<<":
            raise NotRead(key.line, key.column, "merge keys (<<) are not for flows; write the keys out")
        seen = self._seen[-1]
        if key.value in seen:
            raise NotRead(key.line, key.column, f"{key.value!r} is here twice; the first is in line {seen[key.value]}")
        seen[key.value] = key.line
        return key

    def _end(self, event: Any) -> None:
        node = self._open.pop()
        self._keys.pop()
        self._seen.pop()
        node.end = self._source.index(event.end_mark.line, event.end_mark.column)
        parts = node.value if node.kind == "list" else [part for pair in node.value for part in pair]
        node.size = 1 + sum(part.size for part in parts)
        node.depth = 1 + max((part.depth for part in parts), default=0)


def _resolved(text: str, line: int, column: int) -> Any:
    if text in _WORDS or text.lower() in ("true", "false", "null"):
        return _WORDS[text.lower()]
    if _INTEGER.fullmatch(text):
        if len(text) > _MAX_DIGITS:
            raise NotRead(
                line, column, f"the number has more than {_MAX_DIGITS} digits; put it in quotes if it is text"
            )
        return int(text)
    if len(text) <= _MAX_DIGITS * 2 and _NUMBER.fullmatch(text):
        if not isfinite(float(text)):
            raise NotRead(line, column, "the number is too large; put it in quotes if it is text")
        return float(text)
    return text
