"""What is due to be told, found in the journals: for each event that a hook wants, a delivery is enqueued.

One look goes over the runs that have not ended, those that were open at the last look, those that are new, and those
that had ended and went on. Of each it reads what was written since. Where the last look stood is kept in the store, a
little less often than one looks; what is found twice has the same id, and is one delivery. So the process that looks
may die at any time, several may look at once, and nothing is missed or told twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import msgspec
from msgspec import Struct

from holdfast.engine.app import Holdfast
from holdfast.engine.log import WARNING, tell
from holdfast.engine.workflow.revived import KIND as REVIVED
from holdfast.engine.workflow.revived import Revival
from holdfast.errors import HoldfastError, RunDamaged, RunNotFound, StoreUnusable
from holdfast.kernel.model import ENDED, Document, Entry, Filter, RunRecord, Status
from holdfast.stores.protocol import find_document
from holdfast.ui.hooks import EVENTS, QUEUE, WORKFLOW, Hook, Notice, deliver, hooks
from holdfast.views import moment

KIND = "hooks seen"
OVERLAP = 60 * 1_000_000  # microseconds by which looks overlap: clocks differ, and a commit takes its time
PERSIST = 10 * 1_000_000  # microseconds between two notes of where one stands
EVERY = 1.0  # seconds between two looks at least
SHARE = 10  # it looks for no more than one part in so many of the time
PAGE = 500  # runs or entries that are read at a time
OPEN = tuple(status for status in Status if status not in ENDED)


class _Seen(Struct, frozen=True):
    """Where the last look stood: when it was, and which runs had not ended then."""

    at: int
    open: list[str] = []


class Outbox:
    """Looks for what is due to be told."""

    def __init__(self, holdfast: Holdfast) -> None:
        self._hf = holdfast
        self._store = holdfast.client.store
        self._seen: _Seen | None = None
        self._kept_at = 0
        self._told: dict[str, int] = {}  # the newest entry that was looked at, of runs that may go on

    def look(self) -> int:
        """Enqueue a delivery for each event since the last look that a hook wants; how many events there were."""
        wanted = {name: hook for name, hook in hooks(self._store).items() if not hook.paused}
        now = self._store.clock.now()
        if not wanted:
            self._seen = None
            return 0
        first = min(hook.since for hook in wanted.values())
        seen = self._seen or self._kept() or _Seen(first)
        since = max(seen.at - OVERLAP, first)
        revived = {document.name: document for document in self._store.documents(REVIVED)}
        found, told, open = 0, dict[str, int](), list[str]()
        for record in self._candidates(seen, since, list(revived)):
            if record.workflow == WORKFLOW:
                continue
            try:
                for entry in self._events(record, since, first):
                    found += self._deliver(wanted, record, entry)
            except (RunDamaged, RunNotFound):  # it is listed as such, or was deleted, and says nothing more
                continue
            told[record.uid] = record.seq
            if record.status not in ENDED:
                open.append(record.uid)
            if record.uid in revived:
                self._forget(revived.pop(record.uid), record.epoch, now)
        for document in revived.values():  # of runs that are gone
            self._store.put_document(REVIVED, document.name, None, document.version)
        self._told, self._seen = told, _Seen(now, open)
        self._keep(now)
        return found

    def _candidates(self, seen: _Seen, since: int, revived: list[str]) -> Iterator[RunRecord]:
        """Runs to which something may have happened."""
        given: set[str] = set()
        for filter in (Filter(statuses=OPEN), Filter(created_from=since)):
            before: str | None = None
            while page := self._store.find(filter, before=before, limit=PAGE):
                before = page[-1].uid
                yield from (record for record in page if record.uid not in given)
                given.update(record.uid for record in page)
        for uid in [*seen.open, *revived]:
            if uid not in given:
                given.add(uid)
                record = self._store.get(uid=uid)
                if record is not None and not record.hidden:
                    yield record

    def _forget(self, document: Document, epoch: int, now: int) -> None:
        """Forget that a run was about to go on, when it has; or was not after all."""
        noted = msgspec.json.decode(document.value, type=Revival)
        if epoch > noted.epoch or now - noted.at > OVERLAP:
            self._store.put_document(REVIVED, document.name, None, document.version)

    def _events(self, record: RunRecord, since: int, first: int) -> Iterator[Entry]:
        """What happened in a run since it was looked at, or else since the last look at all. The newest first."""
        hi, after = record.seq, self._told.get(record.uid)
        since = since if after is None else first
        after = -1 if after is None else after
        while hi > after and hi >= record.base:
            lo = max(after + 1, record.base, hi - PAGE + 1)
            entries = self._store.read(record.uid, lo, hi, saved=False, payloads=False)
            for entry in reversed(entries):
                if entry.at < since:
                    return
                if entry.kind in EVENTS:
                    yield entry
            hi = lo - 1

    def _deliver(self, wanted: dict[str, Hook], record: RunRecord, entry: Entry) -> bool:
        event, due = EVENTS[entry.kind], False  # type: ignore[index]
        for name, hook in wanted.items():
            ours = hook.workflow in (None, record.workflow)
            if event not in hook.events or entry.at < hook.since or not ours:
                continue
            id = f"webhook/{name}/{record.uid}/{entry.seq}"
            notice = Notice(
                id=id,
                type=event,
                at=moment(entry.at),
                run=record.id,
                uid=record.uid,
                seq=entry.seq,
                workflow=record.workflow,
            )
            self._hf.enqueue(deliver, name, notice, id=id, queue=QUEUE)
            due = True
        return due

    def _kept(self) -> _Seen | None:
        known = find_document(self._store, KIND, "")
        try:
            return msgspec.json.decode(known.value, type=_Seen) if known is not None else None
        except msgspec.MsgspecError:  # then all is looked at again since the first hook was made
            return None

    def _keep(self, now: int) -> None:
        if now - self._kept_at < PERSIST:
            return
        self._kept_at = now
        known = find_document(self._store, KIND, "")
        self._store.put_document(
            KIND, "", msgspec.json.encode(self._seen), known.version if known is not None else None
        )


def tell_others(hf: Holdfast, *, concurrency: int = 10) -> None:
    """Look for what is due, and deliver it, until SIGTERM or SIGINT."""
    stopped = threading.Event()
    looking = threading.Thread(target=_look, args=(hf, stopped), name="holdfast-outbox", daemon=True)
    looking.start()
    try:
        hf.work(queues=(QUEUE,), concurrency=concurrency)
    finally:
        stopped.set()
        looking.join(2 * EVERY)


def _look(hf: Holdfast, stopped: threading.Event) -> None:
    outbox, bell = Outbox(hf), hf.client.engine.bell
    while not stopped.is_set():
        began = time.monotonic()
        try:
            heard = bell.heard()
            outbox.look()
            stopped.wait(max(EVERY, (time.monotonic() - began) * (SHARE - 1)))
            while not stopped.is_set() and bell.heard() == heard:
                bell.listen(heard, EVERY)
        except StoreUnusable:
            return
        except HoldfastError as error:  # whatever it is, the next look may succeed
            text = "what is due to be told could not be found, will try again: {error}"
            tell(WARNING, "hooks.delayed", text, error=str(error))
            stopped.wait(EVERY)
