"""What went wrong, as ``application/problem+json``: one table from the tree of errors to statuses of HTTP.

No answer names the place of the store, and none of something that nobody foresaw says more than that.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec
from msgspec import Struct
from starlette.responses import Response

from holdfast import errors

MEDIA = "application/problem+json"


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a request was refused. ``problems`` names each thing that is wrong with what was sent."""

    type: str
    title: str
    status: int
    detail: str
    run: str | None = None
    problems: list[str] = []


class Refused(Exception):
    """A request that is refused for a reason of HTTP's own."""

    def __init__(self, status: int, title: str, detail: str, headers: dict[str, str] | None = None) -> None:
        self.status = status
        self.title = title
        self.detail = detail
        self.headers = headers or {}
        super().__init__(detail)


class Row(NamedTuple):
    """How errors of a class, and of those below it in the tree, are told."""

    error: type[Exception]
    status: int
    quoted: bool = True  # whether the message is told, or only what the class says


TABLE = (
    Row(errors.RunNotFound, 404, quoted=False),
    Row(errors.ScheduleNotFound, 404, quoted=False),
    Row(errors.ScheduleMoved, 409),
    Row(errors.NoCheckpoint, 404),
    Row(errors.Redacted, 410),
    Row(errors.AnswerRefused, 422),
    Row(errors.RunError, 409),
    Row(errors.UndoRefused, 409),
    Row(errors.WorkflowMissing, 409),
    Row(errors.UsageError, 422),
    Row(errors.TooLarge, 413),
    Row(errors.ValueRefused, 422),
    Row(errors.KeyMissing, 409),
    Row(errors.SecretMissing, 409),
    Row(errors.StoreFull, 507, quoted=False),
    Row(errors.StoreDamaged, 500, quoted=False),
    Row(errors.StoreError, 503, quoted=False),
    Row(errors.HoldfastError, 500, quoted=False),
)
_BY_ERROR = {row.error: row for row in TABLE}


def problem_of(error: Exception, place: str) -> Problem:
    """The error for whoever called. ``place`` is that of the store, which nobody is told."""
    if isinstance(error, Refused):
        return _problem(error.title, error.status, error.detail)
    row = next((_BY_ERROR[kind] for kind in type(error).__mro__ if kind in _BY_ERROR), None)
    if row is None:
        return _problem("Unexpected", 500, "something went wrong that nobody foresaw; the server's log says what")
    said = " ".join((type(error).__doc__ or "").split())
    detail = without_place(str(error), place) if row.quoted else said
    run, several = getattr(error, "run", None), getattr(error, "problems", ())
    if isinstance(error, errors.RunNotFound):
        detail = f"there is no run {error.run!r}"
    return msgspec.structs.replace(
        _problem(type(error).__name__, row.status, detail),
        run=run if isinstance(run, str) else None,
        problems=[without_place(str(one), place) for one in several],
    )


def _problem(name: str, status: int, detail: str) -> Problem:
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
    kind = words.replace(" ", "-")
    return Problem(type=f"urn:holdfast:problem:{kind}", title=words.capitalize(), status=status, detail=detail)


def without_place(text: str, place: str) -> str:
    """The text without the place of the store: neither its URL, nor the path in it."""
    path = place.partition("://")[2].lstrip("/")
    for told in (place, f"/{path}", path):
        if len(told) > 3:
            text = text.replace(told, "the store")
    return _STORE.sub("another store", text)  # to which a run was moved, say


_STORE = re.compile(r"\b(?:sqlite|files|postgresql|memory):/{2,4}[^\s;,'\"()]*")


def answer_of(problem: Problem, headers: dict[str, str] | None = None) -> Response:
    """The problem as a response."""
    told = msgspec.json.encode(problem)
    return Response(told, problem.status, headers={**(headers or {}), "Cache-Control": "no-store"}, media_type=MEDIA)
