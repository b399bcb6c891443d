"""Does a value fit an annotation? Asked of what nodes bring, before it is kept.

As type checkers see it: an int is a float, a subclass is its base. What is not known to this module (a protocol, a type
variable, a string that cannot be resolved) is let pass: it is a check, and no promise.
"""

from __future__ import annotations

import collections.abc
from inspect import isclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from holdfast.errors import shown

_MANY = (list, set, frozenset, collections.abc.Sequence, collections.abc.Set, collections.abc.Iterable)
_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


def misfit(value: Any, kind: Any) -> str | None:
    """What is wrong with the value, as ``got ..., wants ...``; None if it fits."""
    if _fits(value, kind):
        return None
    return f"got {shown(type(value).__name__, value).replace('=', ' ', 1)}, wants {type_text(kind)}"


def type_text(kind: Any) -> str:
    """A type for people."""
    if isclass(kind) and get_origin(kind) is None:
        return "None" if kind is NoneType else kind.__qualname__
    return str(kind).replace("typing.", "")


def contents(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """A container's type without what stands around it (``Annotated``, ``| None``), and what it contains."""
    if type(kind).__name__ == "TypeAliasType":
        return contents(kind.__value__)
    if get_origin(kind) is Annotated:
        return contents(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        found = [one for one in get_args(kind) if one is not NoneType]
        return contents(found[0]) if len(found) == 1 else (kind, ())
    return kind, get_args(kind)


def _fits(value: Any, kind: Any) -> bool:
    if kind is None or kind is NoneType:
        return value is None
    if type(kind).__name__ == "TypeAliasType":  # ``type X = ...``, which is new in Python 3.12
        return _fits(value, kind.__value__)
    if is_typeddict(kind):
        return _fits_typeddict(value, kind)
    origin = get_origin(kind)
    if origin is None:
        return _fits_class(value, getattr(kind, "__supertype__", kind))
    args = get_args(kind)
    if origin is Annotated:
        return _fits(value, args[0])
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in args)
    if origin is Literal:
        return any(value == one and type(value) is type(one) for one in args)
    if isclass(origin) and not isinstance(value, origin):
        return False
    return _fits_inside(value, origin, args)


def _fits_class(value: Any, kind: Any) -> bool:
    if kind is float:
        return isinstance(value, int | float)
    if kind is complex:
        return isinstance(value, int | float | complex)
    if kind is Any or not isclass(kind) or getattr(kind, "_is_protocol", False):  # Any is a class since Python 3.11
        return True
    return isinstance(value, kind)


def _fits_inside(value: Any, origin: Any, args: tuple[Any, ...]) -> bool:
    if origin is tuple:
        if len(args) == 2 and args[1] is ...:
            return all(_fits(item, args[0]) for item in value)
        return len(value) == len(args) and all(map(_fits, value, args))
    if origin in _MANY and len(args) == 1:
        return all(_fits(item, args[0]) for item in value)
    if origin in _MAPPINGS and len(args) == 2:
        return all(_fits(key, args[0]) and _fits(item, args[1]) for key, item in value.items())
    return True


def _fits_typeddict(value: Any, kind: Any) -> bool:
    if not isinstance(value, dict):
        return False
    try:
        hints = get_type_hints(kind)
    except (NameError, TypeError):  # it names what cannot be resolved from here
        return True
    required: frozenset[str] = kind.__required_keys__
    return required <= value.keys() <= hints.keys() and all(_fits(item, hints[key]) for key, item in value.items())
