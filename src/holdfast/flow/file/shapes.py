"""What a value in a flow file may look like. One description gives the check, the JSON Schema and the reference.

A shape reads a `Node` into plain data, and tells the `Reader` of everything that is wrong, with its place.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, Final

from msgspec import Struct

from holdfast.errors import TemplateRefused
from holdfast.flow.actions.secrets import MARKS
from holdfast.flow.file.document import Node, Problem, Text
from holdfast.flow.template.syntax import Mode
from holdfast.flow.template.template import Template, template

INVALID: Final = object()  # what is wrong was told to the reader
Path = tuple[str | int, ...]


class Found(Struct, frozen=True):
    """A template of the file: where it stands, and what it is."""

    path: Path
    node: Node
    template: Template


class Reader:
    """Reads one file. ``problems`` are all that were found, ``places`` where each value stands."""

    def __init__(self, source: Text) -> None:
        self.source = source
        self.problems: list[Problem] = []
        self.places: dict[Path, Node] = {}
        self.templates: list[Found] = []

    def wrong(self, node: Node, message: str) -> Any:
        """Note a problem at a place."""
        self.problems.append(Problem(self.source.name, node.line, node.column, message))
        return INVALID

    def read(self, shape: Shape, node: Node, path: Path) -> Any:
        """The data of a node."""
        self.places[path] = node
        return shape.read(self, node, path)

    def parse(self, node: Node, path: Path, mode: Mode) -> None:
        """Check a template, and keep it for what is checked about all of them."""
        if not MARKS.isdisjoint(node.value):
            self.wrong(node, "the characters U+FDD0 to U+FDD3 stand for secrets; leave them out")
            return
        try:
            self.templates.append(Found(path, node, template(node.value, mode)))
        except TemplateRefused as refused:
            line, column = self._line_in(node, refused.line or 1)
            self.problems.append(Problem(self.source.name, line, column, f"the template is refused: {refused.why}"))

    def _line_in(self, node: Node, number: int) -> tuple[int, int]:
        """Where the line of that number of a text of several lines begins."""
        text = self.source.text
        is_block = text[node.start : node.start + 1] in ("|", ">")
        if not is_block and (number == 1 or "\n" not in node.value):
            return node.line, node.column
        line = node.line + number - (0 if is_block else 1)
        rest = text[self.source.index(line - 1, 0) : node.end]
        return line, len(rest) - len(rest.lstrip(" ")) + 1


def kind_of(node: Node) -> str:
    """What a node is, for people."""
    if node.kind != "scalar":
        return {"list": "a list", "map": "a mapping"}[node.kind]
    if node.value is None:
        return "nothing"
    names = {bool: "true or false", int: "a number", float: "a number", str: "text"}
    return names[type(node.value)]


def _given(node: Node) -> str:
    is_number = isinstance(node.value, int | float) and not isinstance(node.value, bool)
    return f"{node.value}" if node.kind == "scalar" and is_number else kind_of(node)


class Shape(ABC):
    """What a value may look like. ``told`` says it in a few words."""

    told = "anything"

    @abstractmethod
    def read(self, reader: Reader, node: Node, path: Path) -> Any:
        """The value of a node; what is wrong with it is told to the reader."""

    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """The same as JSON Schema, for editors."""

    def takes(self, node: Node) -> bool:
        """Whether a node looks like this at first sight."""
        return True

    def _wants(self, reader: Reader, node: Node, path: Path) -> Any:
        name = path[-1] if path and isinstance(path[-1], str) else "this"
        return reader.wrong(node, f"`{name}` is {self.told}, not {_given(node)}")


class TextShape(Shape):
    """Text; with a ``mode`` it is a template, with a ``pattern`` it looks like that."""

    def __init__(
        self, told: str = "text", mode: Mode | None = None, pattern: str | None = None, scalars: bool = False
    ) -> None:
        self.told = told
        self._mode: Mode | None = mode
        self._pattern = pattern
        self._scalars = scalars  # whether a number or truth value is taken as its text

    def takes(self, node: Node) -> bool:
        return node.kind == "scalar" and (isinstance(node.value, str) or (self._scalars and node.value is not None))

    def read(self, reader: Reader, node: Node, path: Path) -> Any:
        if self._mode == "condition" and isinstance(node.value, bool):
            return "true" if node.value else "false"
        if not self.takes(node):
            return self._wants(reader, node, path)
        if not isinstance(node.value, str):
            return node.plain
        if self._pattern is not None and not re.fullmatch(self._pattern, node.value):
            return reader.wrong(node, f"{node.value[:80]!r} is not {self.told}")
        if self._mode is not None:
            reader.parse(node, path, self._mode)
        return node.value

    def schema(self) -> dict[str, Any]:
        kinds = ["string", "number", "boolean"] if self._scalars else ["string"]
        kinds += ["boolean"] if self._mode == "condition" else []
        made: dict[str, Any] = {"type": kinds if len(kinds) > 1 else kinds[0]}
        if self._pattern is not None:
            made["pattern"] = f"^(?:{self._pattern})$"
        return made


class ValueShape(Shape):
    """Any value; each text in it is a template."""

    told = "any value"

    def read(self, reader: Reader, node: Node, path: Path) -> Any:
        if node.kind == "list":
            return [reader.read(self, item, (*path, n)) for n, item in enumerate(node.value)]
        if node.kind == "map":
            return {key.value: reader.read(self, value, (*path, key.value)) for key, value in node.value}
        if isinstance(node.value, str):
            reader.parse(node, path, "value")
        return node.value

    def schema(self) -> dict[str, Any]:
        return {}


class DataShape(Shape):
    """Any value, as it is."""

    told = "any value"

    def read(self, reader: Reader, node: Node, path: Path) -> Any:
        return node.plain_data()

    def schema(self) -> dict[str, Any]:
        return {}


class NumberShape(Shape):
    """A number within bounds."""

    def __init__(self, least: float, most: float, whole: bool = True) -> None:
        self._least, self._most, self._whole = least, most, whole
        self.told = f"a {'whole ' if whole else ''}number from {least:,} to {most:,}"

    def takes(self, node: Node) -> bool:
        kinds: Any = int if self._whole else int | float
        return node.kind == "scalar" and isinstance(node.value, kinds) and not isinstance(node.value, bool)

    def read(self, reader: Reader, node: Node, path: Path) -> Any:
        if not self.takes(node) or not self._least <= node.value <= self._most:
            return self._wants(reader, node, path)
        return node.value

    def schema(self) -> dict[str, Any]:
        return {"type": "integer" if self._whole else "number", "minimum": self._least, "maximum": self._most}


class BoolShape(Shape):
    """True or false."""

    told = "true or false"

    def takes(self, node: Node) -> bool:
        return node.kind == "scalar" and isinstance(node.value, bool)

    def read(self, reader: Reader, node: Node, path: Path) -> Any:
        return node.value if self.takes(node) else self._wants(reader, node, path)

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


class ChoiceShape(Shape):
    """One of some words."""

    def __init__(self, *words: str) -> None:
        self._words = words
        self.told = f"one of {', '.join(words)}"

    def takes(self, node: Node) -> bool:
        return node.kind == "scalar" and isinstance(node.value, str)

    def read(self, reader: Reader, node: Node, path: Path) -> Any:
        if node.value in self._words and node.kind == "scalar":
            return node.value
        if isinstance(node.value, str):
            return reader.wrong(node, f"{node.value[:80]!r} is not {self.told}{nearest(node.value, self._words)}")
        return self._wants(reader, node, path)

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self._words)}


class ListShape(Shape):
    """A list of one shape."""

    def __init__(self, item: Shape, told: str, least: int = 0) -> None:
        self._item, self.told, self._least = item, told, least

    def takes(self, node: Node) -> bool:
        return node.kind == "list"

    def read(self, reader: Reader, node: Node, path: Path) -> Any:
        if not self.takes(node):
            return self._wants(reader, node, path)
        if len(node.value) < self._least:
            return reader.wrong(node, f"`{path[-1]}` is empty; it needs at least {self._least}")
        return [reader.read(self._item, item, (*path, n)) for n, item in enumerate(node.value)]

    def schema(self) -> dict[str, Any]:
        least = {"minItems": self._least} if self._least else {}
        return {"type": "array", "items": self._item.schema(), **least}


class MapShape(Shape):
    """A mapping of names to one shape."""

    def __init__(self, item: Shape, told: str, names: str = r"[A-Za-z_][A-Za-z0-9_]*") -> None:
        self._item, self.told, self._names = item, told, names

    def takes(self, node: Node) -> bool:
        return node.kind == "map"

    def read(self, reader: Reader, node: Node, path: Path) -> Any:
        if not self.takes(node):
            return self._wants(reader, node, path)
        made = {}
        for key, value in node.value:
            if not re.fullmatch(self._names, key.value):
                reader.wrong(key, f"{key.value[:80]!r} is not a name; use letters, digits and _")
            made[key.value] = reader.read(self._item, value, (*path, key.value))
        return made

    def schema(self) -> dict[str, Any]:
        names = {"propertyNames": {"pattern": f"^(?:{self._names})$"}} if self._names != ".+" else {}
        return {"type": "object", "additionalProperties": self._item.schema(), **names}


class Key(Struct, frozen=True):
    """One key of a block: its name, its shape, and what it means in a sentence."""

    name: str
    shape: Shape
    doc: str
    required: bool = False


class BlockShape(Shape):
    """A mapping with known keys."""

    def __init__(self, keys: Sequence[Key], told: str, name: str = "") -> None:
        self.keys = {key.name: key for key in keys}
        self.told = told
        self.name = name  # of the definition in the schema

    def takes(self, node: Node) -> bool:
        return node.kind == "map"

    def read(self, reader: Reader, node: Node, path: Path) -> Any:
        if not self.takes(node):
            return self._wants(reader, node, path)
        made: dict[str, Any] = {"at": [node.line, node.column]} if self.name == "step" else {}
        for name, value in node.value:
            key = self.keys.get(name.value)
            if key is None:
                known = f"; there are {', '.join(self.keys)}" if len(self.keys) <= 12 else ""
                near = nearest(name.value, list(self.keys))
                reader.wrong(name, f"unknown key {name.value[:80]!r}{near or known}")
            else:
                made[name.value] = reader.read(key.shape, value, (*path, name.value))
        for key in self.keys.values():
            if key.required and key.name not in made:
                reader.wrong(node, f"the key `{key.name}` is missing: {key.doc}")
        return made

    def schema(self) -> dict[str, Any]:
        return {"$ref": f"#/$defs/{self.name}"} if self.name else self.whole()

    def whole(self) -> dict[str, Any]:
        """The schema itself, where a name stands for it elsewhere."""
        properties = {key.name: {**key.shape.schema(), "description": key.doc} for key in self.keys.values()}
        made: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": properties}
        if required := [key.name for key in self.keys.values() if key.required]:
            made["required"] = required
        return made


class EitherShape(Shape):
    """The first of some shapes that takes the node."""

    def __init__(self, *shapes: Shape, told: str = "") -> None:
        self._shapes = shapes
        self.told = told or " or ".join(shape.told for shape in shapes)

    def takes(self, node: Node) -> bool:
        return any(shape.takes(node) for shape in self._shapes)

    def read(self, reader: Reader, node: Node, path: Path) -> Any:
        for shape in self._shapes:
            if shape.takes(node):
                return shape.read(reader, node, path)
        return self._wants(reader, node, path)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [shape.schema() for shape in self._shapes]}


class NullShape(Shape):
    """Nothing at all."""

    told = "nothing"

    def takes(self, node: Node) -> bool:
        return node.kind == "scalar" and node.value is None

    def read(self, reader: Reader, node: Node, path: Path) -> Any:
        return None

    def schema(self) -> dict[str, Any]:
        return {"type": "null"}


def nearest(word: str, words: Sequence[str]) -> str:
    """A hint at the word that was meant, if one is near."""
    found = get_close_matches(word, words, n=1)
    return f"; did you mean `{found[0]}`?" if found else ""
