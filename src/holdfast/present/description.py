"""The whole description of one run, which `holdfast show` and the page of the run render."""

from __future__ import annotations

from msgspec import Struct

from holdfast.engine.app import Holdfast
from holdfast.engine.run.handle import Run
from holdfast.present.input import Input, input_of
from holdfast.present.outcome import Outcome, outcome_of
from holdfast.present.questions import Untaken, open_questions, untaken_answers
from holdfast.present.remedies import Remedy, remedies_of
from holdfast.present.status import Standing, standing
from holdfast.present.timeline import Window, window
from holdfast.views import Question, RunInfo


class Description(Struct, frozen=True, kw_only=True):
    """A run for people: how it stands, what went in and came out, what happened, what is asked, and what helps."""

    info: RunInfo
    standing: Standing
    input: Input
    outcome: Outcome
    questions: list[Question]  # its own, and those of its children
    untaken: list[Untaken]
    remedies: list[Remedy]
    window: Window


def describe(hf: Holdfast, run: Run, *, upto: int | None = None, stands: Standing | None = None) -> Description:
    """Describe a run; with ``upto``, what happened up to that entry. ``stands`` is how it stands, if that is known."""
    info = run.info()
    stands, questions = stands or standing(hf, info), open_questions(hf, run)
    return Description(
        info=info,
        standing=stands,
        input=input_of(run, info),
        outcome=outcome_of(run, info),
        questions=questions,
        untaken=untaken_answers(hf, run),
        remedies=remedies_of(run, info, questions, died=stands.died),
        window=window(run, info, died=stands.died, upto=upto),
    )
