"""Asking a person at the terminal: the fields of a question one after the other, each checked when it is given."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from holdfast.cli.rendering import console, escaped
from holdfast.engine.control.questions import is_breakpoint
from holdfast.errors import AnswerRefused
from holdfast.forms import Form, check_answer
from holdfast.present.words import one_line
from holdfast.views import Field, Question

YES = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}
_HINTS = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "y or n",
    "decimal": "a decimal number",
    "date": "a date such as 2026-01-31",
    "time": "a time such as 09:30",
    "datetime": "a moment such as 2026-01-31T09:30",
    "duration": "a duration such as P1DT12H",
    "uuid": "a UUID",
    "bytes": "base64",
    "any": "JSON, or text",
    "mapping": "JSON",
}
AS_TEXT = ("text", "decimal", "date", "time", "datetime", "duration", "uuid", "bytes")


def can_ask() -> bool:
    """Whether a person sits there."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def ask(question: Question, answer: Callable[[Any], None]) -> None:
    """Ask a question until its answer is taken; ``answer`` raises `AnswerRefused` for one that is not.

    Raises EOFError when the person gives no answer, and KeyboardInterrupt.
    """
    import readline  # noqa: F401  # so that what is typed can be edited

    where = console()
    where.print(f"\n[yellow]?[/] [bold]{escaped(question.prompt)}[/]")
    if is_breakpoint(question):
        goes_on = _read_yes("  go on? [y/N] ")
        answer(goes_on)
        if not goes_on:
            raise EOFError
        return
    while True:
        value = _fields(question)
        try:
            check_answer(question.run, Form(question.fields, question.single, question.type), value)
            answer(value)
            return
        except AnswerRefused as refused:
            for problem in refused.problems:
                _complain(problem)


def _fields(question: Question) -> Any:
    if not question.fields:
        return _field(Field("answer", "any"), "answer")
    if question.single:
        return _field(question.fields[0], _label(question.fields[0]) if question.fields[0].label else "answer")
    return _object(question.fields, "")


def _object(fields: tuple[Field, ...], path: str) -> dict[str, Any]:
    given = {field.name: _field(field, f"{path}{_label(field)}") for field in fields}
    return {name: value for name, value in given.items() if value is not None}


def _label(field: Field) -> str:
    return one_line(field.label or field.name)


def _field(field: Field, label: str) -> Any:
    """The value of one field, asked for until it fits."""
    if field.type == "object" and field.fields:
        if not field.required and not _read_yes(f"  {label}: fill it in? [y/N] "):
            return field.default
        return _object(field.fields, f"{label}.")
    _explain(field)
    while True:
        text = input(_line(field, label))
        if not text.strip():
            if field.default is not None or not field.required:
                return field.default
            if field.type != "text" or field.min_length:
                _complain(f"{label}: is required")
                continue
        try:
            value = _parsed(field, text)
        except ValueError as error:
            _complain(f"{label}: {error}")
            continue
        if not (problems := _problems(field, value)):
            return value
        for problem in problems:
            _complain(f"{label}{problem}")


def _problems(field: Field, value: Any) -> list[str]:
    """All that is wrong with a value, each after the way to it."""
    try:
        check_answer("", Form((field,), single=True), value)
    except AnswerRefused as refused:
        return [problem.removeprefix("value") for problem in refused.problems]
    return []


def _parsed(field: Field, text: str) -> Any:
    """What was typed, as a value of the field's kind; raises ValueError if it cannot be one."""
    bare = text.strip()
    match field.type:
        case "boolean":
            if bare.lower() not in YES:
                raise ValueError(f"{bare!r} is neither y nor n")
            return YES[bare.lower()]
        case "choice":
            return _chosen(field, bare)
        case "list":
            if bare.startswith("["):
                return _json(bare)
            item = field.items or Field("item", "any")
            return [_parsed(item, part) for part in bare.split(",")] if bare else []
        case "integer" | "number":
            return _number(field, bare)
        case "mapping" | "object":
            return _json(bare)
        case "any":
            try:
                return _json(bare)
            except ValueError:
                return text
    return bare if field.type in AS_TEXT[1:] else text


def _number(field: Field, text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            raise ValueError(f"{text!r} is not {_HINTS[field.type]}") from None


def _chosen(field: Field, text: str) -> Any:
    """An option by its number in the list, by its name, or by itself."""
    names = [str(option) for option in field.options]
    if text in field.labels:
        return field.options[field.labels.index(text)]
    if text in names:
        return field.options[names.index(text)]
    if text.isdecimal() and 1 <= int(text) <= len(names):
        return field.options[int(text) - 1]
    raise ValueError(f"{text!r} is none of {', '.join(field.labels or names)}")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"this is not JSON: {error}") from None


def _read_yes(text: str) -> bool:
    return YES.get(input(text).strip().lower(), False)


# --- what is shown


def _explain(field: Field) -> None:
    if field.description:
        console().print(f"  [dim]{escaped(field.description)}[/]")
    if field.type == "choice":
        for n, option in enumerate(field.options, 1):
            label = field.labels[n - 1] if field.labels else option
            console().print(f"  [cyan]{n}[/] {escaped(label)}")


def _line(field: Field, label: str) -> str:
    """What stands before the place where the answer is typed."""
    hints = [_HINTS[field.type]] if field.type in _HINTS else []
    if field.type == "list":
        hints = ["several, separated by commas"]
    for name, words in (("minimum", "from {}"), ("maximum", "up to {}"), ("above", "above {}"), ("below", "below {}")):
        if getattr(field, name) is not None:
            hints.append(words.format(getattr(field, name)))
    if not field.required and field.default is None:
        hints.append("may be left out")
    hint = f" ({', '.join(hints)})" if hints else ""
    default = ""
    if field.default is not None:
        shown = {True: "y", False: "n"}.get(field.default) if field.type == "boolean" else None
        default = f" [{one_line(shown or field.default)}]"
    return f"  {label}{hint}{default}: "


def _complain(text: str) -> None:
    console().print(f"  [red]✗ {escaped(text)}[/]")
