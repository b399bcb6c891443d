"""A checkpoint: the run as it was at one sequence number."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from holdfast.codec import Codec
from holdfast.engine.journals import Saved
from holdfast.engine.pauses import question
from holdfast.engine.steps import effect
from holdfast.journal import Fold
from holdfast.model import RunRecord
from holdfast.views import Effect, Question, moment


class StepsAt:
    """What was done up to a checkpoint; folded when it is first asked for, since a state is often all one wants."""

    def __init__(self, fold: Callable[[], Fold], codec: Codec) -> None:
        self._read = fold
        self._fold: Fold | None = None
        self.codec = codec

    def load(self) -> Fold:
        """The fold, read if it was not yet."""
        if self._fold is None:
            self._fold = self._read()
        return self._fold


class Checkpoint:
    """State, what comes next, and what was done, at one sequence number. It does not change afterwards."""

    def __init__(
        self, record: RunRecord, seq: int, saved: Saved | None, codec: Codec, state_type: Any, steps: StepsAt
    ) -> None:
        tree = saved.tree if saved is not None else {}
        self.run: str = record.id
        self.seq: int = seq
        self.workflow: str | None = record.workflow
        self.state: Any = codec.decode(tree["state"], state_type, "state") if saved is not None else None
        self.state_seq: int | None = saved.seq if saved is not None else None
        self.saved_at: datetime | None = moment(saved.at) if saved is not None else None
        self.step: int | None = int(tree["step"]) if saved is not None else None  # type: ignore[arg-type]
        self.node: str | None = codec.decode(tree.get("node"))
        self.next: str | None = codec.decode(tree.get("next"))
        self.queue: Any = codec.decode(tree.get("queue"))
        self.variables: Any = codec.decode(tree.get("variables"))
        self._record = record
        self._steps = steps

    def __repr__(self) -> str:
        return f"<Checkpoint {self.run!r} at {self.seq}, step {self.step}, next {self.next!r}>"

    @property
    def generation(self) -> int:
        """How often the run had been rolled back by then."""
        return self._steps.load().generation

    @property
    def results(self) -> dict[str, Any]:
        """The results of the completed steps, by their keys. Those that were erased are left out."""
        steps = self._steps.load().steps
        return {key: self._steps.codec.decode(step.result) for key, step in steps.items() if not step.erased}

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
        return {key: self._steps.codec.decode(tree) for key, tree in self._steps.load().answers.items()}

    @property
    def result(self) -> Any:
        """What the run was completed with, if it was by then."""
        ended = self._steps.load().ended
        return self._steps.codec.decode(ended[1].get("result")) if ended is not None else None
