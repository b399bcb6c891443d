"""The form of a question, by hand or from a type, and whether an answer fits it.

A form can be checked without the class that it was made from. Where the class is known, because this process has made
a form of it too, its own validators are asked as well. A stored name is only looked up: it never causes an import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any
from weakref import WeakValueDictionary

from msgspec.structs import replace

from holdfast.errors import AnswerRefused, UsageError, shown
from holdfast.forms.check import Fit, Form, OwnCheck, Problem, load_form, senseless_bound, store_form, told
from holdfast.forms.kinds import Kinds, Reading
from holdfast.forms.parts import problems_of
from holdfast.views import Field

__all__ = [
    "Form",
    "Misfit",
    "check_answer",
    "form",
    "form_differences",
    "form_of",
    "load_form",
    "store_form",
    "typed",
]

_TYPES: dict[Any, str] = {str: "text", int: "integer", float: "number", bool: "boolean"}
_NAMES = frozenset({"text", "integer", "number", "boolean", "choice"})
_FROM_TYPES = ("labels", "items", "fields", "unique", "omitted", "of")
_known: WeakValueDictionary[str, type] = WeakValueDictionary()


class Misfit(ValueError):
    """The value does not fit the type; ``problems`` names everything that is wrong with it."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


def form_of(kind: Any) -> Form:
    """The form that asks for a type, for a list of fields, or (None) for anything.

    Raises `UsageError` for a type that no form can ask for. The classes in it are remembered, weakly.
    """
    if kind is None or _is_by_hand(kind):
        return Form(form(() if kind is None else kind))
    kinds = Kinds()
    made, _ = kinds.form(kind)
    _known.update(kinds.classes)
    return made


def check_answer(run: str, form: Form, answer: Any) -> Any:
    """The answer as plain builtins, with defaults filled in; raises `AnswerRefused` naming every problem.

    An object of the class that was asked for is taken as well as a mapping. A form without fields takes any value that
    can be stored.
    """
    fit = Fit(_validators(cache(_known_reading)))
    filled = fit.form(form, answer)
    if fit.problems:
        raise AnswerRefused(run, told(fit.problems))
    return filled


def typed(kind: Any, value: Any) -> Any:
    """The object that a checked answer stands for; raises `Misfit` if the type, or the class itself, refuses it."""
    build: Callable[[Any], Any] | None = None
    if kind is None or _is_by_hand(kind):
        made, fit = form_of(kind), Fit()
    else:
        kinds = Kinds()
        made, reading = kinds.form(kind)
        fit, build = Fit(_validators(kinds.readings.get)), reading.made
    filled = fit.form(made, value)
    if fit.problems:
        raise Misfit(told(fit.problems))
    try:
        return build(filled) if build else filled
    except Exception as error:  # the class's own validators, which may raise anything
        raise Misfit(told(problems_of(error))) from error


def form_differences(old: Form, new: Form) -> list[str]:
    """What differs between two forms, for people: which fields are new, gone, or of another kind."""
    if old.single and new.single:
        parts = _part_differences(old.fields[0], new.fields[0])
        return [f"the answer: {part}" for part in parts]
    before, after = ({field.name: field for field in form.fields} for form in (old, new))
    if old.single != new.single or not (before and after):
        return [f"it was {_form_told(old)}, and is now {_form_told(new)}"] if old != new else []
    differences = [f"field {name!r} was removed" for name in before if name not in after]
    differences += [f"field {name!r} is new" for name in after if name not in before]
    for name in [name for name in before if name in after]:
        differences += [f"field {name!r}: {part}" for part in _part_differences(before[name], after[name])]
    return differences


def _form_told(form: Form) -> str:
    if form.type is not None:
        return form.type
    return f"a form of {', '.join(field.name for field in form.fields)}" if form.fields else "any value"


def _part_differences(old: Field, new: Field) -> list[str]:
    """What differs between two fields in what they take."""
    shown_by_name = {"label", "labels", "description", "default", "name", "of"}
    return [
        f"{part} was {_part_told(getattr(old, part))}, and is now {_part_told(getattr(new, part))}"
        for part in Field.__struct_fields__
        if part not in shown_by_name and getattr(old, part) != getattr(new, part)
    ]


def _part_told(part: Any) -> str:
    if isinstance(part, Field):
        return str(part.type)
    if isinstance(part, tuple):
        return ", ".join(str(one.name if isinstance(one, Field) else one) for one in part) or "none"
    return "none" if part is None else str(part)


def _known_reading(name: str) -> Reading | None:
    cls = _known.get(name)
    return None if cls is None else Kinds().read(cls, name)


def _validators(find: Callable[[str], Reading | None]) -> OwnCheck:
    """What the class of a name has against the fields of an object, if the class can be found."""

    def check(name: str, value: Any) -> list[Problem]:
        reading = find(name)
        if reading is None:
            return []
        fit = Fit()  # the class may have changed since it was asked for
        filled = fit.value(reading.field, value, "")
        if not fit.problems:
            try:
                reading.build(filled)
            except Exception as error:  # the class's own validators, which may raise anything
                return problems_of(error)
        return fit.problems

    return check


# --- forms by hand


def _is_by_hand(kind: Any) -> bool:
    """Whether these are fields, or meant to be; not any iterable, for ``list[int]`` is one too."""
    return isinstance(kind, list | tuple | Mapping | Field | str)


def form(fields: Iterable[Field | Mapping[str, Any]]) -> tuple[Field, ...]:
    """The fields of a question, checked. Each is a `Field` or a mapping with the same names."""
    if isinstance(fields, Mapping | Field | str) or not isinstance(fields, Iterable):
        raise UsageError(f"{shown('fields', fields)}: is a list of fields, such as [Field('name', 'text')]")
    made = tuple(_field(field) for field in fields)
    names = [field.name for field in made]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"a question has each field once; given twice: {', '.join(twice)}")
    return made


def _field(given: Field | Mapping[str, Any]) -> Field:
    if isinstance(given, Field):
        field = given
    elif not isinstance(given, Mapping):
        raise UsageError(f"{shown('fields', [given])}: each is a Field or a mapping, such as Field('name', 'text')")
    else:
        unknown = set(given) - set(Field.__struct_fields__)
        if unknown or "name" not in given:
            raise UsageError(f"field {dict(given)!r}: needs a name, and knows {', '.join(Field.__struct_fields__)}")
        field = Field(**given)
    _check_parts(field)
    kind = _TYPES.get(field.type, field.type) if isinstance(field.type, str | type) else None
    options = tuple(field.options)
    if options and kind == "text":
        kind = "choice"
    if kind not in _NAMES:
        raise UsageError(f"field {field.name}: {shown('type', field.type)} is none of {', '.join(sorted(_NAMES))}")
    if (kind == "choice") != bool(options) or not all(isinstance(option, str) for option in options):
        raise UsageError(f"field {field.name}: a choice has options (text), and only a choice has")
    made = replace(field, type=kind, options=options)
    if problem := senseless_bound(made):
        raise UsageError(f"field {field.name}: {problem}")
    if made.default is not None:
        fit = Fit()
        fit.value(made, made.default, made.name)
        if fit.problems:
            raise UsageError(f"the default of {told(fit.problems)[0]}")
    return made


def _check_parts(field: Field) -> None:
    """What is stored must be of the types that it is read back as."""
    name = field.name
    if not isinstance(name, str) or not name:
        raise UsageError(f"a field's name is text, not {name!r}")
    for part in ("label", "description"):
        if not isinstance(getattr(field, part), str | None):
            raise UsageError(f"field {name}: {shown(part, getattr(field, part))} is not text")
    if not isinstance(field.required, bool):
        raise UsageError(f"field {name}: {shown('required', field.required)} is neither True nor False")
    if not isinstance(field.options, list | tuple):
        raise UsageError(f"field {name}: {shown('options', field.options)} is not a list of text")
    for part in _FROM_TYPES:
        if getattr(field, part):
            raise UsageError(f"field {name}: {part}= is for forms that are made from a type; ask for one instead")
