"""What templates can do with a value: a short list of filters and tests, each limited in size and time."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from functools import wraps
from typing import Any

import jinja2.filters as ready
import jinja2.tests as asked

from holdfast.flow.actions.secrets import marked
from holdfast.flow.template.limits import (
    MAX_TEXT,
    Placeholder,
    Unknown,
    as_text,
    bounded,
    plain,
    refuse,
    sized,
    tick,
    too_long,
)

_MAX_PLACES = 15


def _quote(value: Any) -> Any:
    """As one word of a shell, whatever is in it."""
    if isinstance(value, marked):
        return value.quoted()
    if isinstance(value, list | tuple):
        return " ".join(shlex.quote(as_text(one)) for one in bounded(value))
    return shlex.quote(as_text(value))


def _replace(value: Any, old: str, new: str) -> str:
    text, old, new = as_text(value), as_text(old), as_text(new)
    if len(text) + text.count(old) * len(new) > MAX_TEXT:
        too_long()
    return text.replace(old, new)


def _join(values: Any, by: str = "") -> str:
    texts, length, by = [], 0, as_text(by)
    for value in bounded(values):
        texts.append(as_text(value))
        length += len(texts[-1]) + len(by)
        if length > MAX_TEXT:
            too_long()
    return by.join(texts)


def _round(value: Any, places: int = 0) -> Any:
    if not isinstance(value, int | float) or not isinstance(places, int) or abs(places) > _MAX_PLACES:
        refuse(f"round takes a number, and up to {_MAX_PLACES} places")
    return round(value, places) if places else round(value)


def _sum(values: Any) -> Any:
    total: Any = 0
    for value in bounded(values):
        if not isinstance(value, int | float):
            refuse(f"sum takes numbers, not {type(value).__name__}")
        total = sized(total + value)
    return total


def _int(value: Any, default: int = 0) -> int:
    try:
        return int(value) if not isinstance(value, str) else int(value.strip())
    except (TypeError, ValueError, OverflowError):
        return default


def _float(value: Any, default: float = 0.0) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return default


def _from_json(value: Any) -> Any:
    try:
        return plain(json.loads(as_text(value)))
    except ValueError as error:
        refuse(f"it is not JSON: {error}")


def _to_json(value: Any, indent: int | None = None) -> str:
    if indent is not None and (not isinstance(indent, int) or not 0 <= indent <= 8):
        refuse("tojson takes an indent of 0 to 8")
    return json.dumps(plain(value), ensure_ascii=False, indent=indent)


def _list(value: Any) -> list[Any]:
    return list(bounded(value))


def _reverse(value: Any) -> Any:
    return value[::-1] if isinstance(value, str) else _list(value)[::-1]


def _first(value: Any) -> Any:
    for item in value:
        return item
    refuse("first: the list is empty")


def _last(value: Any) -> Any:
    return _first(_reverse(value))


def _trim(value: Any, chars: str | None = None) -> str:
    return as_text(value).strip(chars)


_READY: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "default": ready.do_default,
    "dictsort": ready.do_dictsort,
    "first": _first,
    "float": _float,
    "from_json": _from_json,
    "int": _int,
    "items": ready.do_items,
    "join": _join,
    "last": _last,
    "length": len,
    "list": _list,
    "lower": lambda value: as_text(value).lower(),
    "map": ready.sync_do_map,
    "max": ready.do_max,
    "min": ready.do_min,
    "quote": _quote,
    "reject": ready.sync_do_reject,
    "rejectattr": ready.sync_do_rejectattr,
    "replace": _replace,
    "reverse": _reverse,
    "round": _round,
    "select": ready.sync_do_select,
    "selectattr": ready.sync_do_selectattr,
    "sort": ready.do_sort,
    "sum": _sum,
    "tojson": _to_json,
    "trim": _trim,
    "unique": ready.do_unique,
    "upper": lambda value: as_text(value).upper(),
}
_TESTS = [
    "boolean",
    "defined",
    "divisibleby",
    "eq",
    "even",
    "false",
    "float",
    "ge",
    "gt",
    "in",
    "integer",
    "le",
    "lt",
    "mapping",
    "ne",
    "none",
    "number",
    "odd",
    "sequence",
    "string",
    "true",
    "undefined",
    "==",
    "!=",
    ">",
    ">=",
    "<",
    "<=",
]


def filters() -> dict[str, Callable[..., Any]]:
    """All filters, by name."""
    return {name: _limited(function, unknown=False) for name, function in _READY.items()}


def tests() -> dict[str, Callable[..., Any]]:
    """All tests, by name."""
    return {name: _limited(_test(name), unknown=True) for name in _TESTS}


def _test(name: str) -> Callable[..., Any]:
    found: Any = asked.TESTS[name]
    test: Callable[..., Any] = found
    return test


def _limited(function: Callable[..., Any], *, unknown: bool) -> Callable[..., Any]:
    """The function, which counts towards the time of the rendering, and whose result is not too large.

    Of what a dry run does not know, it makes the same; with ``unknown``, nothing can be said.
    """

    @wraps(function)
    def limited(*args: Any, **kwargs: Any) -> Any:
        tick()
        for value in args:
            if isinstance(value, Placeholder):
                if unknown:
                    raise Unknown
                return value
        return sized(function(*args, **kwargs))

    return limited
