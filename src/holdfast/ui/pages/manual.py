"""The API for people to read: the same document as ``/api/openapi.json``, as a page."""

from __future__ import annotations

from itertools import groupby

from starlette.responses import Response

from holdfast.ui.api.operations import TABLE, Operation
from holdfast.ui.pages.asking import Ask

_SUBJECTS = ("questions", "queues", "schedules", "workers", "hooks", "events")  # all else is about runs


def page(ask: Ask) -> Response:
    """All operations, by what they are about."""
    groups = [(name, list(found)) for name, found in groupby(TABLE, key=_subject)]
    return ask.render("api.html", title="API", groups=groups)


def _subject(operation: Operation) -> str:
    first = operation.path.split("/")[1]
    return first if first in _SUBJECTS else "runs"
