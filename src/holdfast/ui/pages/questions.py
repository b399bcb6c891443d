"""What waits for a person: the open questions of all runs, each with its form."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from msgspec import Struct
from starlette.responses import Response

from holdfast.engine.app import Holdfast
from holdfast.engine.control.questions import is_breakpoint
from holdfast.errors import HoldfastError
from holdfast.kernel.model import Status
from holdfast.ui.forms import Control, controls, placed
from holdfast.ui.pages.addresses import with_query
from holdfast.ui.pages.asking import Ask
from holdfast.views import Question, RunInfo

PAGE = 20  # questions
_LOOKED_AT = 300  # waiting runs that are looked at for one page: most of them may wait for a time or a message
_MOST = 2_000  # runs of which it is remembered what they ask


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


class Asked:
    """What runs ask, by the entry at which they are. Who asks nothing there asks nothing until the next entry."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], tuple[Question, ...]] = {}
        self._lock = threading.Lock()

    def by(self, hf: Holdfast, info: RunInfo) -> tuple[Question, ...]:
        """What a run asks; nothing, if it cannot be read."""
        key = (info.uid, info.seq)
        with self._lock:
            known = self._known.get(key)
        if known is not None and (not known or info.status is Status.WAITING):
            return known  # and of one that is driven, an answer may be there that was not taken yet
        try:
            found = tuple(hf.get(info.id).questions())
        except HoldfastError:  # encrypted, damaged, deleted: the run's own page says it
            found = ()
        with self._lock:
            if len(self._known) >= _MOST:
                del self._known[next(iter(self._known))]
            self._known[key] = found
        return found


asked = Asked()


def look(hf: Holdfast, *, enough: int, after: str | None = None) -> tuple[list[Question], str | None]:
    """What runs ask, the newest run first, until there are enough; and where to go on, if that was not all.

    It may find nothing and still say where to go on: so many runs are looked at, and they may wait for other things.
    """
    found: list[Question] = []
    looked_at = 0
    while True:
        page = hf.runs(status=(Status.WAITING, Status.RUNNING), limit=100, after=after)
        for info in page:
            found += asked.by(hf, info)
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
