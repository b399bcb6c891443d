"""What was done in a run, from its entries in order: results, effects, questions, answers, messages. No I/O.

`Fold` takes the effective entries one by one, each kind by a method of its own. `rollback_plan` decides from it what
going back to an earlier point has to undo.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import NoCheckpoint, RunDamaged
from holdfast.kernel.journal import Data, is_live, live_ranges
from holdfast.kernel.model import Kind, Rewind, RunRecord, Status

ERASED = "(erased)"  # in the place of words that were erased


class Step(Struct, frozen=True, gc=False):
    """A completed step: what it was called with, and what it gave. ``tool`` is left out where the key says it."""

    seq: int
    tool: str | None
    digest: str | None
    result: Any
    erased: bool = False


class Failed(Struct, frozen=True, gc=False):
    """A step whose last attempt failed; the workflow gets the same error again when it is replayed."""

    seq: int
    tool: str | None
    digest: str | None
    failure: Data | None  # None: it was erased


class Attempt(Struct, frozen=True, gc=False):
    """A step that failed ``count`` times so far, and is to be tried again at ``until``.

    Of an effect, ``begun`` says that it is being tried again.
    """

    count: int
    until: int
    begun: bool = False


class Asked(Struct, frozen=True):
    """An open question. It gets a new number with each rollback, so that old answers do not meet it."""

    seq: int
    at: int
    generation: int
    prompt: str
    fields: Any
    output_key: str
    key: str | None = None  # of the call in a workflow that asked it
    until: int | None = None
    declined: bool = False  # whether the last answer to a breakpoint was no


class Message(Struct, frozen=True):
    """A message that the run received; it waits here until a workflow takes it."""

    seq: int
    topic: str | None
    value: Any
    by: str | None


class Child(Struct, frozen=True):
    """A run that was started as a part of this one."""

    seq: int
    id: str


class Mark(Struct, frozen=True):
    """An effect in the ledger: ``data`` is what declared it, ``settled`` the entry that says how it went."""

    seq: int
    settled: int
    at: int
    data: Data
    status: str
    error: str | None = None
    result: Any = None

    @property
    def key(self) -> str:
        return str(self.data["key"])


class Rolling(Struct, frozen=True):
    """A rollback that has begun: the effects to go through, newest first. What became of each is in the ledger."""

    seq: int
    to: int
    plan: list[int]
    failure: Data | None = None  # what the run fails with when it is done
    cancelled: Data | None = None  # or why it is cancelled then
    force: bool = False  # whether it passes over undos that fail


def name_in(key: str) -> str:
    """The name of the step in a key that was allotted to it: ``2/charge#1`` is a ``charge``."""
    return key[key.rfind("/") + 1 : key.rfind("#")]


class Fold:
    """What was done in a run, from its entries in order. `Kind.SAVED` entries are not needed and ignored.

    `log` is the effective history so far; a rewind cuts it and everything else is rebuilt from it. The ledger of
    effects and the messages are not cut: what was done to the world stays on record with what became of it, and a
    message that was taken after the point is there to be taken again.
    """

    def __init__(self, run: str, generation: int = 0) -> None:
        self.run = run
        self.seq = -1
        self.generation = generation
        self.ledger: dict[int, Mark] = {}
        self.messages: dict[int, Message] = {}
        self.log: list[tuple[int, str, int, Data]] = []
        self._reset()

    def copy(self) -> Fold:
        """Another one of the same contents, to try something on."""
        copy = Fold(self.run, self.generation)
        for name, value in vars(self).items():
            setattr(copy, name, value.copy() if isinstance(value, dict | list | set) else value)
        return copy

    def _reset(self) -> None:
        self.input: Data = {}
        self.steps: dict[str, Step] = {}
        self.failures: dict[str, Failed] = {}
        self.attempts: dict[str, Attempt] = {}
        self.started: dict[str, int] = {}
        self.intents: dict[str, int] = {}
        self.timers: dict[str, int] = {}
        self.children: dict[str, Child] = {}
        self.questions: dict[int, Asked] = {}
        self.answers: dict[str, Any] = {}
        self.lost: set[str] = set()  # calls of branches that lost a race, and are not made again
        self.taken: set[int] = set()  # messages
        self.loose: set[str] = set()  # calls that came after a failure, and need not come again if all goes well now
        self.accepted: set[str] = set()  # calls that need not come again, since a person accepted other code
        self.accepted_at = -1  # the entry by which that was done last: no call before it has a place in the code
        self.ended: tuple[Status, Data] | None = None
        self.rolling: Rolling | None = None
        self.settled: set[int] = set()  # effects that the rollback has dealt with: undone, left, or passed over

    def add(self, seq: int, kind: str, at: int, data: Data) -> None:
        """Take the next entry. An unknown kind raises `RunDamaged`: a newer Holdfast wrote it."""
        enter = _ENTER.get(kind)
        if enter is None:
            if kind not in _KNOWN:
                raise RunDamaged(self.run, f"entry {seq} is of the unknown kind {kind!r}; a newer Holdfast can read it")
            self.seq = seq
            if kind == Kind.REWOUND:
                self._rewind(data["to"])
            return
        self.seq = seq
        enter(self, seq, at, data)
        if kind in _EFFECTS or "intent" in data:
            self._record_effect(seq, kind, at, data)
        self.log.append((seq, kind, at, data))

    @property
    def mailbox(self) -> list[Message]:
        """The messages that nobody took yet, oldest first."""
        # Of a copy, which is made in one go: another thread may take in a message meanwhile.
        return [self.messages[seq] for seq in sorted(self.messages.copy().keys() - self.taken)]

    def is_settled(self, key: str) -> bool:
        """Whether nothing more is to come of a call: it has ended, or nobody waits for it any longer."""
        return key in self.steps or key in self.failures or key in self.lost

    def is_over(self, key: str) -> bool:
        """Whether a call has come to its end, and is not made anew since the run was retried."""
        return self.is_settled(key) and key not in self.loose

    def _rewind(self, to: int) -> None:
        for effect in self.rolling.plan if self.rolling else ():
            if self.ledger[effect].status == "done":
                self.ledger[effect] = _settle(self.ledger[effect], "left", None)
        self.generation += 1
        self.log = [line for line in self.log if line[0] <= to]
        self._reset()
        for seq, kind, at, data in self.log:
            _ENTER[kind](self, seq, at, data)
        self.intents = {key: seq for key, seq in self.intents.items() if self.ledger[seq].status == "uncertain"}

    # What each kind of entry means

    def on_created(self, seq: int, at: int, data: Data) -> None:
        self.input = data

    def on_forked(self, seq: int, at: int, data: Data) -> None:
        self.intents.clear()  # what was begun in the parent is the parent's to finish
        self.started.clear()
        self.children = {key: child for key, child in self.children.items() if key in self.steps}
        self.messages = {n: message for n, message in self.messages.items() if n > seq or n in self.taken}
        self.rolling = None
        self.settled = set()
        self.ended = None
        if "input" in data:
            self.input = {**self.input, **data["input"]}
        for key, result in data.get("results", {}).items():
            self.failures.pop(key, None)
            self.loose.discard(key)
            self.steps[key] = Step(seq, None, None, result, "erased" in data)
            self.questions = {n: asked for n, asked in self.questions.items() if asked.key != key}
        for key in data.get("again", ()):
            self._forget(key)

    def _forget(self, key: str) -> None:
        self.loose.add(key)
        self.failures.pop(key, None)
        self.attempts.pop(key, None)

    def on_started(self, seq: int, at: int, data: Data) -> None:
        if not self.is_over(data["key"]):  # else it had ended while this was being written
            self.started[data["key"]] = seq

    def on_intended(self, seq: int, at: int, data: Data) -> None:
        begun = self.intents.get(data["key"]) if "again" not in data else None
        if begun is not None:
            self.ledger[begun] = _settle(self.ledger[begun], "repeated", self.ledger[begun].error)
        self.intents[data["key"]] = data.get("again", seq)
        if (failed := self.attempts.get(data["key"])) is not None:
            self.attempts[data["key"]] = Attempt(failed.count, failed.until, begun=True)

    def on_done(self, seq: int, at: int, data: Data) -> None:
        key = data["key"]
        if self.intents or self.started or self.timers or self.attempts:
            for begun in (self.intents, self.started, self.timers, self.attempts):
                begun.pop(key, None)
        if "message" in data:
            self.taken.add(data["message"])
        if "lost" in data:
            self.lost.update(data["lost"])
        if key not in self.steps or key in self.loose:
            self.loose.discard(key)
            # Not whatever was open: that may have been begun as something else.
            declared = self.ledger[data["intent"]].data if "intent" in data else data
            get = declared.get
            self.steps[key] = Step(seq, get("tool"), get("digest"), data.get("result"), "erased" in data)

    def on_resolved(self, seq: int, at: int, data: Data) -> None:
        if data["done"]:
            self.on_done(seq, at, data)
        else:
            self.intents.pop(data["key"], None)

    def on_raised(self, seq: int, at: int, data: Data) -> None:
        key = data["key"]
        if "until" in data:
            self.started.pop(key, None)
            self.attempts[key] = Attempt(data["attempt"], data["until"])
            return
        if "uncertain" not in data:
            self.intents.pop(key, None)
        self.started.pop(key, None)
        if "final" in data:
            self.lost.update(data.get("lost", ()))
            intent = data.get("intent")
            declared = self.ledger[intent].data if intent is not None else data
            self.timers.pop(key, None)
            self.attempts.pop(key, None)
            if key in self.loose:
                self.loose.discard(key)
                self.steps.pop(key, None)
            self.failures[key] = Failed(seq, declared.get("tool"), declared.get("digest"), data.get("failure"))

    def on_asked(self, seq: int, at: int, data: Data) -> None:
        prompt, fields = data.get("prompt", ERASED), data.get("fields", [])
        key, until = data.get("key"), data.get("until")
        self.questions[seq] = Asked(seq, at, self.generation, prompt, fields, data["output_key"], key, until)

    def on_answered(self, seq: int, at: int, data: Data) -> None:
        question = self.questions.pop(data["question"])
        erased = "erased" in data
        if question.key is None:
            if not erased:
                self.answers[question.output_key] = data["value"]
        elif "failure" in data:
            self.failures[question.key] = Failed(seq, None, words_digest(question.prompt), data["failure"])
        else:
            self.steps[question.key] = Step(seq, None, words_digest(question.prompt), data.get("value"), erased)

    def on_declined(self, seq: int, at: int, data: Data) -> None:
        question = self.questions[data["question"]]
        self.questions[question.seq] = replace(question, declined=True)

    def on_closed(self, seq: int, at: int, data: Data) -> None:
        self.questions.pop(data["question"], None)

    def on_timer(self, seq: int, at: int, data: Data) -> None:
        self.timers[data["key"]] = data["until"]

    def on_received(self, seq: int, at: int, data: Data) -> None:
        if "erased" not in data:  # what was erased is not there to be taken
            self.messages[seq] = Message(seq, data.get("topic"), data.get("value"), data.get("by"))

    def on_child(self, seq: int, at: int, data: Data) -> None:
        self.children[data["key"]] = Child(seq, data["id"])

    def on_emitted(self, seq: int, at: int, data: Data) -> None:
        self.steps[data["key"]] = Step(seq, None, None, None)

    def on_continued(self, seq: int, at: int, data: Data) -> None:
        """The first entry of a chapter: nothing that was done before it counts, but for the messages that wait."""
        if self.log and self.log[0][0] != seq:  # not when it is entered again by a rewind
            self._reset()
            self.log, self.ledger, self.messages = [], {}, {}
        self.input = data
        for n, topic, value, by in data.get("messages", ()):
            self.messages[n] = Message(n, topic, value, by)

    def on_retried(self, seq: int, at: int, data: Data) -> None:
        self.ended = None
        if "deadline" in data:
            self.input = {**self.input, "deadline": data["deadline"]}
        failed = min((self.failures[key].seq for key in data["keys"] if key in self.failures), default=seq)
        self.loose |= {line["key"] for n, _, _, line in self.log if n > failed and "key" in line}
        for key in data["keys"]:
            self._forget(key)

    def on_begun(self, seq: int, at: int, data: Data) -> None:
        ending = data.get("failure"), data.get("cancelled")
        self.rolling = Rolling(seq, data["to"], data["plan"], *ending, data.get("force", False))

    def on_undone(self, seq: int, at: int, data: Data) -> None:
        if data["ok"] or "left" in data or "passed" in data:
            self.settled.add(data["effect"])

    def on_unblocked(self, seq: int, at: int, data: Data) -> None:
        if "accepted" in data:
            recorded = {line["key"] for n, _, _, line in self.log if n < seq and "key" in line}
            self.loose |= recorded
            self.accepted |= recorded
            self.accepted_at = seq

    def on_said(self, seq: int, at: int, data: Data) -> None:
        """Nothing follows from it for what is done next."""

    def on_completed(self, seq: int, at: int, data: Data) -> None:
        self._end(Status.COMPLETED, data)

    def on_failed(self, seq: int, at: int, data: Data) -> None:
        self._end(Status.FAILED, data)

    def on_cancelled(self, seq: int, at: int, data: Data) -> None:
        self._end(Status.CANCELLED, data)

    def _end(self, status: Status, data: Data) -> None:
        self.ended = (status, data)
        self.questions.clear()

    def _record_effect(self, seq: int, kind: str, at: int, data: Data) -> None:
        if kind == Kind.FORKED:
            self.ledger = {n: mark for n, mark in self.ledger.items() if mark.status != "uncertain"}
        elif kind == Kind.INTENDED and "again" in data:  # another attempt at the same effect
            self.ledger[data["again"]] = replace(self.ledger[data["again"]], settled=seq, at=at)
        elif kind == Kind.INTENDED:
            self.ledger[seq] = Mark(seq, seq, at, data, "uncertain")
        elif kind in (Kind.MARKED, Kind.CHILD):
            self.ledger[seq] = Mark(seq, seq, at, data, "done")
        elif kind == Kind.UNDONE:
            mark = self.ledger[data["effect"]]
            status = "undone" if data["ok"] else "left" if "left" in data else "undo_failed"
            if "uncertain" not in data:  # else it was passed over, and is what it was
                self.ledger[mark.seq] = _settle(mark, status, data.get("error"))
        elif (opened := data.get("intent")) is not None and "until" not in data:
            mark = self.ledger[opened]
            happened = kind == Kind.DONE or bool(data.get("done"))
            status = "done" if happened else "uncertain" if "uncertain" in data else "raised"
            declared = {**mark.data, "erased": True} if "erased" in data else mark.data
            self.ledger[opened] = Mark(mark.seq, seq, at, declared, status, data.get("error"), data.get("result"))


_ENTER: dict[str, Callable[[Fold, int, int, Data], None]] = {
    Kind.CREATED: Fold.on_created,
    Kind.FORKED: Fold.on_forked,
    Kind.STARTED: Fold.on_started,
    Kind.INTENDED: Fold.on_intended,
    Kind.DONE: Fold.on_done,
    Kind.RAISED: Fold.on_raised,
    Kind.MARKED: Fold.on_done,
    Kind.RESOLVED: Fold.on_resolved,
    Kind.ASKED: Fold.on_asked,
    Kind.ANSWERED: Fold.on_answered,
    Kind.DECLINED: Fold.on_declined,
    Kind.CLOSED: Fold.on_closed,
    Kind.LATE: Fold.on_said,
    Kind.TIMER: Fold.on_timer,
    Kind.RECEIVED: Fold.on_received,
    Kind.CHILD: Fold.on_child,
    Kind.EMITTED: Fold.on_emitted,
    Kind.CONTINUED: Fold.on_continued,
    Kind.RETRIED: Fold.on_retried,
    Kind.ROLLBACK_BEGUN: Fold.on_begun,
    Kind.UNDONE: Fold.on_undone,
    Kind.REDACTED: Fold.on_said,
    Kind.UNBLOCKED: Fold.on_unblocked,
    Kind.COMPLETED: Fold.on_completed,
    Kind.FAILED: Fold.on_failed,
    Kind.CANCELLED: Fold.on_cancelled,
}
_EFFECTS = frozenset({Kind.FORKED, Kind.INTENDED, Kind.MARKED, Kind.CHILD, Kind.UNDONE})


_KNOWN = frozenset(Kind)


def _settle(mark: Mark, status: str, error: str | None) -> Mark:
    return Mark(mark.seq, mark.settled, mark.at, mark.data, status, error, mark.result)


def generation_at(seq: int, rewinds: Sequence[Rewind]) -> int:
    """How often a run had been rolled back when an entry was written."""
    return sum(rewind.at < seq for rewind in rewinds)


def words_digest(words: str | None) -> str | None:
    """What the words of a question, or the topic of a message, are compared by; None if they were erased."""
    return None if words == ERASED else msgspec.json.encode([[words], {}]).decode()


def question_id(uid: str, asked: Asked) -> str:
    """The public id of a question: it differs between forks, and after each rollback."""
    return f"q{asked.seq}.{asked.generation}-{uid[-8:]}"


def rollback_plan(fold: Fold, record: RunRecord, to: int) -> list[int]:
    """The effects, newest first, that a rollback to ``to`` has to deal with; of one under way, all that it has had."""
    before = fold.rolling.plan if fold.rolling is not None else []
    ranges = live_ranges(record.rewinds, max(record.seq, fold.seq))  # the fold may count what waits in the inbox
    if not 0 <= to <= record.seq:
        raise NoCheckpoint(record.id, f"there is no entry {to}; the newest is {record.seq}")
    if not is_live(ranges, to):
        raise NoCheckpoint(record.id, f"entry {to}: it was abandoned by a rollback; fork it with fork(at={to})")
    if to < record.base - 1:
        raise NoCheckpoint(
            record.id,
            f"a fork rolls back no further than its fork point {record.base - 1}; roll back the run it came from",
        )
    if to < record.chapter:
        raise NoCheckpoint(
            record.id, f"it began anew at {record.chapter}, and is rolled back no further; fork it with fork(at={to})"
        )
    return [
        mark.seq
        for mark in sorted(fold.ledger.values(), key=lambda mark: mark.settled, reverse=True)
        if mark.settled > max(to, record.base - 1)
        and (mark.status in ("done", "uncertain", "repeated", "raised") or mark.seq in before)
        and is_live(ranges, mark.seq)
    ]
