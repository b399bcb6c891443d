"""What is left to whoever goes on with a run: a rollback that is not done, an answer that nobody has taken."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from msgspec import Struct

from holdfast.cli.rendering import short
from holdfast.engine import Holdfast
from holdfast.engine.run import Run
from holdfast.errors import HoldfastError
from holdfast.fold import question_id
from holdfast.model import Status
from holdfast.views import RunInfo


def rolling_back(hf: Holdfast, infos: Iterable[RunInfo], dead: Collection[str]) -> dict[str, str]:
    """What there is to say of those of these runs that are being rolled back, by their ids."""
    found: dict[str, str] = {}
    for info in infos:
        if info.rolls_back is not None and info.status is not Status.BLOCKED:  # then its reason says more
            try:
                to = f" to entry {hf.get(info.id).entry(info.rolls_back).contents['to']}"
            except HoldfastError:  # encrypted, damaged, deleted: that is told by whoever reads it
                to = ""
            goes_on = info.status is Status.RUNNING and info.id not in dead
            found[info.id] = f"is being rolled back{to}" + ("" if goes_on else "; whoever goes on finishes that")
    return found


class Untaken(Struct, frozen=True):
    """An answer that was given, and that nobody who drives the run has taken yet."""

    run: str
    prompt: str
    value: Any
    by: str | None

    @property
    def told(self) -> str:
        """The answer for people."""
        return f"answered: {short(self.value)}{f' by {self.by}' if self.by else ''} (not taken yet)"


def untaken_answers(run: Run) -> list[Untaken]:
    """The answers that wait in the inbox of the run."""
    items = [item for item in run._store.inbox(run.uid) if item.kind == "answer"]
    if not items:
        return []
    record, found = run._record(), list[Untaken]()
    asked = run._journals.fold(record, record.seq).questions
    for item in items:
        data = run._journals.item_data(run.id, run.uid, item)
        question = asked.get(data["question"])
        if question is not None and question_id(run.uid, question) == data["id"]:
            found.append(Untaken(run.id, question.prompt, run._codec.raw(data.get("value")), data.get("by")))
    return found
