"""A claim as users hold it: in a ``with`` statement, or until they release it."""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast.engine.access.lease import Lease
from holdfast.engine.access.operations import drive_async

if TYPE_CHECKING:
    from holdfast.engine.run.handle import AsyncRun, Run


class Holding:
    """A claim in a ``with`` statement, which gives the run."""

    def __init__(self, run: Run, lease: Lease) -> None:
        self.epoch: int = lease.record.epoch
        self._run = run
        self._lease = lease

    def __enter__(self) -> Run:
        self._run.held.inside = True
        return self._run

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run.held.inside = False
        if self._run.held.lease is self._lease:
            self._run.release()


class AsyncHolding:
    """A claim to be awaited, or entered with ``async with``; either gives the run."""

    def __init__(self, run: AsyncRun) -> None:
        self._run = run
        self._lease: Lease | None = None

    def __await__(self) -> Generator[Any, None, AsyncRun]:
        return self._hold().__await__()

    async def _hold(self) -> AsyncRun:
        self._lease = await drive_async(self._run.held.hold(), self._run.held.committer)
        return self._run

    async def __aenter__(self) -> AsyncRun:
        await self._hold()
        self._run.held.inside = True
        return self._run

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run.held.inside = False
        if self._run.held.lease is self._lease:
            await self._run.release()
