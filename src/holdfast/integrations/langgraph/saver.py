"""`HoldfastSaver`: LangGraph's checkpointer interface, each method in its sync and its async form.

What is decided stands elsewhere, once for both: here an operation is driven by blocking, or by awaiting.
"""

from __future__ import annotations

import random
from collections import ChainMap
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.codec import Keyring, Tree
from holdfast.engine.access.commit import Ticket
from holdfast.engine.access.engine import MAX_BYTES
from holdfast.engine.access.heartbeat import DEFAULT_LEASE
from holdfast.engine.access.operations import Op, Read, drive, drive_async
from holdfast.engine.app import Holdfast, open
from holdfast.errors import UsageError
from holdfast.integrations.langgraph import listing, reading, threads_admin
from holdfast.integrations.langgraph.grown_list import Look
from holdfast.integrations.langgraph.guard import Guard, ends_with, lasts_after
from holdfast.integrations.langgraph.layout import Contents, Header, task_data
from holdfast.integrations.langgraph.thread_writer import Pen
from holdfast.integrations.langgraph.threads import Act, Threads
from holdfast.integrations.langgraph.values import Cells, by_id, check_serde

DIGITS = 12  # of a channel's version
_APART = ("id", "channel_values", "channel_versions", "versions_seen")  # of a checkpoint: kept in forms of their own


class _Writing(NamedTuple):
    """Something to be written to a thread, about one of its checkpoints."""

    thread: str
    ns: str
    id: str
    act: Act
    lasts: Callable[[], bool | None]  # whether the invocation goes on after it, if it tells
    after: str | None = None  # the parent of a checkpoint, if the tasks of the parent led to it


class HoldfastSaver(BaseCheckpointSaver[str]):
    """A checkpointer for LangGraph that keeps threads as runs of a Holdfast store.

    ``store`` is a store's URL or an open `Holdfast`, which is then left open. One saver may be used by any number of
    threads and event loops. A saver that opened its store closes it with `close`, or at the end of a ``with`` block.

    With ``guard`` each thread has one writer at a time: an invocation claims it, another one is refused with `Claimed`
    before it runs anything, and a writer that has lost its claim with `LeaseLost`.

    ``serde`` is LangGraph's serializer, by default its own; one that pickles is refused. ``keys`` encrypts everything
    that is put in. ``lease`` and ``max_bytes`` are those of `holdfast.open`.
    """

    def __init__(
        self,
        store: str | Holdfast,
        *,
        serde: SerializerProtocol | None = None,
        guard: bool = False,
        keys: Keyring | None = None,
        lease: float = DEFAULT_LEASE,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        check_serde(serde)
        super().__init__(serde=serde)
        self._last_cells = Cells(self.serde)
        self._owns = not isinstance(store, Holdfast)
        if isinstance(store, Holdfast):
            if keys is not None:
                raise UsageError(
                    "keys= is for a store that the saver opens; give it to holdfast.open, which opened yours"
                )
            self._hf = store
        else:
            self._hf = open(store, keys=keys, lease=lease, max_bytes=max_bytes)
        self._threads = Threads(self._hf)
        self._guard = Guard(self._threads) if guard else None

    @property
    def _cells(self) -> Cells:
        if self._last_cells.serde is not self.serde:  # as it is in a copy for another one
            self._last_cells = Cells(self.serde)
        return self._last_cells

    def _run(self, operation: Op[Any]) -> Any:
        return drive(operation, self._threads.committer)

    async def _await(self, operation: Op[Any]) -> Any:
        return await drive_async(operation, self._threads.committer)

    def __enter__(self) -> HoldfastSaver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> HoldfastSaver:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give up all claims, and close the store if this saver opened it. May be repeated."""
        try:
            if self._guard is not None and not self._threads.engine.closed:
                self._guard.close()
        finally:
            if self._owns:
                self._hf.close()

    # --- one checkpoint

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that ``config`` names, or the newest of its thread; None if there is none."""
        return self._run(self._get(config))  # type: ignore[no-any-return]

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The same, awaited."""
        return await self._await(self._get(config))  # type: ignore[no-any-return]

    def _get(self, config: RunnableConfig) -> Op[CheckpointTuple | None]:
        thread, ns, id = _place(config)
        if self._guard is not None:
            yield from self._guard.enter(thread, config)
        stored = yield Read(reading.read, self._threads, thread, ns, id)
        return reading.checkpoint_tuple(self._cells, thread, stored) if stored is not None else None

    # --- many

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, newest first: of a thread, or of all; with this metadata; before another one; only so many."""
        for page in self._pages(config, filter, before, limit):
            yield from self._run(page)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """The same, awaited."""
        for page in self._pages(config, filter, before, limit):
            for found in await self._await(page):
                yield found

    def _pages(
        self,
        config: RunnableConfig | None,
        filter: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> Iterator[Op[Sequence[CheckpointTuple]]]:
        thread = _thread(config) if config is not None else None
        named = config["configurable"] if config is not None else {}
        wanted = listing.Wanted(
            thread,
            named.get("checkpoint_ns"),
            named.get("checkpoint_id"),
            get_checkpoint_id(before) if before is not None else None,
            filter or {},
        )
        return listing.pages(self._threads, self._cells, wanted, limit)

    # --- writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Keep a checkpoint; what names it from now on."""
        put = self._checkpoint(config, checkpoint, metadata, new_versions)
        if self._guard is None:
            if put.after is not None:
                self._threads.await_writes(put.thread, put.ns, put.after)
            self._threads.write_at_once(put.thread, put.act)
            self._threads.let_go(put.thread, put.lasts)
        else:
            self._run(self._write(config, put))
        return reading.config_of(config["configurable"]["thread_id"], put.ns, put.id)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """The same, awaited."""
        put = self._checkpoint(config, checkpoint, metadata, new_versions)
        await self._await(self._write(config, put))
        return reading.config_of(config["configurable"]["thread_id"], put.ns, put.id)

    def _checkpoint(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> _Writing:
        thread, ns, parent = _place(config)
        cells, place = self._cells, f"thread {thread!r}"
        meta = cells.tree(get_checkpoint_metadata(_flat(config), metadata), place, "metadata")
        rest = cells.trees({name: part for name, part in checkpoint.items() if name not in _APART}, place)
        header = Header(ns, checkpoint["id"], parent, -1, meta, rest)
        values, versions = checkpoint["channel_values"], checkpoint["channel_versions"]

        def act(pen: Pen) -> Ticket:
            with pen.lock:
                try:
                    trees = pen.encoded(cells, ns, parent, values, versions, new_versions)
                    return pen.put(header, Contents(trees, versions, checkpoint["versions_seen"]))
                except BaseException:  # others may wait for the lock
                    pen.take_back()
                    raise

        after = parent if metadata.get("source") == "loop" else None
        return _Writing(thread, ns, checkpoint["id"], act, lambda: lasts_after(ns, values), after)

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Keep what a task wrote to the channels, until the next checkpoint has it."""
        written = self._written(config, writes, task_id, task_path)
        if written is not None and self._guard is None:
            self._threads.write_at_once(written.thread, written.act)
        elif written is not None:
            self._run(self._write(config, written))

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """The same, awaited."""
        written = self._written(config, writes, task_id, task_path)
        if written is not None:
            await self._await(self._write(config, written))

    def _written(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task: str, path: str
    ) -> _Writing | None:
        thread, ns, id = _place(config)
        if id is None:
            raise UsageError("put_writes: config names no checkpoint_id, so nobody could find what was written")
        cells, place = self._cells, f"thread {thread!r}"
        kept: list[list[Any]] = []
        trees: dict[int, tuple[Look, Tree]] = {}
        for index, (channel, value) in enumerate(writes):
            is_list = type(value) is list
            copy = value[:] if is_list else value  # it may grow meanwhile
            looks = cells.looks(copy) if is_list else ()
            tree = cells.tree(copy, place, "write to", channel)
            if looks:
                trees |= by_id(looks, tree)
            kept.append([WRITES_IDX_MAP.get(channel, index), channel, tree])
        if not kept:
            return None
        data = task_data(ns, id, task, path, kept)
        if ends_with(ns, (channel for _, channel, _ in kept)):  # no checkpoint follows
            return _Writing(thread, ns, id, lambda pen: pen.write(data), lambda: False)
        return _Writing(thread, ns, id, lambda pen: pen.park(data, trees), lambda: None)

    def _write(self, config: RunnableConfig, writing: _Writing) -> Op[None]:
        if self._guard is None:
            yield from self._threads.write(writing.thread, writing.act)
        else:
            yield from self._guard.write(writing.thread, config, writing.id, writing.act, lasts=writing.lasts())

    # --- the guard

    def release(self, thread_id: str) -> None:
        """Give up the claim on a thread that an invocation here has, if a guarded one does: it is over, or is to be."""
        self._run(self._release(str(thread_id)))

    async def arelease(self, thread_id: str) -> None:
        """The same, awaited."""
        await self._await(self._release(str(thread_id)))

    def _release(self, thread: str) -> Op[None]:
        if self._guard is not None:
            yield from self._guard.release(thread)

    # --- whole threads

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread. What a copy of it shares stays, for the copy."""
        self._run(threads_admin.delete(self._threads, str(thread_id)))

    async def adelete_thread(self, thread_id: str) -> None:
        """The same, awaited."""
        await self._await(threads_admin.delete(self._threads, str(thread_id)))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Make a thread with the history of another one. Nothing is copied: the new one is a fork."""
        self._run(threads_admin.copy(self._threads, str(source_thread_id), str(target_thread_id)))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """The same, awaited."""
        await self._await(threads_admin.copy(self._threads, str(source_thread_id), str(target_thread_id)))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints, of all threads, whose metadata have one of these as ``run_id``."""
        self._run(threads_admin.delete_for_runs(self._threads, self._cells, run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """The same, awaited."""
        await self._await(threads_admin.delete_for_runs(self._threads, self._cells, run_ids))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all checkpoints of threads but the newest of each namespace, or (``"delete"``) all of them."""
        self._run(threads_admin.prune(self._threads, self._cells, [str(id) for id in thread_ids], strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """The same, awaited."""
        await self._await(threads_admin.prune(self._threads, self._cells, [str(id) for id in thread_ids], strategy))

    # --- channels

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """What was written to channels since their last whole value, on the way to a checkpoint."""
        return self._run(self._history(config, channels))  # type: ignore[no-any-return]

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """The same, awaited."""
        return await self._await(self._history(config, channels))  # type: ignore[no-any-return]

    def _history(self, config: RunnableConfig, channels: Sequence[str]) -> Op[Mapping[str, DeltaChannelHistory]]:
        thread, ns, id = _place(config)
        ask: Callable[[], Any] = lambda: reading.history(self._threads, self._cells, thread, ns, id, channels)  # noqa: E731
        return (yield Read(ask))  # type: ignore[no-any-return]

    def get_next_version(self, current: str | None, channel: None) -> str:
        """The version that follows, in the form that LangGraph's own savers have; but the first one is shorter."""
        text = "0" * DIGITS if current is None else str(current)  # of other savers, it may be a number
        digits = text.partition(".")[0]
        return f"{int(digits) + 1:0{max(len(digits), DIGITS)}}.{random.getrandbits(32):08x}"


def _place(config: RunnableConfig) -> tuple[str, str, str | None]:
    """Thread, namespace and checkpoint that a config names."""
    named = config["configurable"]
    return _thread(config), named.get("checkpoint_ns") or "", named.get("checkpoint_id") or None


def _thread(config: RunnableConfig) -> str:
    thread = config.get("configurable", {}).get("thread_id")
    if thread is None:
        raise UsageError('config names no thread: {"configurable": {"thread_id": ...}}')
    return str(thread)


def _flat(config: RunnableConfig) -> RunnableConfig:
    """A config whose metadata are a plain dict: LangGraph's are a chain of them, which is slow to go through."""
    chain: Any = config.get("metadata")
    if isinstance(chain, ChainMap):
        return {**config, "metadata": {name: each for part in reversed(chain.maps) for name, each in part.items()}}
    return config
