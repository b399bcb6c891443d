"""Whether a list has only grown, without serializing what was there before.

A list of messages is put with every checkpoint, and mostly it is the one before with something at its end. But an
element may have been changed in place: the same object need not say the same. What is compared:

- An object of pydantic's that dumps its fields as they are, and has nothing in them but texts and empty containers, is
  compared field by field, by identity where that is enough. Most messages are that, and it costs next to nothing.
- Anything else is compared in packed form, in pieces that stay in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress, count
from operator import attrgetter, is_
from typing import Any

import ormsgpack
from msgspec import Struct
from pydantic import BaseModel

PIECE = 16  # elements

_CONTAINERS = (dict, list)
_dict_of = attrgetter("__dict__")
_extra_of = attrgetter("__pydantic_extra__")

PACK = (
    ormsgpack.OPT_NON_STR_KEYS
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_UUID
    | ormsgpack.OPT_REPLACE_SURROGATES
)


class Marks:
    """What the elements of a list were when it was looked at. ``dump`` gives the bytes of one, as they are stored."""

    def __init__(self, dump: Callable[[Any], bytes]) -> None:
        self.length = 0
        self._dump = dump
        self._plain: list[bool] = []  # whether an element is compared by its fields
        self._other: list[bool] = []  # the opposite
        self._fields: list[dict[str, Any]] = []  # as they were
        self._objects: list[Any] = []
        self._dicts: list[dict[str, Any]] = []  # the fields, where the objects have them
        self._containers: list[Any] = []  # among the fields, or of fields that are not declared; they are empty
        self._pieces: list[bytes] = []

    def begin(self, values: list[Any]) -> bool:
        """Whether the list begins with all the elements that were marked, unchanged."""
        if len(values) < self.length:
            return False
        plain = list(compress(values, self._plain)) if self._pieces else values
        if any(self._containers) or not self._have_same_fields(plain):
            return False
        return not self._pieces or self._has_same_others(list(compress(values, self._other)))

    def _have_same_fields(self, plain: list[Any]) -> bool:
        """Whether the objects are those that were marked, or like them, with the same fields.

        There may be thousands of them: so there is no loop of Python's own, and little memory is looked at. Dicts are
        compared no further where a value in them is the same object.
        """
        if all(map(is_, self._objects, plain)):
            return self._dicts == self._fields
        plain = plain[: len(self._objects)]
        if list(map(type, plain)) != list(map(type, self._objects)) or any(map(_extra_of, plain)):
            return False
        return list(map(_dict_of, plain)) == self._fields

    def _has_same_others(self, others: list[Any]) -> bool:
        try:
            return self._packed(others) == self._pieces
        except (TypeError, ValueError):  # it can no longer be stored, and that will be told
            return False

    def add(self, values: list[Any], start: int) -> None:
        """Mark the elements of a list from ``start`` on."""
        for each in values[start:]:
            plain = _is_plain(each)
            self._plain.append(plain)
            self._other.append(not plain)
            if plain:
                self._objects.append(each)
                self._dicts.append(each.__dict__)
                self._fields.append(dict(each.__dict__))
                inside = (*each.__dict__.values(), each.__pydantic_extra__)
                self._containers += [one for one in inside if type(one) in _CONTAINERS]
        self.length = len(self._plain)
        others = list(compress(values, self._other)) if len(self._objects) < self.length else []
        self._pieces = self._packed(others)

    def _packed(self, values: list[Any]) -> list[bytes]:
        shallow = [_shallow(each) for each in values]
        return [
            ormsgpack.packb(shallow[start : start + PIECE], self._dump, PACK) for start in range(0, len(values), PIECE)
        ]


class Look(Struct, frozen=True):
    """An object as it was at a moment, to tell later whether it still is: its fields, if it is compared by them.

    It is taken before the tree of the object is made, not after. Other threads may change the object meanwhile: then
    the tree may say more than was seen, and it is made once more than it had to be.
    """

    value: Any
    fields: dict[str, Any] | None

    @classmethod
    def at(cls, value: Any) -> Look:
        """Look at an object now."""
        return cls(value, dict(value.__dict__) if _is_plain(value) else None)

    def sees(self, value: Any) -> bool:
        """Whether this is the object, and is known to be unchanged."""
        same = self.value is value and self.fields is not None and _is_plain(value)
        return same and bool(value.__dict__ == self.fields)


def _shallow(value: Any) -> Any:
    """Something that differs whenever the dump of the value does, and costs less."""
    number = _NUMBERS.get(type(value)) or _number(type(value))
    return value if number < 0 else (number, value.__dict__, value.__pydantic_extra__)


def _is_plain(value: Any) -> bool:
    """Whether an object is compared by its fields: nothing in them can change and be equal to what it was."""
    if (_NUMBERS.get(type(value)) or _number(type(value))) < 0 or value.__pydantic_extra__:
        return False
    return all(
        one is None or type(one) is str or (type(one) in _CONTAINERS and not one) for one in value.__dict__.values()
    )


_NUMBERS: dict[type, int] = {}  # of the classes that dump their fields as they are; -1 for the others
_next = count(1)


def _number(kind: type) -> int:
    number = _NUMBERS[kind] = next(_next) if _dumps_its_fields(kind) else -1
    return number


def _dumps_its_fields(kind: type) -> bool:
    """Whether a class is one of pydantic's that dumps its fields as they are, and that keeps them where they are."""
    if not issubclass(kind, BaseModel) or kind.model_dump is not BaseModel.model_dump:
        return False
    if kind.model_config.get("validate_assignment"):  # then each change makes another dict of them
        return False
    own = kind.__pydantic_decorators__
    return not (own.model_serializers or own.field_serializers or own.computed_fields)
