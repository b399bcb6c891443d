"""A claim as users hold it: in a ``with`` statement, or until they release it."""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from holdfast.engine.access.lease import Lease
from holdfast.engine.access.operations import drive_async

if TYPE_CHECKING:
    import typing_extensions

    from holdfast.engine.run.handle import AsyncRun, Run

    # What the workflow of a run returns; a run that is found by its id may return anything.
    R = typing_extensions.TypeVar("R", covariant=True, default=Any)
else:
    R = TypeVar("R", covariant=True)


class Holding(Generic[R]):
    """A claim in a ``with`` statement, which gives the run."""

    def __init__(self, run: Run[R], lease: Lease) -> None:
        self.epoch: int = lease.record.epoch
        self._run = run
        self._lease = lease

    def __enter__(self) -> Run[R]:
        self._run.held.inside = True
        return self._run

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run.held.inside = False
        if self._run.held.lease is self._lease:
            self._run.release()


class AsyncHolding(Generic[R]):
    """A claim to be awaited, or entered with ``async with``; either gives the run."""

    def __init__(self, run: AsyncRun[R]) -> None:
        self._run = run
        self._lease: Lease | None = None

    def __await__(self) -> Generator[Any, None, AsyncRun[R]]:
        return self._hold().__await__()

    async def _hold(self) -> AsyncRun[R]:
        self._lease = await drive_async(self._run.held.hold(), self._run.held.committer)
        return self._run

    async def __aenter__(self) -> AsyncRun[R]:
        await self._hold()
        self._run.held.inside = True
        return self._run

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run.held.inside = False
        if self._run.held.lease is self._lease:
            await self._run.release()
