"""A checkpoint: the run as it was at one sequence number."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from typing import Any

from holdfast.codec import Tree
from holdfast.engine.access.journal_reader import Journals, Saved
from holdfast.engine.control.effects import effect
from holdfast.engine.control.questions import question
from holdfast.errors import Redacted
from holdfast.kernel.fold import Fold
from holdfast.kernel.journal import Data
from holdfast.kernel.model import RunRecord
from holdfast.views import Effect, Question, moment


class StepsAt:
    """What was done up to a checkpoint; folded when it is first asked for, since a state is often all one wants."""

    def __init__(self, fold: Callable[[], Fold]) -> None:
        self._read = fold
        self._fold: Fold | None = None

    def load(self) -> Fold:
        """The fold, read if it was not yet."""
        if self._fold is None:
            self._fold = self._read()
        return self._fold


class Checkpoint:
    """State, what comes next, and what was done, at one sequence number. It does not change afterwards."""

    def __init__(
        self, record: RunRecord, seq: int, saved: Saved | None, journals: Journals, state_type: Any, steps: StepsAt
    ) -> None:
        tree = saved.tree if saved is not None else {}
        self._record = record
        self._journals = journals
        self._steps = steps
        self._tree = tree
        self._state_type = state_type
        self.run: str = record.id
        self.seq: int = seq
        self.workflow: str | None = record.workflow
        self.state_seq: int | None = saved.seq if saved is not None else None
        self.saved_at: datetime | None = moment(saved.at) if saved is not None else None
        self.step: int | None = self._value(tree.get("step"), "step")
        self.node: str | None = self._value(tree.get("node"), "node")
        self.queue: Any = self._value(tree.get("queue"), "queue")
        self.next: str | None = self._value(tree.get("next"), "next")
        if "graph" in tree:  # whose queue says what comes next
            self.next = self.queue[0].partition(":")[0] if self.queue else None
        self.variables: Any = self._value(tree.get("variables"), "variables")

    def __repr__(self) -> str:
        return f"<Checkpoint {self.run!r} at {self.seq}, step {self.step}, next {self.next!r}>"

    def _value(self, tree: Tree, what: str, as_type: Any = None) -> Any:
        return self._journals.value(self.run, tree, what, as_type)

    @cached_property
    def state(self) -> Any:
        """The state that was saved last; None if none was. Raises `TypeMissing` for a class that is not known here."""
        return self._value(self._tree.get("state"), "state", self._state_type)

    @property
    def raw_state(self) -> Any:
        """The state in a readable JSON form that needs none of the user's classes."""
        return self._journals.codec.raw(self._tree.get("state"))

    @property
    def generation(self) -> int:
        """How often the run had been rolled back by then."""
        return self._steps.load().generation

    @property
    def results(self) -> dict[str, Any]:
        """The results of the completed steps, by their keys. Those that were erased are left out."""
        steps = self._steps.load().steps
        return {key: self._value(step.result, f"result of {key}") for key, step in steps.items() if not step.erased}

    @property
    def raw_results(self) -> dict[str, Any]:
        """The same in a readable JSON form that needs none of the user's classes."""
        steps = self._steps.load().steps
        return {key: self._journals.codec.raw(step.result) for key, step in steps.items() if not step.erased}

    @property
    def completed(self) -> frozenset[str]:
        """The keys of the completed steps."""
        return frozenset(self._steps.load().steps)

    @property
    def effects(self) -> tuple[Effect, ...]:
        """What had been done to the outside world, oldest first."""
        ledger = self._steps.load().ledger
        return tuple(effect(ledger[seq]) for seq in sorted(ledger))

    @property
    def questions(self) -> tuple[Question, ...]:
        """The questions that were open."""
        asked = self._steps.load().questions
        return tuple(question(self.run, self._record.uid, one) for one in asked.values())

    @property
    def answers(self) -> dict[str, Any]:
        """The answers that had been given, by output key."""
        return {key: self._value(tree, f"answer {key}") for key, tree in self._steps.load().answers.items()}

    @property
    def error(self) -> str | None:
        """What the run failed with, or why it was cancelled, if it was by then."""
        ended = self._steps.load().ended
        return ended[1].get("error") if ended is not None else None

    @property
    def failed_at(self) -> str | None:
        """Of a graph that had failed by then: the call of the node that raised the error, such as ``check#1``."""
        ended = self._steps.load().ended
        return ended[1].get("node") if ended is not None else None

    @property
    def result(self) -> Any:
        """What the run was completed with, if it was by then."""
        ended = self._steps.load().ended
        if ended is not None and "erased" in ended[1]:
            raise Redacted(self.run, "its result was erased on request")
        return self._value(self._result(ended[1]), "result", self._state_type) if ended is not None else None

    def _result(self, ended: Data) -> Tree:
        return self._journals.result(self._record, ended)

    @property
    def raw_result(self) -> Any:
        """The same in a readable JSON form that needs none of the user's classes; None if it was erased."""
        ended = self._steps.load().ended
        return self._journals.codec.raw(self._result(ended[1])) if ended is not None else None
