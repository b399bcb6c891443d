"""A form, and whether a value fits it.

Nothing in here needs the user's classes: a form says all that must be checked, so that a process that has never heard
of them can take an answer. An object of such a class is taken apart into its fields first.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec

from holdfast.codec.refused import Refused, key_part
from holdfast.codec.shapes import ModelShape, name_of, shape_of
from holdfast.views import Field

Problem = tuple[str, str]  # where, such as ".items[2].price", and what
OwnCheck = Callable[[str, Any], Iterable[Problem]]

_SHOWN = 80  # characters of what was given
_TEXTUAL = (Decimal, date, datetime, time, timedelta, UUID)
_ANY = Field("value", "any", required=False)


class Form(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an answer is checked against: a mapping of the fields, or the bare value of the only one if ``single``.

    A form without fields takes anything. ``type`` names what it was made from, for people to read.
    """

    fields: tuple[Field, ...] = ()
    single: bool = False
    type: str | None = None


def store_form(form: Form) -> Any:
    """The form as it is kept in the journal."""
    return msgspec.to_builtins(form)


def load_form(stored: Any) -> Form:
    """The form as it was kept in the journal. A bare list of fields is what is left of an erased question: none."""
    return msgspec.convert({"fields": stored} if isinstance(stored, list) else stored, Form)


def told(problems: Iterable[Problem]) -> tuple[str, ...]:
    """The problems as users read them, each with its path."""
    return tuple(f"{path.lstrip('.') or 'the answer'}: {text}" for path, text in problems)


def shown(value: Any) -> str:
    """What was given, in one line that is not too long."""
    try:
        text = " ".join((str(value) if type(value) in _TEXTUAL else repr(value)).split())
    except Exception:  # of the object's own making, or an integer beyond what Python writes in decimal
        text = f"<{type(value).__qualname__}>"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


# --- values without parts


def _exactly(kind: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise ValueError
        return value

    return read


def _or_text(kind: type, parse: Callable[[str], Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        return parse(value) if type(value) is str else _exactly(kind)(value)

    return read


def _number(value: Any) -> int | float:
    if type(value) not in (int, float) or not math.isfinite(value):  # which an integer beyond all floats does not pass
        raise ValueError
    return value  # type: ignore[no-any-return]


def _decimal(value: Any) -> Decimal:
    made = Decimal(value) if type(value) is int else _or_text(Decimal, Decimal)(value)
    if not made.is_finite():
        raise ValueError
    return made


_READERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "text": (_exactly(str), "text"),
    "integer": (_exactly(int), "an integer"),
    "number": (_number, "a number"),
    "boolean": (_exactly(bool), "true or false"),
    "decimal": (_decimal, "a decimal number, as text such as '9.99'"),
    "date": (_or_text(date, date.fromisoformat), "a date such as 2026-01-31"),
    "time": (_or_text(time, time.fromisoformat), "a time such as 09:30"),
    "datetime": (_or_text(datetime, datetime.fromisoformat), "a date and time such as 2026-01-31T09:30"),
    "duration": (_or_text(timedelta, lambda text: msgspec.convert(text, timedelta)), "a duration such as P1DT12H"),
    "uuid": (_or_text(UUID, UUID), "a UUID"),
    "bytes": (_or_text(bytes, lambda text: msgspec.convert(text, bytes)), "bytes, or base64 text"),
}


def scalar(type: str, value: Any) -> Any:
    """The value of a type without parts, read from its text if it came as such; raises ValueError if it is none."""
    try:
        return _READERS[type][0](value)
    except (ValueError, ArithmeticError):
        raise ValueError(f"{shown(value)} is not {_READERS[type][1]}") from None


# --- bounds

_ORDER: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "minimum": (operator.lt, "is less than"),
    "maximum": (operator.gt, "is more than"),
    "above": (operator.le, "is not more than"),
    "below": (operator.ge, "is not less than"),
}
_NUMBERS = ("integer", "number", "decimal")
_ORDERED = (*_NUMBERS, "date", "time", "datetime", "duration")
_UNITS = {"text": "characters", "bytes": "bytes", "list": "items", "mapping": "entries"}
LIMITS = (*_ORDER, "multiple_of")
_LENGTHS = ("min_length", "max_length")
_BOUNDED = {"multiple_of": _NUMBERS, "pattern": ("text",), **dict.fromkeys(_LENGTHS, tuple(_UNITS))}


def bound_of(field: Field, name: str) -> Any:
    """A bound, as something that values of the field can be compared with; raises ValueError if it is none."""
    bound = getattr(field, name)
    if field.type == "decimal" and type(bound) is float:
        bound = repr(bound)
    return scalar("number" if field.type == "integer" else field.type, bound)


def senseless_bound(field: Field) -> str | None:
    """What is wrong with the bounds of a field themselves."""
    for name in (*LIMITS, *_LENGTHS, "pattern"):
        if (bound := getattr(field, name)) is None:
            continue
        types = _BOUNDED.get(name, _ORDERED)
        if field.type not in types:
            return f"{name}={shown(bound)} is for {', '.join(types)}, not for {field.type}"
        try:
            if name == "pattern":
                re.compile(bound)
            elif name in _LENGTHS:
                if type(bound) is not int or bound < 0:
                    raise ValueError("it is a whole number from 0")
            elif bound_of(field, name) == 0 and name == "multiple_of":
                raise ValueError("nothing but 0 is a multiple of 0")
        except (ValueError, TypeError, re.error) as error:
            return f"{name}={shown(bound)}: {error}"
    return None


def _out_of_bounds(field: Field, value: Any) -> Iterator[str]:
    for name, (fails, text) in _ORDER.items():
        if (bound := getattr(field, name)) is not None:
            try:
                failed = fails(value, bound_of(field, name))
            except TypeError:
                yield f"{shown(value)} cannot be compared with {bound}: only one of them has a time zone"
                continue
            if failed:
                yield f"{shown(value)} {text} {bound}"
    if field.multiple_of is not None and not _is_multiple(value, bound_of(field, "multiple_of")):
        yield f"{shown(value)} is not a multiple of {field.multiple_of}"
    if field.min_length is not None and len(value) < field.min_length:
        yield f"{shown(value)} has fewer than {field.min_length} {_UNITS[field.type]}"
    if field.max_length is not None and len(value) > field.max_length:
        yield f"{shown(value)} has more than {field.max_length} {_UNITS[field.type]}"
    if field.pattern is not None and not re.search(field.pattern, value):
        yield f"{shown(value)} does not match {field.pattern}"


def _is_multiple(value: Any, of: Any) -> bool:
    if type(value) is type(of) is int:
        return value % of == 0
    value, of = (Decimal(repr(one)) if type(one) is float else Decimal(one) for one in (value, of))
    try:
        return value % of == 0  # type: ignore[no-any-return]
    except ArithmeticError:  # more digits than decimals are counted with
        return False


# --- values with parts


def _labelled(field: Field) -> Iterator[tuple[str, str]]:
    """The options and what they are called; an option that is text speaks for itself."""
    for n, option in enumerate(field.options):
        yield str(option), field.labels[n] if field.labels and not isinstance(option, str) else str(option)


def _repeated(items: list[Any]) -> Iterator[int]:
    """The places of items that are there already."""
    seen: set[Any] = set()
    others: list[Any] = []  # which have no hash, such as the fields of an object
    for n, item in enumerate(items):
        try:
            repeated = item in seen
            seen.add(item)
        except TypeError:
            repeated = item in others
            others.append(item)
        if repeated:
            yield n


class Fit:
    """One look at a value: gives it as plain builtins, with defaults filled in, and notes every problem.

    ``own`` tells what a class itself has against the fields of an object, if the class is known.
    """

    def __init__(self, own: OwnCheck = lambda name, value: ()) -> None:
        self.problems: list[Problem] = []
        self._own = own

    def form(self, form: Form, value: Any) -> Any:
        """The whole answer to a form."""
        if form.single:
            return self.value(form.fields[0], value, ".value")
        return self._object(Field("", "object", fields=form.fields, of=form.type), value, "") if form.fields else value

    def value(self, field: Field, value: Any, path: str) -> Any:
        """The value of one field."""
        if value is None:
            if field.required:
                self._note(path, "is required")
            return None
        filled: Any
        match field.type:
            case "any":
                return value
            case "choice":
                return self._choice(field, value, path)
            case "object":
                return self._object(field, value, path)
            case "list":
                filled = self._list(field, value, path)
            case "mapping":
                filled = self._mapping(field, value, path)
            case _:
                try:
                    filled = scalar(field.type, value)
                except ValueError as error:
                    filled = self._note(path, str(error))
        if filled is not None:
            self.problems += ((path, text) for text in _out_of_bounds(field, filled))
        return filled

    def _note(self, path: str, text: str) -> Any:
        """Gives None, which stands for a value that is not there."""
        self.problems.append((path, text))
        return None

    def _choice(self, field: Field, value: Any, path: str) -> Any:
        names = field.labels or field.options
        if isinstance(value, Enum) and name_of(type(value)) == field.of and value._name_ in names:
            return field.options[names.index(value._name_)]
        for option in field.options:
            if type(option) is type(value) and option == value:  # so that True is not 1
                return option
        if type(value) is str and value in field.labels:
            return field.options[field.labels.index(value)]
        known = (f"{option} ({label})" if option != label else label for option, label in _labelled(field))
        return self._note(path, f"{shown(value)} is none of {', '.join(known)}")

    def _list(self, field: Field, value: Any, path: str) -> Any:
        if type(value) in (set, frozenset):
            value = sorted(value, key=repr)  # any order, but always the same
        elif type(value) not in (list, tuple):
            return self._note(path, f"{shown(value)} is not a list")
        filled = [self.value(field.items or _ANY, item, f"{path}[{n}]") for n, item in enumerate(value)]
        if field.unique:
            self.problems += ((f"{path}[{n}]", f"{shown(filled[n])} is there already") for n in _repeated(filled))
        return filled

    def _mapping(self, field: Field, value: Any, path: str) -> Any:
        if not isinstance(value, Mapping):
            return self._note(path, f"{shown(value)} is not a mapping")
        filled = {}
        for key, item in value.items():
            if type(key) is not str:
                self._note(path, f"the key {shown(key)} is not text")
            else:
                filled[key] = self.value(field.items or _ANY, item, path + key_part(key))
        return filled

    def _object(self, field: Field, value: Any, path: str) -> Any:
        given = value if isinstance(value, Mapping) else self._taken_apart(field, value, path)
        if given is None:
            return None
        before = len(self.problems)
        known = {one.name for one in field.fields}
        for name in given:
            if name not in known:
                self._note(f"{path}.{name}", "there is no such field")
        filled = {}
        for one in field.fields:
            item = given.get(one.name, one.default)
            if item is not None or not one.omitted:
                filled[one.name] = self.value(one, item, f"{path}.{one.name}")
        if field.of is not None and len(self.problems) == before:
            self.problems += ((path + inner, text) for inner, text in self._own(field.of, filled))
        return filled

    def _taken_apart(self, field: Field, value: Any, path: str) -> Any:
        """The fields of an object of a user's class."""
        shape = shape_of(type(value))
        if shape is None:
            return self._note(path, f"is a mapping of field names, not {type(value).__name__}")
        if field.of not in (None, name_of(type(value))):
            return self._note(path, f"is a mapping of field names or a {field.of}, not {name_of(type(value))}")
        try:
            fields, rest = shape.take(value)
        except Refused as refused:
            return self._note(path + refused.path(), refused.problem)
        if isinstance(shape, ModelShape):
            fields = {**fields, **rest.get("x", {})}
        elif field.of is not None:
            asked = {one.name for one in field.fields}  # a dataclass may have fields that it computes by itself
            fields = {name: item for name, item in fields.items() if name in asked}
        return {name: item for name, item in fields.items() if item is not msgspec.UNSET}
