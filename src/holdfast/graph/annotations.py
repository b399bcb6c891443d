"""What the annotations of a graph's functions tell: the results of a router, and the fields that a node writes.

An annotation that is missing or cannot be read tells nothing; that is no mistake.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable
from dataclasses import is_dataclass
from enum import Enum
from functools import partial
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from msgspec import Struct, UnsetType

from holdfast.errors import UsageError
from holdfast.graph.fields import Field, fields_of, type_name

_NO_NAMES = (NoneType, bool, int, float, complex, bytes, dict)


class Results(Struct, frozen=True, kw_only=True):
    """What a router may give."""

    names: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()  # what it may give that is no name, as a reader would write it
    open: bool = False  # it may give names that the annotation does not tell
    several: bool | None = False  # more than one at once; None: not said

    def __or__(self, other: Results) -> Results:
        """What may come from either."""
        return Results(
            names=self.names | other.names,
            others=self.others | other.others,
            open=self.open or other.open,
            several=True if self.several or other.several else None if None in (self.several, other.several) else False,
        )


_UNKNOWN = Results(open=True, several=None)


def results_of(router: Callable[..., Any]) -> Results:
    """What a router's annotation says that it gives."""
    return _results(_returned(router))


def updates_of(function: Callable[..., Any]) -> tuple[Any, dict[str, Field]] | None:
    """The type of the updates that a function gives and its fields, if its annotation tells."""
    hint = _bare(_returned(function))
    kinds = [hint]
    if get_origin(hint) in (Union, UnionType):
        kinds = [_bare(kind) for kind in get_args(hint) if kind is not NoneType]
    try:
        return (kinds[0], fields_of(kinds[0])) if len(kinds) == 1 else None
    except UsageError:  # a dict, or whatever else: it does not tell which fields
        return None


def certain_writes(updates: Any, fields: dict[str, Field], state: Any) -> frozenset[str]:
    """The fields that an update of this type is sure to bring.

    Of a dataclass or struct all but those that may be UNSET, and of a TypedDict or pydantic model those that it must
    have. Nothing if it is the state's own TypedDict: so are many functions annotated that give a part of it.
    """
    if is_typeddict(updates) and updates is state:
        return frozenset()
    if is_dataclass(updates) or (inspect.isclass(updates) and issubclass(updates, Struct)):
        return frozenset(name for name, field in fields.items() if UnsetType not in get_args(_bare(field.type)))
    return frozenset(name for name, field in fields.items() if field.required)


def _returned(function: Callable[..., Any]) -> Any:
    while isinstance(function, partial):
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__
    try:
        return get_type_hints(function, include_extras=True).get("return", Any)
    except Exception:  # an annotation is any expression, and may name what is there for type checkers only
        return Any


def _bare(hint: Any) -> Any:
    while get_origin(hint) is Annotated:
        hint = hint.__origin__
    return getattr(hint, "__value__", hint)  # of an alias by `type`


def _results(hint: Any) -> Results:
    hint = _bare(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return _union(_result(value) for value in arguments)
    if origin in (Union, UnionType):
        return _union(map(_results, arguments))
    if inspect.isclass(hint) and issubclass(hint, Enum):
        return _union(_result(member) for member in hint)
    if inspect.isclass(hint) and issubclass(hint, _NO_NAMES):
        return Results(others=frozenset(["None" if hint is NoneType else type_name(hint)]))
    if inspect.isclass(origin) and issubclass(origin, Collection) and not issubclass(origin, dict):
        return _union(_results(item) for item in arguments if item is not ...) | Results(several=True)
    return Results(open=True) if hint is str else _UNKNOWN


def _union(parts: Iterable[Results]) -> Results:
    found = Results()
    for part in parts:
        found |= part
    return found


def _result(value: object) -> Results:
    if isinstance(value, str):
        return Results(names=frozenset([value.value if isinstance(value, Enum) else value]))
    return Results(others=frozenset([str(value) if isinstance(value, Enum) else repr(value)]))
