"""Queues: how much of each may be worked on, and whether at all.

A queue needs no declaration: it is there when a run is enqueued with its name. What is set about it stands in a
document of the store, which all workers read before they take from it, so a change reaches them at once. The rate is a
bucket of tokens in the same document: a run that is begun costs one, and they come back with time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from holdfast.engine.access.client import Client
from holdfast.engine.access.engine import Engine
from holdfast.engine.access.operations import Async, Op, Operable, Read, Sync
from holdfast.engine.access.operations import Operation as operation
from holdfast.engine.argument_checks import check_bounds, check_queue, check_texts, rate_of
from holdfast.errors import StoreDamaged
from holdfast.kernel.model import Backlog, Limits
from holdfast.stores.protocol import Store, find_document
from holdfast.views import QueueInfo, moment

KIND = "queue"


class Settings(Struct, frozen=True, omit_defaults=True):
    """What is set about a queue, as it is stored; ``tokens`` is how many there were at the time ``at``.

    ``set_at`` is when somebody last set something, and ``set_by`` who.
    """

    limit: int | None = None
    per_worker: int | None = None
    per_key: int | None = None
    rate: tuple[int, float] | None = None
    paused: bool = False
    tokens: float = 0.0
    at: int = 0
    set_at: int | None = None
    set_by: str | None = None

    def limits(self, starts: int | None) -> Limits:
        """What it means for taking, if so many runs may be begun."""
        return Limits(self.limit, self.per_worker, self.per_key, starts)

    def refilled(self, now: int) -> Settings:
        """The same with the tokens that there are now."""
        if self.rate is None:
            return self
        count, seconds = self.rate
        grown = self.tokens + max(now - self.at, 0) / 1_000_000 * count / seconds
        return replace(self, tokens=min(grown, float(count)), at=max(now, self.at))

    def next_token(self) -> int | None:
        """When the next run may be begun, if none may now."""
        if self.rate is None or self.tokens >= 1:
            return None
        count, seconds = self.rate
        return self.at + int((1 - self.tokens) * seconds / count * 1_000_000) + 1


def read_settings(store: Store) -> dict[str, tuple[Settings, int]]:
    """What is set about the queues, each with the version of its document."""
    return {one.name: (_decoded(store, one.name, one.value), one.version) for one in store.documents(KIND)}


def _decoded(store: Store, name: str, value: bytes) -> Settings:
    try:
        return msgspec.json.decode(value, type=Settings)
    except msgspec.MsgspecError as error:
        problem = f"what it says of the queue {name!r} cannot be read ({error}); hf.queue({name!r}).delete() forgets it"
        raise StoreDamaged(store.place, problem) from None


def change(store: Store, name: str, decide: Callable[[Settings], Settings | None]) -> Settings:
    """Replace what is set about a queue by what is decided on it as it is; None leaves it."""
    while True:
        known = find_document(store, KIND, name)
        before = _decoded(store, name, known.value) if known is not None else Settings()
        after = decide(before)
        if after is None:
            return before
        if store.put_document(KIND, name, msgspec.json.encode(after), known.version if known else None):
            return after


def draw(store: Store, name: str, wanted: int) -> tuple[int, Settings]:
    """Take up to so many tokens of a queue's bucket: how many there were, and what is left."""
    drawn = 0

    def decide(before: Settings) -> Settings | None:
        nonlocal drawn
        now = before.refilled(store.clock.now())
        drawn = min(wanted, int(now.tokens)) if now.rate is not None else wanted
        return replace(now, tokens=now.tokens - drawn) if drawn and now.rate is not None else None

    after = change(store, name, decide)
    return drawn, after.refilled(store.clock.now())


def put_back(store: Store, name: str, tokens: int) -> None:
    """Return tokens that were drawn and not needed."""

    def decide(before: Settings) -> Settings | None:
        now = before.refilled(store.clock.now())
        return replace(now, tokens=min(now.tokens + tokens, float(now.rate[0]))) if now.rate is not None else None

    change(store, name, decide)


class Queue(Operable, Sync):
    """A queue of an open store. See `Holdfast.queue`."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.name = name
        self._engine = engine
        self._store = engine.store
        self._committer = engine.committer

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    @operation
    def pause(self, *, by: str | None = None) -> Op[None]:
        """Let workers take nothing more from it. What they drive goes on. ``by`` is who did it."""
        yield from self._change(lambda before: replace(before, paused=True), by)

    @operation
    def resume(self, *, by: str | None = None) -> Op[None]:
        """Let workers take from it again."""
        yield from self._change(lambda before: replace(before, paused=False), by)

    @operation
    def info(self) -> Op[QueueInfo]:
        """What is set about it, and what there is in it."""
        known = yield Read(find_document, self._store, KIND, self.name)
        backlog = yield Read(self._store.backlog)
        settings = _decoded(self._store, self.name, known.value) if known is not None else Settings()
        return queue_info(self.name, settings, backlog.get(self.name, Backlog()), self._store.clock.now())

    @operation
    def delete(self) -> Op[bool]:
        """Forget what is set about it, so that it has no limits and is not paused; False if nothing was. Runs stay."""
        gone = False
        while known := (yield Read(find_document, self._store, KIND, self.name)):
            version = known.version
            gone = yield Read(self._store.put_document, KIND, self.name, None, version)
            if gone:
                break
        yield Read(self._engine.bell.announce)
        return gone

    def _change(self, decide: Callable[[Settings], Settings], by: str | None) -> Op[None]:
        check_texts(by=by)
        self._engine.codec.refuse_secrets(msgspec.json.encode([self.name, by]), "queue")

        def unless_same(before: Settings) -> Settings | None:
            after = decide(before)
            return replace(after, set_at=self._store.clock.now(), set_by=by) if after != before else None

        yield Read(change, self._store, self.name, unless_same)
        yield Read(self._engine.bell.announce)


class AsyncQueue(Queue, Async):
    """The same for async callers: every operation is awaited."""


def queue(
    client: Client,
    name: str,
    *,
    limit: int | UnsetType | None = UNSET,
    per_worker: int | UnsetType | None = UNSET,
    per_key: int | UnsetType | None = UNSET,
    rate: tuple[int, float] | UnsetType | None = UNSET,
    paused: bool | UnsetType = UNSET,
    by: str | None = None,
) -> Op[Queue]:
    """A queue; what is given is set, for all workers of the store, and what is left out stays as it was.

    ``limit`` is how many of its runs are worked on at a time, by all workers; ``per_worker``, by each of them;
    ``per_key``, of those that were enqueued with the same ``key``. ``rate=(100, 60.0)`` begins 100 a minute: as a
    bucket of 100 tokens that fills up in that time, so 100 may begin at once. None takes a limit away. ``by`` is who
    set it, which ``queue.info()`` tells.
    """
    check_queue(name)
    given: dict[str, Any] = {"limit": limit, "per_worker": per_worker, "per_key": per_key, "paused": paused}
    given = {field: value for field, value in given.items() if value is not UNSET}
    check_bounds(given)
    handle = (AsyncQueue if client.is_async else Queue)(client.engine, name)
    if not isinstance(rate, UnsetType):
        given["rate"] = rate_of(rate)
    if given:
        now = client.store.clock.now()
        yield from handle._change(lambda before: _changed(before, given, now), by)
    return handle


def _changed(before: Settings, given: dict[str, Any], now: int) -> Settings:
    after = replace(before, **given)
    if after.rate == before.rate:
        return after
    return replace(after, tokens=float(after.rate[0]), at=now) if after.rate else replace(after, tokens=0.0, at=0)


def queues(client: Client) -> Op[tuple[QueueInfo, ...]]:
    """All queues that something is set about, or that have runs which have not ended; by name."""
    settings = yield Read(read_settings, client.store)
    backlog = yield Read(client.store.backlog)
    now = client.store.clock.now()
    known = {name: one for name, (one, _) in settings.items()}
    return tuple(
        queue_info(name, known.get(name, Settings()), backlog.get(name, Backlog()), now)
        for name in sorted({*known, *backlog})
    )


def queue_info(name: str, settings: Settings, backlog: Backlog, now: int) -> QueueInfo:
    """A queue as users see it."""
    return QueueInfo(
        name=name,
        limit=settings.limit,
        per_worker=settings.per_worker,
        per_key=settings.per_key,
        rate=settings.rate,
        paused=settings.paused,
        set_at=moment(settings.set_at) if settings.set_at is not None else None,
        set_by=settings.set_by,
        ready=backlog.ready,
        running=backlog.running,
        waiting=backlog.waiting,
        oldest=None if backlog.oldest is None else max(now - backlog.oldest, 0) / 1_000_000,
    )
