"""What the record of a step has, by its kind: `steps.ID.NAME` in templates."""

from __future__ import annotations

from typing import Any

from holdfast.flow.file.keys import ACTIONS
from holdfast.flow.file.shapes import nearest
from holdfast.flow.template.sandbox import METHODS

EVERY = ("status", "error")
OF_ACTION: dict[str, tuple[str, ...]] = {
    "run": ("exit_code", "stdout", "stderr"),
    "http": ("status_code", "body", "result"),
    "call": ("result",),
    "ask": ("result",),
    "flow": ("result",),
}


def wrong_part(id: str, step: dict[str, Any], below: tuple[str, ...], is_inside: bool) -> str | None:
    """What is wrong with the names that follow on ``steps.ID``, if it is sure that they are never there.

    ``is_inside`` says that the template is the step's own, or of one inside of it: there it may be about one item.
    """
    known = _names(step, is_inside)
    if not below or known is None:
        return None
    if wrong := _missing(f"steps.{id}", below[0], known):
        return wrong
    fields = _fields(step) if len(below) > 1 and below[0] == "result" else None
    return _missing(f"steps.{id}.result", below[1], fields) if fields is not None else None


def _missing(whose: str, name: str, known: tuple[str, ...]) -> str | None:
    if name in known or name in METHODS[dict]:
        return None
    return f"there is no `{whose}.{name}`{nearest(name, known) or '; there are ' + ', '.join(known)}"


def _names(step: dict[str, Any], is_inside: bool) -> tuple[str, ...] | None:
    """The names that a record of the step may have; None if it is no step yet, which is told elsewhere."""
    actions = [name for name in ACTIONS if name in step]
    if len(actions) != 1:
        return None
    own = OF_ACTION.get(actions[0], ())
    rounds = ("rounds",) if "loop" in step or "until" in step else ()
    if "for_each" in step:
        return (*EVERY, "items", *(own if is_inside else ()))
    return (*EVERY, *own, *rounds)


def _fields(step: dict[str, Any]) -> tuple[str, ...] | None:
    """The names of the fields that a question asks for, if it has any."""
    ask = step.get("ask")
    fields = ask.get("fields") if isinstance(ask, dict) else None
    if not isinstance(fields, list) or not fields:
        return None
    names = [one.get("name") for one in fields if isinstance(one, dict)]
    return tuple(str(name) for name in names) if len(names) == len(fields) else None
