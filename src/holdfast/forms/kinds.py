"""What a type asks for, and how its objects are made: a `Reading` has both, for a type and all that it is made of."""

from __future__ import annotations

import typing
from collections import abc
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union
from uuid import UUID

import msgspec
from msgspec.structs import replace

from holdfast.codec.shapes import name_of
from holdfast.errors import UsageError
from holdfast.forms.check import LIMITS, Fit, Form, bound_of, senseless_bound
from holdfast.forms.parts import (
    LEFT_TO_THE_CLASS,
    NO_DEFAULT,
    Part,
    describe,
    is_typed_dict,
    maker_of,
    parts_of,
    refuse,
)
from holdfast.views import Field, FieldType

_SCALARS: dict[Any, FieldType] = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "boolean",
    Decimal: "decimal",
    date: "date",
    time: "time",
    datetime: "datetime",
    timedelta: "duration",
    UUID: "uuid",
    bytes: "bytes",
}
_LISTS: dict[Any, Callable[[Iterable[Any]], Any]] = {
    list: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
    abc.Sequence: list,
    abc.MutableSequence: list,
    abc.Collection: list,
    abc.Iterable: list,
    abc.Set: frozenset,
    abc.MutableSet: set,
}
_MAPPINGS = (dict, abc.Mapping, abc.MutableMapping)
_META = {"ge": "minimum", "le": "maximum", "gt": "above", "lt": "below", "title": "label"}
_META |= {name: name for name in ("multiple_of", "min_length", "max_length", "pattern", "description")}


class Reading(NamedTuple):
    """A type as a field, and what makes its objects from the plain values that fit the field."""

    field: Field
    build: Callable[[Any], Any]
    hashable: bool = True

    def made(self, value: Any) -> Any:
        return None if value is None else self.build(value)


class Kinds:
    """Reads types. ``classes`` are those of the user that it has met, and ``readings`` how each was read."""

    def __init__(self) -> None:
        self.classes: dict[str, type] = {}
        self.readings: dict[str, Reading] = {}
        self._inside: list[type] = []

    def form(self, kind: Any) -> tuple[Form, Reading]:
        """The form that asks for a type; raises `UsageError` if nothing can."""
        reading = self.read(kind, describe(kind))
        field = reading.field
        if field.type == "object" and field.required:
            return Form(field.fields, type=field.of), reading
        return Form((field,), single=True, type=describe(kind)), reading

    def read(self, kind: Any, where: str) -> Reading:
        """One type, found at a place that a refusal names."""
        origin = typing.get_origin(kind)
        container = kind if origin is None else origin
        if origin is Annotated:
            return _bounded(self.read(kind.__origin__, where), kind.__metadata__, where)
        if origin in (Union, UnionType):
            return self._union(kind, where)
        if origin is Literal:
            return _literal(kind, where)
        if kind is Any or kind is object:
            return Reading(Field("value", "any", required=False), _same)
        if not isinstance(container, type):
            return self._named(kind, where)
        if container in _LISTS:
            return self._list(kind, _LISTS[container], where)
        if container in _MAPPINGS:
            return self._mapping(kind, where)
        if origin is not None:
            refuse(where, kind, "is generic; make a class of its own of it")
        if kind in _SCALARS:
            return Reading(Field("value", _SCALARS[kind]), float if kind is float else _same)
        return _enum(kind, where) if issubclass(kind, Enum) else self._class(kind, where)

    # Types that stand for others

    def _named(self, kind: Any, where: str) -> Reading:
        for name in ("__supertype__", "__value__"):  # NewType and `type X = ...`
            if hasattr(kind, name):
                return self.read(getattr(kind, name), where)
        if isinstance(kind, typing.TypeVar):
            refuse(where, kind, "is open: it can be any type")
        refuse(where, kind, "is not a type that can make a form")

    def _union(self, kind: Any, where: str) -> Reading:
        args = typing.get_args(kind)
        rest = [arg for arg in args if arg not in (NoneType, msgspec.UnsetType)]
        if rest in ([int, float], [float, int]):
            reading = Reading(Field("value", "number"), _same)
        elif len(rest) != 1:
            refuse(where, kind, "is a choice of types, which no form can show")
        else:
            reading = self.read(rest[0], where)
        if len(args) == len(rest):
            return reading
        return reading._replace(field=replace(reading.field, required=False, omitted=msgspec.UnsetType in args))

    # Containers

    def _list(self, kind: Any, build: Callable[[Iterable[Any]], Any], where: str) -> Reading:
        args = typing.get_args(kind)
        if build is tuple and args:
            if len(args) != 2 or args[1] is not Ellipsis:
                refuse(where, kind, "has places without names; make a NamedTuple of it")
            args = args[:1]
        items = self.read(args[0] if args else Any, f"{where}[]")
        unique = build in (set, frozenset)
        if unique and not items.hashable:
            refuse(where, kind, "has items that cannot be in a set; ask for a list of them")
        field = Field("value", "list", items=items.field, unique=unique)
        hashable = items.hashable and build in (tuple, frozenset)
        return Reading(field, lambda value: build(items.made(item) for item in value), hashable)

    def _mapping(self, kind: Any, where: str) -> Reading:
        key, item = typing.get_args(kind) or (str, Any)
        if key is not str:
            refuse(where, kind, "has keys that are not text")
        items = self.read(item, f"{where}[]")
        field = Field("value", "mapping", items=items.field)
        return Reading(field, lambda value: {name: items.made(item) for name, item in value.items()}, hashable=False)

    # Classes

    def _class(self, cls: type, where: str) -> Reading:
        if cls in self._inside:
            refuse(where, cls, "contains itself, and a form has an end")
        self._inside.append(cls)
        parts = list(parts_of(cls, where))
        if not parts:
            refuse(where, cls, "has no fields to ask for")
        readings = {part.name: self._part(part, where) for part in parts}
        self._inside.pop()
        make = maker_of(cls, where)
        field = Field("value", "object", fields=tuple(one.field for one in readings.values()), of=name_of(cls))

        def build(value: dict[str, Any]) -> Any:
            return make({name: readings[name].made(item) for name, item in value.items()})

        reading = Reading(field, build, hashable=cls.__hash__ is not None)
        if not is_typed_dict(cls):
            self.classes[name_of(cls)] = cls
            self.readings[name_of(cls)] = reading
        return reading

    def _part(self, part: Part, where: str) -> Reading:
        where = f"{where}.{part.name}"
        reading = _bounded(self.read(part.hint, where), part.metadata, where)
        field = replace(reading.field, name=part.name)
        if part.default is None:
            field = replace(field, required=False)
        elif part.default is not NO_DEFAULT:
            plain = None if part.default is LEFT_TO_THE_CLASS else _plain(field, part.default)
            left = {"required": False, "omitted": True} if plain is None else {"default": plain}
            field = replace(field, **left)
        return reading._replace(field=field)


def _same(value: Any) -> Any:
    return value


def _plain(field: Field, default: Any) -> Any:
    """A default as it is stored; None if it does not come back as it was, so that only the class itself can give it."""
    fit = Fit()
    filled = fit.value(field, default, "")
    if fit.problems:
        return None
    try:
        plain = msgspec.json.decode(msgspec.json.encode(filled))
    except (TypeError, ValueError, RecursionError):
        return None
    return plain if fit.value(field, plain, "") == filled and not fit.problems else None


def _bounded(reading: Reading, metadata: Iterable[Any], where: str) -> Reading:
    """The reading with what annotations add to it: bounds, a title and a description."""
    given = dict(_constraints(metadata))
    if "tz" in given:
        raise UsageError(f"{where}: no form has a constraint on time zones (tz=); check it in the class")
    if "pattern" in given:
        given["pattern"] = getattr(given["pattern"], "pattern", given["pattern"])
    field = replace(reading.field, **given)
    if problem := senseless_bound(field):
        raise UsageError(f"{where}: {problem}")
    plain = {name: msgspec.to_builtins(bound_of(field, name)) for name in LIMITS if name in given}
    return reading._replace(field=replace(field, **plain))


def _constraints(metadata: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """What annotations ask for, by the names of `Field`: msgspec, pydantic and annotated_types name it alike."""
    for one in metadata:
        for name, ours in _META.items():
            value = getattr(one, name, None)
            if isinstance(value, str) or (value is not None and ours not in ("label", "description")):
                yield ours, value
        if isinstance(one, msgspec.Meta) and one.tz is not None:
            yield "tz", one.tz
        inner = getattr(one, "metadata", None)  # a pydantic FieldInfo
        if isinstance(inner, list | tuple):
            yield from _constraints(inner)


# --- choices


def _option(member: Any) -> str | int | bool:
    """An enum's members are chosen by value where that is text or a whole number for all of them, else by name."""
    if not isinstance(member, Enum):
        return member  # type: ignore[no-any-return]
    plain = all(type(one.value) in (str, int) for one in type(member))
    return member.value if plain else member.name


def _choice(members: Iterable[Any], required: bool, of: str | None) -> Reading:
    table = {(type(_option(member)), _option(member)): member for member in members}
    options = tuple(option for _, option in table)
    names = tuple(member.name if isinstance(member, Enum) else str(member) for member in table.values())
    labels = names if of is not None and names != options else ()
    field = Field("value", "choice", required, options, labels=labels, of=of)
    return Reading(field, lambda value: table[type(value), value])


def _enum(cls: type[Enum], where: str) -> Reading:
    if not list(cls):
        refuse(where, cls, "has no members to choose from")
    return _choice(cls, True, name_of(cls))


def _literal(kind: Any, where: str) -> Reading:
    members = [member for member in typing.get_args(kind) if member is not None]
    if not members or any(isinstance(member, bytes) for member in members):
        refuse(where, kind, "has no text or numbers to choose from")
    kinds = {type(member) for member in members}
    of = name_of(kinds.pop()) if len(kinds) == 1 and isinstance(members[0], Enum) else None
    return _choice(members, len(members) == len(typing.get_args(kind)), of)
