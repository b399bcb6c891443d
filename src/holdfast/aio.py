"""What async workflows await, for type checkers: ``from holdfast.aio import ask, gather``.

These are the functions of `holdfast` itself, which give a value in a sync workflow and something to await in an async
one. A type checker cannot know in which of them a call stands, so it sees them as plain functions there, and as
coroutines here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from holdfast.engine.workflow import waiting
from holdfast.engine.workflow.concurrency import branches, races

__all__ = ["ask", "first", "gather", "map", "receive", "sleep", "timeout"]

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
R = TypeVar("R")
T = TypeVar("T")

if TYPE_CHECKING:
    Branch = Awaitable[T] | Callable[[], Awaitable[T]]
    Seconds = float | timedelta

    async def sleep(duration: Seconds | None = None, *, until: datetime | None = None) -> None: ...
    @overload
    async def ask(prompt: str, kind: type[T], *, timeout: Seconds | None = None) -> T: ...
    @overload
    async def ask(prompt: str, kind: type[T], *, timeout: Seconds | None = None, default: D) -> T | D: ...
    @overload
    async def ask(prompt: str, kind: Any = None, *, timeout: Seconds | None = None, default: Any = ...) -> Any: ...
    async def ask(prompt: str, kind: Any = None, **options: Any) -> Any: ...
    @overload
    async def receive(topic: str | None = None, *, type: type[T], timeout: Seconds | None = None) -> T: ...
    @overload
    async def receive(
        topic: str | None = None, *, type: type[T], timeout: Seconds | None = None, default: D
    ) -> T | D: ...
    @overload
    async def receive(
        topic: str | None = None, *, type: Any = None, timeout: Seconds | None = None, default: Any = ...
    ) -> Any: ...
    async def receive(topic: str | None = None, **options: Any) -> Any: ...
    @overload
    async def gather(  # type: ignore[overload-overlap]
        a: Branch[A], b: Branch[B], /, *, limit: int | None = None, return_exceptions: Literal[False] = False
    ) -> tuple[A, B]: ...
    @overload
    async def gather(  # type: ignore[overload-overlap]
        a: Branch[A],
        b: Branch[B],
        c: Branch[C],
        /,
        *,
        limit: int | None = None,
        return_exceptions: Literal[False] = False,
    ) -> tuple[A, B, C]: ...
    @overload
    async def gather(
        *branches: Branch[T], limit: int | None = None, return_exceptions: Literal[False] = False
    ) -> list[T]: ...
    @overload
    async def gather(
        *branches: Branch[T], limit: int | None = None, return_exceptions: bool
    ) -> list[T | Exception]: ...
    async def gather(*branches: Any, **options: Any) -> Any: ...
    @overload
    async def map(
        function: Callable[[T], Awaitable[R]],
        items: Iterable[T],
        *,
        limit: int | None = None,
        return_exceptions: Literal[False] = False,
    ) -> list[R]: ...
    @overload
    async def map(
        function: Callable[[T], Awaitable[R]], items: Iterable[T], *, limit: int | None = None, return_exceptions: bool
    ) -> list[R | Exception]: ...
    async def map(function: Any, items: Any, **options: Any) -> Any: ...
    @overload
    async def first(a: Branch[A], b: Branch[B], /) -> A | B: ...
    @overload
    async def first(*branches: Branch[T]) -> T: ...
    async def first(*branches: Any) -> Any: ...
    async def timeout(seconds: Seconds, branch: Branch[T]) -> T: ...

else:
    ask, receive, sleep = waiting.ask, waiting.receive, waiting.sleep
    gather, map = branches.gather, branches.map
    first, timeout = races.first, races.timeout
