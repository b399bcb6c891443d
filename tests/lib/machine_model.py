"""The model that a random history is compared with: for every entry of every run, what must be said of it for ever."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from machine_world import exact

from holdfast.engine.app import Holdfast
from holdfast.engine.run.handle import Run
from holdfast.kernel.model import ENDED, Kind, Status

# --- the model


@dataclass(frozen=True)
class Done:
    """A completed step: its result, and what it was called as (None: it was marked, so nothing is compared)."""

    result: Any
    call: Any


@dataclass(frozen=True)
class Deed:
    """An effect. ``settled`` is the entry that says how it went."""

    key: str
    status: str
    settled: int
    undo: str = "none"
    place: str = ""
    call: Any = None


@dataclass(frozen=True)
class Asked:
    """An open question."""

    generation: int
    prompt: str
    output_key: str


@dataclass(frozen=True)
class Moment:
    """What the checkpoint at one entry says, and which entries counted then."""

    kind: str = Kind.CREATED
    live: tuple[int, ...] = (0,)
    generation: int = 0
    state: Any = None
    state_seq: int | None = None
    step: int | None = None
    next: str | None = None
    done: dict[str, Done] = field(default_factory=dict)
    deeds: dict[int, Deed] = field(default_factory=dict)
    open: dict[str, int] = field(default_factory=dict)  # steps that were begun: key to entry
    questions: dict[int, Asked] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)
    ended: Status | None = None
    result: Any = None


FOUND = ("done", "undo_failed")  # what an effect is that an undo is called for


@dataclass
class Life:
    """One life of a process: an engine, until it dies. ``until`` is when its leases end."""

    hf: Holdfast
    until: int | None = None  # None: it has claimed nothing yet
    handles: dict[str, Run] = field(default_factory=dict)


@dataclass
class Rolling:
    """A rollback that has begun."""

    to: int
    plan: list[int]
    force: bool = False
    settled: set[int] = field(default_factory=set)  # undone, or passed over


@dataclass
class Twin:
    """The model of one run."""

    id: str
    uid: str
    base: int
    moments: list[Moment]
    lineage: tuple[str, ...] = ()
    status: Status = Status.READY
    holder: Life | None = None
    epoch: int = 0
    inbox: list[tuple[str, Any]] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    rolling: Rolling | None = None
    hands: list[Life] = field(default_factory=list)  # whose handles believe that they hold it
    hashes: list[bytes] = field(default_factory=list)  # of all entries, as they were read the first time
    checked: int = 0  # how many moments were compared

    @property
    def seq(self) -> int:
        return len(self.moments) - 1

    @property
    def now(self) -> Moment:
        return self.moments[-1]

    def write(self, kind: str, **facts: Any) -> int:
        """Add an entry, which changes these facts of the moment before."""
        seq = len(self.moments)
        self.moments.append(replace(self.now, kind=kind, live=(*self.now.live, seq), **facts))
        return seq

    def complete(self, kind: str, key: str, done: Done | None, deed: tuple[int, Deed] | None) -> None:
        """Add an entry that settles a step: it is done, or it was not."""
        now, seq = self.now, len(self.moments)
        steps = {**now.done, key: done} if done is not None else now.done
        deeds = {**now.deeds, deed[0]: replace(deed[1], settled=seq)} if deed is not None else now.deeds
        self.write(kind, done=steps, deeds=deeds, open={k: n for k, n in now.open.items() if k != key})

    def resting(self) -> Status:
        """The status when nobody holds it."""
        if self.rolling is not None:
            return Status.READY
        return self.now.ended or (Status.WAITING if self.now.questions else Status.READY)

    def let_go(self, status: Status | None = None) -> None:
        """Give up the lease."""
        self.hands = [life for life in self.hands if life is not self.holder]
        self.holder = None
        self.status = status or self.resting()
        self.wake()

    def wake(self) -> None:
        """A waiting run that has an answer in its inbox is ready."""
        if self.status is Status.WAITING and any(kind == "answer" for kind, _ in self.inbox):
            self.status = Status.READY

    def drain(self) -> None:
        """Move what waits in the inbox into the journal."""
        for kind, data in self.inbox:
            now = self.now
            asked = now.questions.get(data["seq"]) if kind == "answer" else None
            if asked is not None and asked.generation == data["generation"]:
                left = {seq: other for seq, other in now.questions.items() if seq != data["seq"]}
                self.write(Kind.ANSWERED, questions=left, answers={**now.answers, asked.output_key: data["value"]})
            elif kind == "mark" and data not in now.done:
                self.mark(data)
            elif kind in ("answer", "mark"):
                self.write(Kind.LATE)
        self.inbox.clear()

    def record_unheld(self) -> None:
        """What was left for a run that nobody holds is in its journal at once, unless a rollback comes first."""
        inbox, seq = list(self.inbox), self.seq
        if self.holder is None and self.rolling is None and self.status not in ENDED:
            self.drain()
            self.inbox = inbox if self.seq == seq else []

    def ahead(self) -> list[Moment]:
        """The moments with what waits in the inbox already counted, as every view of the newest state does."""
        twin = replace(self, moments=list(self.moments), inbox=list(self.inbox))
        twin.drain()
        return twin.moments

    def mark(self, key: str) -> None:
        """Add an effect that was made elsewhere."""
        seq = len(self.moments)
        self.complete(Kind.MARKED, key, Done(exact(None), None), (seq, Deed(key, "done", seq)))

    # --- going back

    def plan(self, to: int) -> list[int]:
        """The effects that a rollback deals with, in order; of one under way, all that it has had."""
        now, point = self.now, max(to, self.base - 1)
        before = self.rolling.plan if self.rolling is not None else []
        open = ("done", "uncertain", "repeated", "raised")
        return [
            seq
            for seq, deed in sorted(now.deeds.items(), key=lambda found: found[1].settled, reverse=True)
            if deed.settled > point and (deed.status in open or seq in before) and seq in now.live
        ]

    def begin_rollback(self, to: int, force: bool) -> None:
        """Decide what is to be undone."""
        settled = self.rolling.settled if self.rolling is not None else set()
        self.rolling = Rolling(max(to, self.base), self.plan(to), force, settled)
        self.write(Kind.ROLLBACK_BEGUN)

    def undos(self) -> list[int]:
        """The effects whose undo is still to be called, or passed over, in order."""
        assert self.rolling is not None
        deeds = self.now.deeds
        return [
            seq
            for seq in self.rolling.plan
            if seq not in self.rolling.settled
            and (deeds[seq].status == "uncertain" or (deeds[seq].status in FOUND and deeds[seq].undo != "none"))
        ]

    def undone(self, seq: int, status: str | None) -> None:
        """Add an entry that says what became of an effect."""
        deeds = self.now.deeds
        self.write(Kind.UNDONE, deeds=deeds if status is None else {**deeds, seq: replace(deeds[seq], status=status)})

    def rewind(self) -> None:
        """End the effective history at an earlier entry."""
        assert self.rolling is not None
        rolling, now, target = self.rolling, self.now, self.moments[self.rolling.to]
        deeds = dict(now.deeds)
        for seq in rolling.plan:
            if deeds[seq].status == "done":
                deeds[seq] = replace(deeds[seq], status="left")
        seq, generation = len(self.moments), now.generation + 1
        self.moments.append(
            replace(
                target,
                kind=Kind.REWOUND,
                live=(*(n for n in now.live if n <= rolling.to), seq),
                generation=generation,
                deeds=deeds,
                open={key: n for key, n in target.open.items() if deeds[n].status == "uncertain"},
                questions={n: replace(asked, generation=generation) for n, asked in target.questions.items()},
            )
        )
        self.rolling = None
