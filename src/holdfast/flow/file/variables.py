"""Variables of a flow: what is given at the start, checked against what the file declares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import UNSET

from holdfast.errors import ActionFailed, VarsRefused
from holdfast.flow.file.document import NotRead, Text, compose
from holdfast.flow.file.model import Definition, Var
from holdfast.flow.file.shapes import nearest

_KINDS: dict[str, Any] = {
    "text": str,
    "integer": int,
    "number": int | float,
    "boolean": bool,
    "list": list,
    "mapping": dict,
    "any": object,
}
_TYPE_OF = {bool: "boolean", int: "integer", float: "number", str: "text", list: "list", dict: "mapping"}


def type_of(value: Any) -> str:
    """The type of a variable with this default."""
    return _TYPE_OF.get(type(value), "any")


def misfit(var: Var, value: Any) -> str | None:
    """What is wrong with a value of a variable, if anything is."""
    fits = isinstance(value, _KINDS[var.type]) and not (isinstance(value, bool) and var.type in ("integer", "number"))
    if not fits:
        return f"is {var.type}, not {_shown(value)}"
    if var.options and value not in var.options:
        return f"is one of {', '.join(map(str, var.options))}, not {_shown(value)}"
    return None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def start_values(definition: Definition, given: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of a new run; raises `VarsRefused` naming all that is wrong."""
    problems: list[str] = []
    values: dict[str, Any] = {}
    for name in given:
        if name not in definition.vars:
            hint = nearest(name, list(definition.vars)) or f"; there are {', '.join(definition.vars) or 'none'}"
            problems.append(f"there is no variable {name!r}{hint}")
    for name, var in definition.vars.items():
        if name in given:
            values[name] = given[name]
            if wrong := misfit(var, given[name]):
                problems.append(f"variable {name!r} {wrong}")
        elif var.default is not UNSET:
            values[name] = var.default
        elif var.required:
            about = f" ({var.description})" if var.description else ""
            problems.append(f"variable {name!r}{about} has no value; give one with --var {name}=...")
        else:
            values[name] = None
    if problems:
        raise VarsRefused(definition.name, problems)
    return values


def check_assigned(definition: Definition, values: Mapping[str, Any]) -> None:
    """Raise `ActionFailed` if a `set` gives a variable what it cannot have."""
    for name, value in values.items():
        var = definition.vars.get(name)
        if var is not None and value is not None and (wrong := misfit(var, value)):
            raise ActionFailed(f"variable {name!r} {wrong}")


def parsed(definition: Definition, texts: Iterable[str]) -> dict[str, Any]:
    """Variables from texts such as ``env=prod``, each read as the type that it has; raises `VarsRefused`."""
    problems: list[str] = []
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        var = definition.vars.get(name)
        if not equals or not name:
            problems.append(f"{text!r} is not a variable and its value; write name=value")
        elif var is None:
            values[name] = value  # what is wrong with it is told with all the rest
        else:
            try:
                values[name] = _read(var, value)
            except ValueError:
                problems.append(f"variable {name!r} is {var.type}, not {_shown(value)}")
    if problems:
        raise VarsRefused(definition.name, problems)
    return values


def _read(var: Var, text: str) -> Any:
    if var.type == "text":
        return text
    if var.type == "any":
        try:
            return _data(text)
        except ValueError:
            return text
    if var.type in ("integer", "number"):
        return int(text) if var.type == "integer" else float(text)
    if var.type == "boolean":
        return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}.get(text.lower(), text)
    return _data(text)


def _data(text: str) -> Any:
    try:
        return compose(Text.of("value", text)).plain_data()
    except NotRead as error:
        raise ValueError(error.message) from None
