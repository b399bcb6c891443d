"""The form of a question: which fields it has, and whether an answer fits them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.engine.checks import shown
from holdfast.errors import AnswerRefused, UsageError
from holdfast.views import Field

_TYPES: dict[Any, str] = {str: "text", int: "integer", float: "number", bool: "boolean"}
_NAMES = frozenset({"text", "integer", "number", "boolean", "choice"})


def form(fields: Iterable[Field | Mapping[str, Any]]) -> tuple[Field, ...]:
    """The fields of a question, checked. Each is a `Field` or a mapping with the same names."""
    if isinstance(fields, Mapping | Field | str) or not isinstance(fields, Iterable):
        raise UsageError(f"{shown('fields', fields)}: is a list of fields, such as [Field('name', 'text')]")
    made = tuple(_field(field) for field in fields)
    names = [field.name for field in made]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"a question has each field once; given twice: {', '.join(twice)}")
    return made


def _field(given: Field | Mapping[str, Any]) -> Field:
    if isinstance(given, Field):
        field = given
    elif not isinstance(given, Mapping):
        raise UsageError(f"{shown('fields', [given])}: each is a Field or a mapping, such as Field('name', 'text')")
    else:
        unknown = set(given) - set(Field.__struct_fields__)
        if unknown or "name" not in given:
            raise UsageError(f"field {dict(given)!r}: needs a name, and knows {', '.join(Field.__struct_fields__)}")
        field = Field(**given)
    _check_parts(field.name, field.label, field.required, field.options)
    kind = _kind(field.type)
    options = tuple(field.options)
    if options and kind == "text":
        kind = "choice"
    if kind not in _NAMES:
        raise UsageError(f"field {field.name}: {shown('type', field.type)} is none of {', '.join(sorted(_NAMES))}")
    if (kind == "choice") != bool(options) or not all(isinstance(option, str) for option in options):
        raise UsageError(f"field {field.name}: a choice has options (text), and only a choice has")
    made = replace(field, type=kind, options=options)
    if made.default is not None and (problem := _problem(made, made.default)):
        raise UsageError(f"the default of {problem}")
    return made


def _kind(given: Any) -> Any:
    return _TYPES.get(given, given) if isinstance(given, str | type) else None


def _check_parts(name: Any, label: Any, required: Any, options: Any) -> None:
    """What is stored must be of the types that it is read back as."""
    if not isinstance(name, str) or not name:
        raise UsageError(f"a field's name is text, not {name!r}")
    if not isinstance(label, str | None):
        raise UsageError(f"field {name}: {shown('label', label)} is not text")
    if not isinstance(required, bool):
        raise UsageError(f"field {name}: {shown('required', required)} is neither True nor False")
    if not isinstance(options, list | tuple):
        raise UsageError(f"field {name}: {shown('options', options)} is not a list of text")


def check_answer(run: str, fields: tuple[Field, ...], answer: Any) -> Any:
    """The answer with defaults filled in; raises `AnswerRefused` naming every problem.

    A question without fields takes any value that can be stored.
    """
    if not fields:
        return answer
    if not isinstance(answer, Mapping):
        raise AnswerRefused(run, (f"the answer is a mapping of field names, not {type(answer).__name__}",))
    known = {field.name for field in fields}
    problems = [f"{name}: there is no such field" for name in answer if name not in known]
    filled: dict[str, Any] = {}
    for field in fields:
        value = answer.get(field.name, field.default)
        if value is None:
            if field.required:
                problems.append(f"{field.name}: is required")
            filled[field.name] = None
        elif problem := _problem(field, value):
            problems.append(problem)
        else:
            filled[field.name] = value
    if problems:
        raise AnswerRefused(run, tuple(problems))
    return filled


def _problem(field: Field, value: Any) -> str | None:
    match field.type:
        case "text":
            fits = type(value) is str
        case "integer":
            fits = type(value) is int
        case "number":
            fits = type(value) is int or (type(value) is float and math.isfinite(value))
        case "boolean":
            fits = type(value) is bool
        case "choice":
            if value in field.options and type(value) is str:
                return None
            return f"{field.name}: {value!r} is none of {', '.join(field.options)}"
    return None if fits else f"{field.name}: {value!r} is not {_ARTICLE[field.type]}"


_ARTICLE = {"text": "text", "integer": "an integer", "number": "a number", "boolean": "true or false"}


def store_fields(fields: tuple[Field, ...]) -> list[Any]:
    """The fields as they are kept in the journal."""
    return [msgspec.to_builtins(field) for field in fields]


def load_fields(stored: list[Any]) -> tuple[Field, ...]:
    """The fields as they were kept in the journal."""
    return tuple(msgspec.convert(field, Field) for field in stored)
