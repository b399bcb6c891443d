"""Which classes an annotation leads to.

A stored name never causes an import, so the reader must get its classes from somewhere: from the annotation that the
caller reads as. This walks it: through generics, unions, aliases and the fields of every class that it comes to.
"""

from __future__ import annotations

import sys
import typing
from enum import Enum
from typing import Any, ForwardRef, Literal, TypeVar

from holdfast.codec.shapes import name_of, shape_of


def reachable(*annotations: Any) -> dict[str, type]:
    """The storable classes that the annotations lead to, by name; what cannot be resolved is passed over."""
    found: dict[str, type] = {}
    seen: set[int] = set()
    todo = list(annotations)
    kept = []  # so that an id stays that of one object
    while todo:
        hint = todo.pop()
        if id(hint) in seen:
            continue
        seen.add(id(hint))
        kept.append(hint)
        if isinstance(hint, type) and typing.get_origin(hint) is None:
            if issubclass(hint, Enum) or shape_of(hint) is not None:
                found.setdefault(name_of(hint), hint)
                todo += getattr(hint, "__orig_bases__", ())
                todo += _field_hints(hint)
            elif issubclass(hint, dict) and hasattr(hint, "__required_keys__"):  # a TypedDict
                todo += _field_hints(hint)
        else:
            todo += _parts(hint)
    return found


def _parts(hint: Any) -> list[Any]:
    if isinstance(hint, list):
        return hint
    if isinstance(hint, TypeVar):
        return [hint.__bound__, *hint.__constraints__]
    origin = typing.get_origin(hint)
    if origin is Literal:
        return [type(value) for value in typing.get_args(hint)]
    if origin is not None:
        args = typing.get_args(hint)
        return [origin, *(args[:1] if hasattr(hint, "__metadata__") else args)]
    # NewType and `type X = ...`
    return [getattr(hint, name) for name in ("__supertype__", "__value__") if hasattr(hint, name)]


def _field_hints(cls: type) -> list[Any]:
    if issubclass(cls, Enum):
        return []
    shape = shape_of(cls)
    hints = shape.annotations() if shape else []
    try:
        return hints + list(typing.get_type_hints(cls, include_extras=True).values())
    except Exception:  # one name that exists only for type checkers must not hide the other fields
        return hints + [hint for base in cls.__mro__ for hint in _one_by_one(base)]


def _one_by_one(cls: type) -> list[Any]:
    names = vars(sys.modules.get(cls.__module__, typing))
    hints: list[Any] = []
    for hint in _annotations(cls).values():
        text = hint.__forward_arg__ if isinstance(hint, ForwardRef) else hint
        if not isinstance(text, str):
            hints.append(text)
            continue
        scratch = type("Scratch", (), {"__annotations__": {"hint": text}})
        try:
            hints += typing.get_type_hints(scratch, globalns=dict(names), localns=dict(vars(cls))).values()
        except Exception:  # to resolve it is to evaluate it, and an expression may raise anything
            # What cannot be resolved names no class that could be found; a value that needs one is refused when it is
            # read, with the name.
            continue
    return hints


def _annotations(cls: type) -> dict[str, Any]:
    if sys.version_info >= (3, 14):
        from annotationlib import Format, get_annotations

        return get_annotations(cls, format=Format.FORWARDREF)
    import inspect

    return inspect.get_annotations(cls)
