"""Questions as HTML forms: the controls of a question's fields, what was sent for them, and errors at the field.

`controls` gives what a template draws, `read` makes the answer of what a browser sent. Whether that answer fits is not
decided here: the question itself says so, and `placed` puts each of its problems to the control that it is about.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from holdfast.engine.control.questions import is_breakpoint
from holdfast.views import Field, Question

Widget = Literal["line", "lines", "number", "radio", "select", "date", "time", "moment", "group"]

_FEW = 6  # options that are shown all at once
_WIDGETS: dict[str, Widget] = {
    "integer": "number",
    "number": "number",
    "date": "date",
    "time": "time",
    "datetime": "moment",
    "any": "lines",
    "list": "lines",
    "mapping": "lines",
    "object": "lines",
}
_HINTS = {
    "integer": "a whole number",
    "number": "a number",
    "decimal": "a decimal number",
    "duration": "a duration such as P1DT12H",
    "uuid": "a UUID",
    "bytes": "base64",
    "any": "JSON, or text",
    "mapping": "JSON, an object",
    "object": "JSON, an object",
}
_PARTLESS = ("text", "choice", "integer", "number", "decimal", "date", "time", "datetime", "duration", "uuid", "bytes")
_BOUNDS = {
    "minimum": "from {}",
    "maximum": "up to {}",
    "above": "above {}",
    "below": "below {}",
    "multiple_of": "a multiple of {}",
    "min_length": "at least {} long",
    "max_length": "at most {} long",
}
ANYTHING = Field("answer", "any")


class Option(Struct, frozen=True):
    """Something to choose: what is sent, and what is shown."""

    value: str
    label: str


class Control(Struct, frozen=True, kw_only=True):
    """One input of a form, or (``parts``) a group of them. ``path`` is how problems name it."""

    name: str
    path: str
    widget: Widget
    label: str
    field: Field
    hint: str = ""
    value: str = ""
    options: tuple[Option, ...] = ()
    parts: tuple[Control, ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def required(self) -> bool:
        return self.field.required and self.field.default is None


def fields_of(question: Question) -> tuple[Field, ...]:
    """The fields that are asked for; of a question that takes anything, one that does."""
    return question.fields or (ANYTHING,)


def controls(question: Question, sent: Mapping[str, str] | None = None) -> tuple[Control, ...]:
    """The controls of a question, with what was sent before in them, or with their defaults."""
    if is_breakpoint(question):
        return ()
    fields = fields_of(question)
    single = question.single or not question.fields
    paths = ["value" if single else field.name for field in fields]
    return tuple(
        _control(field, f"f{n}", path, sent) for n, (field, path) in enumerate(zip(fields, paths, strict=True))
    )


def _control(field: Field, name: str, path: str, sent: Mapping[str, str] | None) -> Control:
    label = field.label or ("Answer" if path == "value" else field.name.replace("_", " ").capitalize())
    if field.type == "object" and field.fields:
        parts = tuple(_control(one, f"{name}.{n}", f"{path}.{one.name}", sent) for n, one in enumerate(field.fields))
        hint = field.description or ("" if field.required else "may be left empty")
        return Control(name=name, path=path, widget="group", label=label, field=field, hint=hint, parts=parts)
    value = _shown(field) if sent is None else sent.get(name, "")
    widget, options = _widget(field)
    return Control(
        name=name, path=path, widget=widget, label=label, field=field, hint=_hint(field), value=value, options=options
    )


def _widget(field: Field) -> tuple[Widget, tuple[Option, ...]]:
    if field.type == "boolean":
        return "radio", (Option("true", "Yes"), Option("false", "No"))
    if field.type == "choice":
        labels = field.labels or tuple(str(option) for option in field.options)
        options = tuple(Option(str(n), label) for n, label in enumerate(labels))
        return ("radio" if len(options) <= _FEW else "select"), options
    if field.type == "text" and (field.max_length or 0) > 120:
        return "lines", ()
    return _WIDGETS.get(field.type, "line"), ()


def _shown(field: Field) -> str:
    """The default, as it stands in the control."""
    default = field.default
    if default is None:
        return ""
    if field.type == "boolean":
        return "true" if default else "false"
    if field.type == "choice":
        return next(
            (str(n) for n, one in enumerate(field.options) if one == default and type(one) is type(default)), ""
        )
    if field.type == "list" and _by_line(field) and isinstance(default, list | tuple):
        return "\n".join(str(item) for item in default)
    return default if isinstance(default, str) else json.dumps(default, ensure_ascii=False, default=str)


def _hint(field: Field) -> str:
    words = [_HINTS[field.type]] if field.type in _HINTS else []
    if field.type == "list":
        words = ["one in each line" if _by_line(field) else "JSON, a list"]
    words += [text.format(bound) for name, text in _BOUNDS.items() if (bound := getattr(field, name)) is not None]
    if not field.required and field.default is None:
        words.append("may be left empty")
    return "; ".join(part for part in (field.description or "", ", ".join(words)) if part)


def _by_line(field: Field) -> bool:
    return field.items is not None and field.items.type in _PARTLESS


# --- what was sent


def read(question: Question, sent: Mapping[str, str]) -> Any:
    """The answer that a browser sent. What cannot be read stays as the text that it is, for the question to refuse."""
    if is_breakpoint(question):
        return sent.get("go_on") != "no"
    if not question.fields:
        return _parsed(ANYTHING, sent.get("f0", ""))
    if question.single:
        return _value(question.fields[0], "f0", sent)
    given = {field.name: _value(field, f"f{n}", sent) for n, field in enumerate(question.fields)}
    return {name: value for name, value in given.items() if value is not None}


def _value(field: Field, name: str, sent: Mapping[str, str]) -> Any:
    """The value of one control; None if it was left empty."""
    if field.type == "object" and field.fields:
        parts = {one.name: _value(one, f"{name}.{n}", sent) for n, one in enumerate(field.fields)}
        filled = {key: value for key, value in parts.items() if value is not None}
        return filled if filled or field.required else None
    text = sent.get(name, "").replace("\r\n", "\n")
    if not text.strip():
        cleared = field.type == "text" and isinstance(field.default, str)  # the default was in it, and was taken out
        return "" if cleared and name in sent else None
    return _parsed(field, text)


def _parsed(field: Field, text: str) -> Any:
    bare = text.strip()
    match field.type:
        case "text":
            return text
        case "boolean":
            return {"true": True, "false": False}.get(bare, bare)
        case "choice":
            known = bare.isdecimal() and int(bare) < len(field.options)
            return field.options[int(bare)] if known else bare
        case "list" if _by_line(field) and not bare.startswith("["):
            assert field.items is not None
            return [_parsed_item(field.items, line) for line in text.split("\n") if line.strip()]
        case "integer" | "number" | "any" | "list" | "mapping" | "object":
            try:
                return json.loads(bare)
            except ValueError:
                return text if field.type == "any" else bare
    return bare


def _parsed_item(field: Field, line: str) -> Any:
    if field.type == "choice":  # in a line of text its options are written out
        names = [str(option) for option in field.options]
        return field.options[names.index(line.strip())] if line.strip() in names else line.strip()
    return _parsed(field, line)


# --- what is wrong with it


def placed(made: Iterable[Control], problems: Iterable[str]) -> tuple[tuple[Control, ...], tuple[str, ...]]:
    """The controls with the problems that are about them, and the problems that are about none."""
    left = list(problems)
    placed = tuple(_with_errors(control, left) for control in made)
    return placed, tuple(left)


def _with_errors(control: Control, left: list[str]) -> Control:
    """The control with its problems, which are taken out of ``left``; those of its parts go to these."""
    parts = tuple(_with_errors(part, left) for part in control.parts)
    mine: list[str] = []
    for problem in list(left):
        rest = problem.removeprefix(control.path)
        if rest != problem and rest[:1] in (":", "[", "."):
            left.remove(problem)
            mine.append(rest.removeprefix(": ") if rest.startswith(": ") else problem)
    return replace(control, parts=parts, errors=tuple(mine))
