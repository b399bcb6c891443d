"""Journals in PostgreSQL, for workers on any number of machines.

A plain step is one statement and one round trip: it locks the run's row, checks epoch, holder and the hash before it,
and adds the entry. Plain steps that are committed together are one statement too. Whatever else changes a run takes two
round trips: the first locks and reads, then the rules of `holdfast.kernel.rules` decide, and the second writes and
commits.

Leases and timers go by the server's clock, so the clocks of the workers' machines need not agree.
"""

from __future__ import annotations

import logging
import random
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import psycopg
from msgspec.structs import replace
from psycopg.pq import TransactionStatus

from holdfast.errors import HoldfastError, InboxNotEmpty, StoreError, StoreUnreachable, UsageError
from holdfast.kernel.clock import Clock, SystemClock
from holdfast.kernel.model import Append, Change, Document, Order, Post, RunRecord, Status, Write
from holdfast.kernel.rules import LIVE, Outcome, claimed, each_deleted, may_delete
from holdfast.stores.postgres.append import Appending, Line, is_quiet, plain_of
from holdfast.stores.postgres.batch import Batch
from holdfast.stores.postgres.connections import (
    BEGIN,
    REPLACED,
    UNLIMITED,
    Connection,
    Link,
    Rows,
    announce,
    begin,
    commit,
    execute,
    limits,
    together,
)
from holdfast.stores.postgres.guarded_connection import ENDS
from holdfast.stores.postgres.notify import News
from holdfast.stores.postgres.queues import Documents, Taking, taken
from holdfast.stores.postgres.reads import PostgresReads
from holdfast.stores.postgres.rows import changing, kept, listed, record_of
from holdfast.stores.postgres.schema import SERVER_TIME, check_schema, queries
from holdfast.stores.postgres.single_write import made_alone
from holdfast.stores.postgres.stuck_calls import patrol
from holdfast.stores.postgres.url import settings_of
from holdfast.stores.postgres.user_transaction import Host, PostgresGuest

TABLES = ("run", "run_tag", "entry", "link", "inbox", "worker", "queue", "document")
NO_NEWS = ("worker", "queue")  # a heartbeat is no news, and neither is a lock
LOOK, LOOK_WHEN_TOLD = 1.0, 5.0  # seconds
_UNFIT = (psycopg.DataError, psycopg.errors.ProgramLimitExceeded)  # what PostgreSQL cannot keep
MAX_KNOWN = 10_000  # claims that are remembered
STILL = 5.0  # seconds without a word in a transaction that keeps locks, after which others end it
FENCE = "20s"  # for which a transaction of a user waits for its run


class ServerClock(SystemClock):
    """The server's clock, as far as it is known here: this machine's, and by how much the two differ."""

    def __init__(self) -> None:
        self._ahead = 0  # microseconds

    def now_ns(self) -> int:
        return time.time_ns() + self._ahead * 1000

    def learn(self, asked: int, server: int, answered: int) -> None:
        """What the server's clock said, between two moments of this machine's."""
        self._ahead = server - (asked + answered) // 2


class PostgresStore(PostgresReads):
    """A store in a schema of a PostgreSQL database. See `holdfast.stores.protocol.Store` for what each method
    promises."""

    compress_over: int | None = 512
    networked = True

    def __init__(self, url: str, *, clock: Clock | None = None) -> None:
        settings = settings_of(url)
        self.clock = clock or ServerClock()
        self._given_clock = clock
        now = SERVER_TIME if clock is None else "%(now)s::bigint"
        self._q = queries(settings.schema, now)
        self._link = Link(settings, check_schema)
        self.place = self._link.place
        self._news = News(self._link, secrets.token_hex(8))
        if clock is None:
            self._learn("SELECT " + SERVER_TIME, ())
        named = {name: oid for oid, name in self._link.ask(self._q["tables"], (settings.schema, list(TABLES)))}
        self._tables = list(named.values())
        self._news_tables = [oid for name, oid in named.items() if name not in NO_NEWS]
        self._appending = Appending(self._q)
        self._documents = Documents(self._link, self._q, self.clock)
        self._host = Host(self._link, self._q, self._news.at_commit)
        self._enlisted: set[str] = set()
        self._until: dict[str, int] = {}  # of workers: until when the table says that their leases hold
        self._claims: dict[str, int] = {}  # epochs that were given out, by uid
        self._unanswered: dict[str, tuple[RunRecord, RunRecord]] = {}  # before and after a claim that failed, by uid
        self._link.end_stale = self._end_stale
        for weakness in self.weaknesses():
            logging.getLogger("holdfast").warning("%s: %s", self.place, weakness)

    def close(self) -> None:
        if self._link.unusable is None and self._enlisted:
            try:
                self._retire(list(self._enlisted))
            except StoreError as error:
                told = "the store %s is closed without giving up its leases, which end by themselves: %s"
                logging.getLogger("holdfast").warning(told, self.place, error)
        self.drop()

    def drop(self) -> None:
        """Give up all resources as a killed process does: nothing is written, and its leases end by themselves."""
        self._news.stop()
        self._link.close()

    def listen(self, heard: Callable[[str | None], None]) -> None:
        """See `holdfast.stores.protocol.Telling`."""
        self._news.listen(heard)

    @property
    def hears(self) -> bool:
        """See `holdfast.stores.protocol.Telling`."""
        return self._news.hears

    def tell(self) -> None:
        """See `holdfast.stores.protocol.Telling`."""
        self._link.ask(*self._news.of())

    def weaknesses(self) -> list[str]:
        """See `holdfast.stores.protocol.Examined`. What is asked for is what holds in a transaction that writes."""
        [[(fsync, waits)]] = self._link.call(lambda conn, again: begin(conn, (self._q["weaknesses"], ())))
        found: list[str] = []
        if fsync == "off":
            found.append("fsync is off, so a crash of the server's machine can lose and damage runs; turn it on there")
        if waits == "off":
            lost = "so a crash of the server can lose acknowledged runs and steps"
            found.append(f"synchronous_commit is off by the options of the URL, {lost}; leave it out of them")
        return found

    @property
    def look_every(self) -> float:
        """See `holdfast.stores.protocol.Store`. Not all at the same moment, and seldom where one is told anyway."""
        return random.uniform(0.75, 1.25) * (LOOK_WHEN_TOLD if self._news.hears else LOOK)

    # --- writes

    def apply(self, batch: Sequence[Write]) -> list[Outcome]:
        if not batch:
            self._link.check_usable()
            return []
        plain = plain_of(batch)
        try:
            if plain is None:
                return self._link.call(lambda conn, again: self._boldly(conn, batch, again))
            return self._link.call(lambda conn, again: self._append(conn, plain, batch, again))
        except StoreError as error:
            if not isinstance(error.__cause__, _UNFIT):
                raise
            if len(batch) == 1:
                return [error]
        return [outcome for write in batch for outcome in self.apply([write])]

    def _append(self, conn: Connection, plain: Sequence[Line], batch: Sequence[Write], again: bool) -> list[Outcome]:
        """Carry out plain steps in one statement; those that are refused are looked at one by one."""
        if again:
            return self._carefully(conn, batch, again)
        try:
            made = self._appending.append(conn, plain)
            if not is_quiet(plain):
                announce(conn, self._news.of())
        except psycopg.errors.UniqueViolation:
            made = set()
        left = [write for write in batch if isinstance(write, Append) and write.uid not in made]
        outcomes = iter(self._carefully(conn, left, again) if left else ())
        return [None if isinstance(write, Append) and write.uid in made else next(outcomes) for write in batch]

    def _boldly(self, conn: Connection, writes: Sequence[Write], again: bool) -> list[Outcome]:
        """Carry out any writes: one that is a single statement, without looking first."""
        if len(writes) == 1 and not again:
            made, outcome = made_alone(conn, self._q, writes[0], self._news.of())
            if made:
                return [outcome]
        return self._carefully(conn, writes, again)

    def _carefully(self, conn: Connection, writes: Sequence[Write], again: bool) -> list[Outcome]:
        """Carry out any writes: lock and read, decide, write and commit."""
        batch = Batch(self._q, writes, again)
        batch.begin(conn)
        outcomes = [batch.make(conn, write) for write in writes]
        statements = batch.statements()
        if statements:
            [only] = writes if len(writes) == 1 else [None]
            commit(conn, statements, self._news.of(only.uid if isinstance(only, Post) else None))
        return outcomes

    def transact(self, act: Callable[[psycopg.Connection[Any]], Append]) -> HoldfastError | None:
        """See `Transacting`. The fence and the entry come last, so that the run is locked only briefly."""
        with self._link.once(self._begin) as (conn, xid):
            try:
                with conn.lend(lambda: bool(self._link.ask(self._q["at_work"], (conn.session,), urgent=True))):
                    write = act(conn)
            except Exception as error:  # of the user's function, which may raise anything
                hindered = self._hindered(conn, error)
                if hindered is None:
                    raise
                raise hindered from error
            try:
                with patrol.watch(conn):
                    return self._end(conn, write, xid)
            except psycopg.Error as error:
                if not self._link.is_lost(conn, error):
                    raise self._link.translated(error) from error
                lost = error
        if self._link.call(lambda conn, again: self._find(conn, write)):
            return None
        raise self._rolled_back() from lost

    def _hindered(self, conn: Connection, error: Exception) -> HoldfastError | None:
        """What kept a function from its work, if that was no fault of its own: the connection is gone, or space is."""
        if self._link.is_lost(conn, error):
            return self._rolled_back()
        if isinstance(error, psycopg.Error) and (error.sqlstate or "").startswith("53"):
            return self._link.translated(error)
        return None

    def _rolled_back(self) -> StoreUnreachable:
        problem = "the connection was lost, and what the step did was rolled back"
        return StoreUnreachable(self.place, f"{problem}; it can be tried again")

    def join(self, connection: Any, *, awaited: bool) -> PostgresGuest:
        """See `holdfast.stores.user_transaction.Joining`."""
        self._link.check_usable()
        return PostgresGuest(connection, self._host, awaited=awaited)

    def _begin(self, conn: Connection) -> str:
        """Begin a transaction that may take as long as it likes; its number."""
        conn.execute(BEGIN)
        if conn.limited:
            conn.execute(UNLIMITED)
        [(xid, conn.session)] = execute(conn, self._q["own_xid"]).fetchall()
        return str(xid)

    def _end(self, conn: Connection, write: Append, xid: str) -> HoldfastError | None:
        """Commit what a function did together with its entry, or roll it back."""
        status = conn.info.transaction_status
        if status is TransactionStatus.INERROR:
            raise UsageError("a statement of the function failed, which ends its transaction; let its error pass")
        [(now, touched)] = execute(conn, self._q["own_locks"], (self._tables,)).fetchall()
        if status is not TransactionStatus.INTRANS or now != xid:
            raise UsageError(f"the transaction was ended by the function's own SQL; {ENDS}")
        if touched is not None:
            raise UsageError(f"the table {touched} is Holdfast's own, and only Holdfast writes to it")
        conn.execute(limits(lock_timeout=FENCE))
        batch = Batch(self._q, [write], False)
        batch.begin(conn, inside=True)
        outcome, statements = batch.make(conn, write), batch.statements()
        if outcome is None and statements:
            commit(conn, statements, self._news.of())
        else:
            conn.rollback()
        assert outcome is None or isinstance(outcome, HoldfastError)
        return outcome

    def _find(self, conn: Connection, write: Append) -> bool:
        """Whether a write of which no answer came was made. The run is locked, as it was by that transaction."""
        batch = Batch(self._q, [write], True)
        batch.begin(conn)
        return batch.was_made(conn, write)

    # --- claims, inboxes, workers

    def claim(self, uid: str, worker: str, allow: Collection[Status] = LIVE, *, alone: bool = False) -> RunRecord:
        self._give_up_unanswered()
        before: RunRecord | None = None
        wanted: RunRecord | None = None

        def act(conn: Connection, again: bool) -> RunRecord:
            nonlocal before, wanted
            record, alive = self._held(conn, self._q["lock"], uid)
            if wanted is not None and record is not None and self._is_ours(record, wanted):
                return record
            before, wanted = record, claimed(record, uid, worker, allow, holder_alive=alive, alone=alone)
            commit(conn, [self._update(wanted)])
            return wanted

        try:
            record = self._link.call(act)
        except BaseException:  # also an interrupt: what was committed is not known
            if before is not None and wanted is not None:
                self._unanswered[uid] = before, wanted
            raise
        self._remember(record)
        return record

    def _give_up_unanswered(self) -> None:
        """Give up what was claimed by calls that failed before they learned so: nobody would go on with it.

        The store could not be reached for so long that a call gave up, and its commit may have been made all the same.
        """
        for uid, (before, wanted) in list(self._unanswered.items()):
            if self._claims.get(uid) != wanted.epoch:  # else another call of this handle has it
                status = Status.READY if before.status is Status.RUNNING else before.status
                back = Change(status=status, release=True, wake_at=before.wake_at, reason=before.reason)
                write = Append(uid, wanted.id, wanted.epoch, wanted.worker or "", (), back)
                [outcome] = self.apply([write])  # refused, if it was not made, or somebody else has it since
                if isinstance(outcome, InboxNotEmpty):  # it had ended: whoever claims it takes in what came meanwhile
                    self.apply([replace(write, change=Change(status=Status.READY, release=True))])
            self._unanswered.pop(uid, None)

    def _remember(self, *claimed: RunRecord) -> None:
        """Note which epochs were given out."""
        if len(self._claims) >= MAX_KNOWN:
            self._claims.clear()
        self._claims.update((record.uid, record.epoch) for record in claimed)

    def _is_ours(self, record: RunRecord, wanted: RunRecord) -> bool:
        """Whether a claim of which no answer came was made: nobody else of this handle got that epoch."""
        same = (record.epoch, record.worker) == (wanted.epoch, wanted.worker)
        return same and self._claims.get(record.uid) != record.epoch

    def _held(self, conn: Connection, lock: str, uid: str, *more: str) -> tuple[RunRecord | None, bool]:
        """Begin a transaction with this run locked; its record, and whether its holder is alive."""
        _, rows, [(alive,)] = begin(
            conn,
            (lock, ([uid, *more],)),
            (f"{self._q['record']} WHERE r.uid = %s", (uid,)),
            (self._q["alive"], self._at(uid=uid)),
        )
        return record_of(rows[0]) if rows else None, alive

    def _update(self, record: RunRecord) -> tuple[str, Any]:
        return self._q["update_run"], (*changing(record), record.uid)

    def beat(self, worker: str, lease: float) -> None:
        if not lease:
            self._enlisted.discard(worker)
            self._retire([worker])
            return
        values = self._at(worker=kept(worker), lease=int(lease * 1_000_000), **self._stale())
        known = self._until.get(worker, 0)
        before, until, stale = self._learn(self._q["beat"], values)
        if before is not None and before < known:  # only this worker writes that row, and it never writes less
            self._link.unusable = REPLACED
            self._link.check_usable()
        self._until[worker] = max(until, self._until.get(worker, 0))
        if worker not in self._enlisted:
            self._enlisted.add(worker)
            self._link.ask(f"{self._q['forget_the_dead']} RETURNING 1", self._at())
        try:
            if stale:
                self._end_stale()
            self._give_up_unanswered()
        except StoreError as error:  # the lease is kept all the same, and the next beat tries again
            logging.getLogger("holdfast").warning("%s: what stands still could not be ended: %s", self.place, error)

    def _end_stale(self) -> None:
        """End the sessions of Holdfast that keep locks and stand still, and have everybody look for what they kept."""
        ended = self._link.ask(self._q["end_stale"], self._stale(), urgent=True)
        if ended:
            text = "%s: ended %d sessions of Holdfast that kept locks and had sent nothing for %g s"
            logging.getLogger("holdfast").warning(text, self.place, len(ended), STILL)
            self._link.call(lambda conn, again: together(conn, (self._q["pulse"], ()), self._news.at_commit()))

    def _stale(self) -> dict[str, Any]:
        """What the query ``stale`` is given."""
        return {"tables": self._tables, "still": STILL}

    def _learn(self, statement: str, values: Any) -> list[Any]:
        """Execute a statement that gives the server's time, and return what else it gives."""
        asked = time.time_ns() // 1000
        [(now, *others)] = self._link.ask(statement, values, urgent=True)
        if isinstance(self.clock, ServerClock):
            self.clock.learn(asked, now, time.time_ns() // 1000)
        return others

    def _retire(self, workers: list[str]) -> None:
        def act(conn: Connection, again: bool) -> None:
            begin(conn)
            names = [kept(name) for name in workers]
            statements = [(self._q["as_news"], ()), (self._q["retire"], (names,)), (self._q["pulse"], ())]
            commit(conn, statements, self._news.of())

        self._link.call(act)

    # --- queues and documents

    def take(self, order: Order) -> list[RunRecord]:
        self._give_up_unanswered()
        chosen: list[RunRecord] = []
        wanted: list[RunRecord] = []

        def act(conn: Connection, again: bool) -> list[RunRecord]:
            nonlocal chosen, wanted
            if wanted:  # of which no answer came; they are locked, as they were by that transaction
                uids = [record.uid for record in wanted]
                query = f"{self._q['record']} WHERE r.uid = ANY(%s::text[])"
                _, rows = begin(conn, (self._q["lock"], (uids,)), (query, (uids,)))
                now = {record.uid: record for record in map(listed, rows)}
                ours = [one for one in wanted if one.uid in now and self._is_ours(now[one.uid], one)]
                if ours:
                    return ours
                conn.rollback()
            chosen = Taking(self._q, order, self._at).choose(conn)
            wanted = taken(chosen, order)
            if wanted:
                commit(conn, [self._update(record) for record in wanted])
            return wanted

        try:
            records = self._link.call(act)
        except BaseException:  # see `claim`
            self._unanswered.update((one.uid, (one, after)) for one, after in zip(chosen, wanted, strict=True))
            raise
        self._remember(*records)
        return records

    def documents(self, kind: str, name: str | None = None) -> list[Document]:
        return self._documents.all(kind, name)

    def put_document(self, kind: str, name: str, value: bytes | None, expected: int | None) -> bool:
        return self._documents.put(kind, name, value, expected)

    # --- whole runs

    def delete(self, records: Sequence[RunRecord]) -> list[bool | HoldfastError]:
        self._link.check_usable()
        alone = [one for one in records if not one.lineage and one.worker is None]
        gone = self._delete_many(alone) if len(alone) > 1 else set()
        # Those that were not as expected, or are shared by forks, are looked at by themselves.
        rest = iter(each_deleted([one for one in records if one.uid not in gone], self._delete))
        return [one.uid in gone or next(rest) for one in records]

    def _delete(self, expected: RunRecord) -> bool:
        uid = expected.uid
        chain = [uid, *(link.uid for link in reversed(expected.lineage))]

        def act(conn: Connection, again: bool) -> bool:
            record, alive = self._held(conn, self._q["lock_to_delete"], uid, *chain[1:])
            if record is None or record.hidden:
                return again
            if not may_delete(record, expected, holder_alive=alive):
                return False
            [rows] = together(conn, (self._q["chain"], {"uids": chain}))
            gone = unshared(chain, rows)
            statements: list[tuple[str, Any]] = [(self._q["empty_inbox"], (uid,))]
            if uid not in gone:
                statements.append(self._update(replace(record, hidden=True, worker=None)))
            if gone:
                statements += [(self._q["remove_runs"], (gone,)), (self._q["pulse"], ())]
            commit(conn, statements, self._news.of())
            return True

        return self._link.call(act)

    def _delete_many(self, records: Sequence[RunRecord]) -> set[str]:
        """Delete those that are as they were read, that nobody holds and that no fork shares, in one statement."""
        uids = [one.uid for one in records]
        states = [(one.uid, one.epoch, one.seq, str(one.status)) for one in records]

        def act(conn: Connection, again: bool) -> set[str]:
            locked, there = begin(conn, (self._q["lock_to_sweep"], (uids,)), (self._q["which"], (uids,)))
            before = set(uids) - {uid for (uid,) in there} if again else set()  # the answer was lost
            columns = [list(column) for column in zip(*states, strict=True)]
            [rows] = together(conn, (self._q["sweep"], (*columns, [n for (n,) in locked])))
            commit(conn, [(self._q["pulse"], ())], self._news.of())
            return {uid for (uid,) in rows} | before

        return self._link.call(act)


def unshared(chain: Sequence[str], rows: Rows) -> list[str]:
    """Which of a run that is to be deleted and its ancestors, from it up, are hidden and shared by nobody else."""
    known = {uid: (hidden, shared, children) for uid, hidden, shared, children in rows}
    gone: list[str] = []
    for place, uid in enumerate(chain):
        hidden, shared, children = known.get(uid, (False, True, []))
        if (hidden or place == 0) and not shared and set(children) <= set(gone):
            gone.append(uid)
    return gone
