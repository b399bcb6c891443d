"""What waits for a person: the open questions of all runs, each with its form."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from starlette.responses import Response

from holdfast.engine.app import Holdfast
from holdfast.engine.control.questions import is_breakpoint
from holdfast.kernel.model import Status
from holdfast.present.questions import asked
from holdfast.ui.forms import Control, controls, placed
from holdfast.ui.pages.addresses import with_query
from holdfast.ui.pages.asking import Ask
from holdfast.views import Question

PAGE = 20  # questions
_LOOKED_AT = 300  # waiting runs that are looked at for one page: most of them may wait for a time or a message


class Form(Struct, frozen=True):
    """A question as it is shown, with what was typed before and what is wrong with it."""

    question: Question
    controls: tuple[Control, ...]
    errors: tuple[str, ...] = ()
    interrupt: bool = False


def form(question: Question, sent: Mapping[str, str] | None = None, problems: tuple[str, ...] = ()) -> Form:
    """The form of a question."""
    made, rest = placed(controls(question, sent), problems)
    return Form(question, made, rest, is_breakpoint(question))


def look(hf: Holdfast, *, enough: int, after: str | None = None) -> tuple[list[Question], str | None]:
    """What runs ask, the newest run first, until there are enough; and where to go on, if that was not all.

    It may find nothing and still say where to go on: so many runs are looked at, and they may wait for other things.
    """
    found: list[Question] = []
    looked_at = 0
    while True:
        page = hf.runs(status=(Status.WAITING, Status.RUNNING), limit=100, after=after)
        for info in page:
            found += asked.by(hf, info) or ()
            looked_at += 1
            if len(found) >= enough or looked_at >= _LOOKED_AT:
                is_last = page.next is None and info is page.items[-1]
                return found, None if is_last else info.uid
        if (after := page.next) is None:
            return found, None


def page(ask: Ask) -> Response:
    """All questions."""
    found, next = look(ask.hf, enough=PAGE, after=ask.one("after") or None)
    return ask.render(
        "questions.html",
        title="Questions",
        live="store",
        forms=[form(question) for question in found],
        first="/questions" if ask.one("after") else None,
        next=with_query("/questions", {"after": next}) if next else None,
    )
