"""Who calls the engine: one handle on an open store, sync or async."""

from __future__ import annotations

from typing import Protocol

from holdfast.engine.access.engine import Engine
from holdfast.engine.access.held_run import HeldRun


class Client:
    """What the operations of `holdfast.Holdfast` work on."""

    def __init__(self, engine: Engine, *, is_async: bool) -> None:
        self.engine = engine
        self.is_async = is_async  # whether its operations are awaited
        self.store = engine.store
        self.codec = engine.codec
        self.journals = engine.journals
        self.committer = engine.committer

    @property
    def place(self) -> str:
        """Where the store is, as messages name it: a URL without a password."""
        return self.store.place

    def run(self, id: str, uid: str) -> HeldRun:
        """A run of the store, for this kind of caller."""
        return HeldRun(self.engine, id, uid, is_async=self.is_async)


class OpenStore(Protocol):
    """The handle on an open store that `holdfast.open` gives."""

    @property
    def client(self) -> Client: ...


class RunHandle(Protocol):
    """The handle on a run that users hold."""

    @property
    def held(self) -> HeldRun: ...
