"""The fields of a state: what a TypedDict, dataclass, msgspec struct or pydantic model says of them.

This is the one place that reads a state's annotations. Verification uses it to find mistakes before the first step, and
whoever runs a graph uses it to know which reducer applies an update: ``fields_of(State)["messages"].reducer``.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin, get_type_hints, is_typeddict

import msgspec
from msgspec import Struct

from holdfast.errors import UsageError

Reducer = Callable[[Any, Any], Any]  # of what the field is and what the update brings: what the field becomes

# Callables that stand beside a type for another library, and reduce nothing.
_OTHER_LIBRARIES = ("pydantic", "pydantic_core", "annotated_types", "msgspec", "typing", "typing_extensions")
_QUALIFIERS = ("Required", "NotRequired", "ReadOnly")  # ReadOnly is new in Python 3.13: known by its name


class Field(Struct, frozen=True, kw_only=True):
    """A field of a state."""

    name: str
    type: Any  # without its reducer; other metadata of ``Annotated`` is kept
    reducers: tuple[Reducer, ...] = ()  # as annotated: a sound state has at most one for a field
    required: bool = True  # whether a state must have it; a field with a default need not be given

    @property
    def reducer(self) -> Reducer | None:
        """What applies an update; None: the update overwrites what was there."""
        return self.reducers[0] if self.reducers else None


def fields_of(state: Any) -> dict[str, Field]:
    """The fields of a state's type, in their order; UsageError if it is no such type or cannot be read."""
    names = _names(state)
    if names is None:
        raise UsageError(
            f"{type_name(state)} cannot be a state; use a TypedDict, dataclass, msgspec.Struct or pydantic model"
        )
    try:
        hints = get_type_hints(state, include_extras=True)
    except Exception as error:  # an annotation is any expression
        raise UsageError(
            f"the annotations of {type_name(state)} cannot be read: {error}; declare the names they use at module level"
        ) from error
    return {name: _field(name, hints[name], required) for name, required in names.items()}


def type_name(state: Any) -> str:
    """What to call a type in a message."""
    return str(getattr(state, "__qualname__", None) or repr(state))


def is_reducer(thing: Any) -> bool:
    """Whether something in ``Annotated`` is meant as a reducer: a callable, no class, and not another library's."""
    home = getattr(thing, "__module__", None) if inspect.isroutine(thing) else type(thing).__module__
    return callable(thing) and not inspect.isclass(thing) and str(home).partition(".")[0] not in _OTHER_LIBRARIES


def _names(state: Any) -> dict[str, bool] | None:
    """The names of the fields, and whether each must be given; None for a type that cannot be a state."""
    if is_typeddict(state):
        return {name: name in state.__required_keys__ for name in state.__annotations__}
    if not inspect.isclass(state):
        return None
    if (model := _pydantic_fields(state)) is not None:
        return {name: field.is_required() for name, field in model.items()}
    if issubclass(state, msgspec.Struct):
        return {field.name: field.required for field in msgspec.structs.fields(state)}
    if dataclasses.is_dataclass(state):
        return {field.name: not _has_default(field) for field in dataclasses.fields(state)}
    return None


def _pydantic_fields(cls: Any) -> dict[str, Any] | None:
    pydantic = sys.modules.get("pydantic")  # whoever has a model has imported it
    return cls.model_fields if pydantic and issubclass(cls, pydantic.BaseModel) else None


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _field(name: str, hint: Any, required: bool) -> Field:
    metadata: list[Any] = []
    while True:  # the qualifiers may stand inside or outside of Annotated
        if get_origin(hint) is Annotated:
            metadata = [*hint.__metadata__, *metadata]
            hint = hint.__origin__
        elif (qualifier := _qualifier(hint)) is not None:
            # said here too, because a TypedDict does not see what is in an annotation given as text
            required = {"Required": True, "NotRequired": False}.get(qualifier, required)
            hint = get_args(hint)[0]
        else:
            break
    kept = tuple(item for item in metadata if not is_reducer(item))
    return Field(
        name=name,
        type=Annotated[hint, *kept] if kept else hint,
        reducers=tuple(item for item in metadata if is_reducer(item)),
        required=required,
    )


def _qualifier(hint: Any) -> str | None:
    name = getattr(get_origin(hint), "_name", None)
    return name if name in _QUALIFIERS else None
