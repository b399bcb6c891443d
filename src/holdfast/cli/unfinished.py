"""What is left to whoever goes on with a run: a rollback that is not done, an answer that nobody has taken."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from msgspec import Struct

from holdfast.cli.rendering import short
from holdfast.engine.access.operations import drive
from holdfast.engine.app import Holdfast
from holdfast.engine.run.handle import Run
from holdfast.errors import HoldfastError
from holdfast.kernel.model import Kind, Status
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


# What others than the holder leave.
_LEFT = frozenset({Kind.ANSWERED, Kind.DECLINED, Kind.LATE, Kind.MARKED, Kind.RECEIVED})


class Untaken(Struct, frozen=True):
    """An answer that was given, and with which nobody has resumed the run yet."""

    run: str
    prompt: str
    value: Any
    by: str | None

    @property
    def told(self) -> str:
        """The answer for people."""
        return f"answered: {short(self.value)}{f' by {self.by}' if self.by else ''} (not taken yet)"


def untaken_answers(run: Run) -> list[Untaken]:
    """The answers that were given since somebody last executed the run, or that its holder has not taken in yet."""
    record, pending = drive(run.held.pending(), run.held.committer)
    fold = run.held.refold(record)
    lines = list(pending)
    if record.worker is None:
        for seq, kind, at, data in reversed(fold.log.copy()):
            if seq != (lines[0][0] if lines else record.seq + 1) - 1 or kind not in _LEFT:
                break
            lines.insert(0, (seq, kind, at, data))
    prompts = {seq: data.get("prompt", "(erased)") for seq, kind, _, data in fold.log.copy() if kind == Kind.ASKED}
    return [
        Untaken(run.id, prompts[data["question"]], run.held.codec.raw(data["value"]), data.get("by"))
        for _, kind, _, data in lines
        if kind == Kind.ANSWERED and "value" in data
    ]
