"""How the objects of a user's class are taken apart into fields and put together again.

There is one shape for each kind of class: dataclasses, msgspec structs, pydantic models and named tuples. Objects are
restored as they were, not made anew: no ``__init__`` and no validation is run. The one exception is a msgspec struct
with ``__post_init__``, which msgspec cannot make without; it is given copies, and the stored fields are put back after.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from enum import Enum, Flag
from functools import cached_property
from typing import Any

import msgspec

from holdfast.codec.refused import Refused

Parts = tuple[dict[str, Any], dict[str, Any]]

_ABSENT: Any = object()


def name_of(cls: type) -> str:
    """The name that a class is stored under if it was not given another."""
    return f"{cls.__module__}:{cls.__qualname__}"


def shape_of(cls: type) -> Shape | None:
    """The shape of the class, or None if its objects cannot be taken apart."""
    if issubclass(cls, Enum):
        return None
    if issubclass(cls, msgspec.Struct):
        return StructShape(cls)
    pydantic = sys.modules.get("pydantic")
    if pydantic and issubclass(cls, pydantic.BaseModel):
        return ModelShape(cls)
    if issubclass(cls, tuple) and hasattr(cls, "_fields") and hasattr(cls, "_field_defaults"):
        return TupleShape(cls)
    if hasattr(cls, "__dataclass_fields__") and _is_plain(cls):
        return DataclassShape(cls)
    return None


def _is_plain(cls: type) -> bool:
    """Whether all of an object is in its attributes: not so for what derives from a builtin such as dict."""
    if getattr(cls, "__abstractmethods__", None):
        return True
    try:
        object.__new__(cls)
    except TypeError:
        return False
    return True


class Shape(ABC):
    """What all kinds have in common: a class and the names of its fields."""

    def __init__(self, cls: type, names: Iterable[str]) -> None:
        self.cls = cls
        self.names = tuple(names)
        self._name_set = frozenset(self.names)
        self._slots = tuple(_slots(cls) - self._name_set)

    def take(self, value: Any) -> Parts:
        """The fields, and whatever else the object carries; refused if a field is not set."""
        return self._fields(value), self._extra(value)

    @abstractmethod
    def make(self, fields: dict[str, Any], rest: dict[str, Any]) -> Any:
        """The object with these parts; refused if they no longer fit the class."""

    @abstractmethod
    def default(self, name: str, fields: dict[str, Any]) -> Any:
        """What a field is that was not stored: its default, or _ABSENT if it has none."""

    def may_be_unset(self, name: str) -> bool:
        return False

    def annotations(self) -> list[Any]:
        """The types of fields that are known beyond what ``typing.get_type_hints`` finds."""
        return []

    def fit(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields in the class's order, completed by defaults; refused if they no longer fit."""
        if fields.keys() == self._name_set:
            return fields
        for name in fields:
            if name not in self._name_set:
                raise self._misfit(f"was stored with the field {name!r}, which it no longer has")
        fitted: dict[str, Any] = {}
        for name in self.names:
            value = fields[name] if name in fields else self.default(name, fitted)
            if value is not _ABSENT:
                fitted[name] = value
            elif not self.may_be_unset(name):
                raise self._misfit(f"was stored without the field {name!r}, which has no default")
        return fitted

    def _misfit(self, problem: str) -> Refused:
        return Refused(
            f"{name_of(self.cls)} {problem}; give the class a version and an upgrade function: "
            f"hf.register({self.cls.__name__}, version=2, upgrades={{1: ...}})"
        )

    def _fields(self, value: Any) -> dict[str, Any]:
        try:
            return {name: getattr(value, name) for name in self.names}
        except AttributeError:
            fields = {name: getattr(value, name, _ABSENT) for name in self.names}
            for name, item in fields.items():
                if item is _ABSENT and not self.may_be_unset(name):
                    raise Refused("the field is not set").inside(f".{name}") from None
            return {name: item for name, item in fields.items() if item is not _ABSENT}

    def _extra(self, value: Any) -> dict[str, Any]:
        """Attributes that are no fields, such as ``__post_init__`` may set; not what can be computed again."""
        state = getattr(value, "__dict__", {})
        extra = {}
        if not state.keys() <= self._name_set:
            for name, item in state.items():
                known = name in self._name_set or (name.startswith("__") and name.endswith("__"))
                if not known and not isinstance(getattr(self.cls, name, None), cached_property):
                    extra[name] = item
        for name in self._slots:
            if (item := getattr(value, name, _ABSENT)) is not _ABSENT:
                extra[name] = item
        return {"x": extra} if extra else {}

    def _restore(self, value: Any, attributes: dict[str, Any], put: Callable[[Any, str, Any], None]) -> Any:
        for name, item in attributes.items():
            try:
                put(value, name, item)
            except AttributeError:
                raise self._misfit(f"was stored with the attribute {name!r}, which it can no longer have") from None
        return value


def _slots(cls: type) -> set[str]:
    names: set[str] = set()
    for base in cls.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            private = name.startswith("__") and not name.endswith("__")
            names.add(f"_{base.__name__.lstrip('_')}{name}" if private else name)
    return {name for name in names if not name.startswith("__")}


class DataclassShape(Shape):
    def __init__(self, cls: type) -> None:
        import dataclasses

        self._by_name = {field.name: field for field in dataclasses.fields(cls)}
        self._missing = dataclasses.MISSING
        super().__init__(cls, self._by_name)

    def make(self, fields: dict[str, Any], rest: dict[str, Any]) -> Any:
        value = self._restore(object.__new__(self.cls), self.fit(fields), object.__setattr__)
        return self._restore(value, rest.get("x", {}), object.__setattr__)

    def default(self, name: str, fields: dict[str, Any]) -> Any:
        field = self._by_name[name]
        if field.default is not self._missing:
            return field.default
        return field.default_factory() if field.default_factory is not self._missing else _ABSENT

    def may_be_unset(self, name: str) -> bool:
        return not self._by_name[name].init


class StructShape(Shape):
    def __init__(self, cls: type[msgspec.Struct]) -> None:
        super().__init__(cls, cls.__struct_fields__)
        defaults: tuple[Any, ...] = cls.__struct_defaults__
        self._defaults = dict(zip(reversed(self.names), reversed(defaults), strict=False))
        self._has_post_init = hasattr(cls, "__post_init__")

    def make(self, fields: dict[str, Any], rest: dict[str, Any]) -> Any:
        fields = self.fit(fields)
        if not self._has_post_init:
            value = self.cls(**fields)
        else:
            from copy import deepcopy

            try:
                value = self.cls(**deepcopy(fields))
            except Exception as error:  # the user's own __post_init__, which may raise anything
                raise self._misfit(f"no longer takes what was stored ({error!r})") from error
            getattr(value, "__dict__", {}).clear()
            self._restore(value, fields, msgspec.structs.force_setattr)
        return self._restore(value, rest.get("x", {}), lambda struct, name, item: vars(struct).update({name: item}))

    def default(self, name: str, fields: dict[str, Any]) -> Any:
        default = self._defaults.get(name, msgspec.NODEFAULT)
        if default is msgspec.NODEFAULT:
            return _ABSENT
        return default.factory() if type(default).__name__ == "Factory" else default


class TupleShape(Shape):
    def __init__(self, cls: type) -> None:
        super().__init__(cls, cls._fields)  # type: ignore[attr-defined]
        self._defaults: dict[str, Any] = cls._field_defaults  # type: ignore[attr-defined]

    def make(self, fields: dict[str, Any], rest: dict[str, Any]) -> Any:
        fitted = self.fit(fields)
        value: Any = tuple.__new__(self.cls, [fitted[name] for name in self.names])
        return self._restore(value, rest.get("x", {}), object.__setattr__)

    def default(self, name: str, fields: dict[str, Any]) -> Any:
        return self._defaults.get(name, _ABSENT)

    def _fields(self, value: Any) -> dict[str, Any]:
        return dict(zip(self.names, tuple.__iter__(value), strict=True))


class ModelShape(Shape):
    def __init__(self, cls: Any) -> None:
        self._model = cls
        super().__init__(cls, cls.model_fields)

    def take(self, value: Any) -> Parts:
        state = value.__dict__
        fields = {name: state[name] for name in self.names if name in state}
        for name in self.names:
            if name not in fields:
                raise Refused("the field is not set").inside(f".{name}")
        extra = value.__pydantic_extra__ or {}
        rest: dict[str, Any] = {}
        if value.__pydantic_fields_set__ != fields.keys() | extra.keys():
            rest["s"] = sorted(value.__pydantic_fields_set__)
        if extra:
            rest["x"] = extra
        if value.__pydantic_private__:
            rest["p"] = value.__pydantic_private__
        return fields, rest

    def make(self, fields: dict[str, Any], rest: dict[str, Any]) -> Any:
        extra = rest.get("x")
        fields_set = {*fields, *(extra or ())}
        if "s" in rest:
            fields_set &= set(rest["s"])
        if extra is None and self._model.model_config.get("extra") == "allow":
            extra = {}
        value = object.__new__(self._model)
        object.__setattr__(value, "__dict__", self.fit(fields))
        object.__setattr__(value, "__pydantic_fields_set__", fields_set)
        object.__setattr__(value, "__pydantic_extra__", extra)
        object.__setattr__(value, "__pydantic_private__", self._private(rest.get("p", {})))
        return value

    def default(self, name: str, fields: dict[str, Any]) -> Any:
        field = self._model.model_fields[name]
        if field.is_required():
            return _ABSENT
        takes_data = getattr(field, "default_factory_takes_validated_data", False)
        return field.get_default(call_default_factory=True, **({"validated_data": fields} if takes_data else {}))

    def annotations(self) -> list[Any]:
        return [field.annotation for field in self._model.model_fields.values()]

    def _private(self, stored: dict[str, Any]) -> dict[str, Any] | None:
        declared = self._model.__private_attributes__
        if not declared:
            return stored or None
        defaults = {name: attribute.get_default() for name, attribute in declared.items() if name not in stored}
        undefined = sys.modules["pydantic_core"].PydanticUndefined
        return {name: item for name, item in defaults.items() if item is not undefined} | stored


class EnumShape:
    """Members are stored by name; a combination of flags, which may have none, by value."""

    def __init__(self, cls: type[Enum]) -> None:
        self.cls = cls

    def take(self, member: Enum) -> str | int:
        name = member._name_
        if name is not None and self.cls.__members__.get(name) is member:
            return name
        if isinstance(member, Flag) and type(member._value_) is int:
            return member._value_
        raise Refused(f"{self.cls.__qualname__} has no member of that name, and what has no name cannot be stored")

    def make(self, member: str | int) -> Enum:
        try:
            return self.cls[member] if isinstance(member, str) else self.cls(member)
        except (KeyError, ValueError):
            raise Refused(
                f"{name_of(self.cls)} has no member {member!r} any more; give the class a version and an upgrade "
                f"function: hf.register({self.cls.__name__}, version=2, upgrades={{1: ...}})"
            ) from None
