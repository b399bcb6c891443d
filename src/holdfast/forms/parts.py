"""The fields of a user's class as they were declared, and what makes an object of them.

pydantic is never imported here: a model proves that it is loaded.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from types import FunctionType, NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, NotRequired, Required, Union

import msgspec

from holdfast.codec.refused import key_part
from holdfast.codec.shapes import DataclassShape, ModelShape, StructShape, TupleShape, name_of, shape_of
from holdfast.errors import UsageError
from holdfast.forms.check import Problem

_REMEDY = (
    "ask for a dataclass, msgspec struct, pydantic model, TypedDict, NamedTuple, Literal, enum or simple type, "
    "or give a list of fields"
)

NO_DEFAULT: Any = object()
LEFT_TO_THE_CLASS: Any = object()


class Part(NamedTuple):
    """One field of a class, as it was declared."""

    name: str
    hint: Any
    default: Any = NO_DEFAULT
    metadata: tuple[Any, ...] = ()


def describe(kind: Any) -> str:
    """The name of a type for people to read: the same in every process, so without the metadata of annotations."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return describe(args[0])
    if origin is Literal:
        return f"Literal[{', '.join(str(arg) if isinstance(arg, Enum) else repr(arg) for arg in args)}]"
    if origin in (Union, UnionType):
        return " | ".join(describe(arg) for arg in args)
    if origin is not None and args:
        return f"{describe(origin)}[{', '.join('...' if arg is Ellipsis else describe(arg) for arg in args)}]"
    if kind is NoneType:
        return "None"
    if isinstance(kind, type | FunctionType) or hasattr(kind, "__supertype__"):
        module = kind.__module__
        return kind.__name__ if module in ("builtins", "typing") else f"{module}:{kind.__qualname__}"
    return str(kind).removeprefix("typing.")


def refuse(where: str, kind: Any, problem: str) -> NoReturn:
    """Raises `UsageError`: this type, in this place, cannot make a form."""
    at = "" if where == describe(kind) else f"{where}: "
    raise UsageError(f"{at}{describe(kind)} {problem}; {_REMEDY}")


def is_typed_dict(cls: type) -> bool:
    return issubclass(cls, dict) and hasattr(cls, "__required_keys__")  # that of typing_extensions as well


# --- the fields of classes


def parts_of(cls: type, where: str) -> Iterator[Part]:
    """The fields that objects of the class are made with; refused if it is of no kind that is made so."""
    if is_typed_dict(cls):
        return _typed_dict_parts(cls, where)
    match shape_of(cls) if not getattr(cls, "__abstractmethods__", None) else None:
        case StructShape():
            return _struct_parts(cls, where)
        case ModelShape():
            return _model_parts(cls)
        case TupleShape():
            hints, defaults = _hints(cls, where), cls._field_defaults  # type: ignore[attr-defined]
            names = cls._fields  # type: ignore[attr-defined]
            return (Part(name, hints.get(name, Any), defaults.get(name, NO_DEFAULT)) for name in names)
        case DataclassShape():
            return _dataclass_parts(cls, where)
    refuse(where, cls, "is not a class that can make a form")


def _hints(cls: type, where: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except Exception as error:  # to resolve annotations is to evaluate them
        raise UsageError(
            f"{where}: the annotations of {name_of(cls)} cannot be resolved here ({error}); "
            f"define it, and what it names, at the top of a module"
        ) from error


def _default(default: Any, factory: Any, nothing: Any) -> Any:
    if default is not nothing:
        return default
    if factory is nothing:
        return NO_DEFAULT
    # What a function gives may differ from call to call, and a question must stay the same from start to start.
    return factory() if factory in (list, dict, set, frozenset, tuple) else LEFT_TO_THE_CLASS


def _typed_dict_parts(cls: Any, where: str) -> Iterator[Part]:
    for name, hint in _hints(cls, where).items():
        needed = name in cls.__required_keys__
        while typing.get_origin(hint) in (Required, NotRequired) or _is_read_only(hint):
            # The class itself sees no `NotRequired` in annotations that are text.
            needed = {Required: True, NotRequired: False}.get(typing.get_origin(hint), needed)
            [hint] = typing.get_args(hint)
        yield Part(name, hint, NO_DEFAULT if needed else LEFT_TO_THE_CLASS)


def _is_read_only(hint: Any) -> bool:
    return getattr(typing.get_origin(hint), "_name", None) == "ReadOnly"


def _struct_parts(cls: type, where: str) -> Iterator[Part]:
    try:
        fields = msgspec.structs.fields(cls)
    except Exception:  # to resolve annotations is to evaluate them; the next line says it better
        _hints(cls, where)
        raise
    for field in fields:
        yield Part(field.name, field.type, _default(field.default, field.default_factory, msgspec.NODEFAULT))


def _model_parts(cls: Any) -> Iterator[Part]:
    for name, field in cls.model_fields.items():
        if field.is_required():
            default = NO_DEFAULT
        elif field.default_factory is not None:
            default = _default(None, field.default_factory, None)
        else:
            default = field.default
        yield Part(name, field.annotation, default, (field,))


def _dataclass_parts(cls: Any, where: str) -> Iterator[Part]:
    import dataclasses

    hints = _hints(cls, where)
    for name, hint in hints.items():
        if isinstance(hint, dataclasses.InitVar):
            refuse(f"{where}.{name}", cls, "has an InitVar, which its objects do not keep")
    for field in dataclasses.fields(cls):
        if field.init:
            default = _default(field.default, field.default_factory, dataclasses.MISSING)
            yield Part(field.name, hints[field.name], default)


# --- the objects of classes


def maker_of(cls: Any, where: str) -> Callable[[dict[str, Any]], Any]:
    """What makes an object of its fields, and runs the class's own validators."""
    if is_typed_dict(cls):
        return dict
    pydantic = sys.modules.get("pydantic")
    if not pydantic or not issubclass(cls, pydantic.BaseModel):
        return lambda fields: cls(**fields)
    if issubclass(cls, pydantic.RootModel):
        refuse(where, cls, "is a RootModel; ask for what it holds")
    keys = {name: _model_key(cls, name, where) for name in cls.model_fields}
    names = {key: name for name, key in keys.items()}

    def make(fields: dict[str, Any]) -> Any:
        try:
            return cls.model_validate({keys[name]: item for name, item in fields.items()})
        except pydantic.ValidationError as error:
            raise _ModelRefused(error, names) from error

    return make


def _model_key(cls: Any, name: str, where: str) -> str:
    """What a model calls a field where it is made."""
    config, field = cls.model_config, cls.model_fields[name]
    if config.get("populate_by_name") or config.get("validate_by_name"):
        return name
    alias = field.validation_alias or field.alias or name
    if isinstance(alias, str):
        return alias
    texts = [choice for choice in getattr(alias, "choices", ()) if isinstance(choice, str)]
    if not texts:
        refuse(f"{where}.{name}", cls, "has an alias that is a path; allow it by name as well")
    return texts[0]


class _ModelRefused(Exception):
    """A pydantic model's problems, under the names of its fields."""

    def __init__(self, error: Any, names: Mapping[Any, str]) -> None:
        self.problems = [
            ("".join(_step(names.get(step, step) if not n else step) for n, step in enumerate(one["loc"])), one["msg"])
            for one in error.errors()
        ]


def problems_of(error: Exception) -> list[Problem]:
    """What a class had against the values that it was to be made of."""
    pydantic = sys.modules.get("pydantic")
    if isinstance(error, _ModelRefused):
        return error.problems
    if pydantic and isinstance(error, pydantic.ValidationError):  # of a pydantic dataclass
        return _ModelRefused(error, {}).problems
    if isinstance(error, ValueError | AssertionError) and str(error):
        return [("", str(error))]
    return [("", f"{type(error).__name__}: {error}")]


def _step(step: str | int) -> str:
    return f"[{step}]" if isinstance(step, int) else key_part(step)
