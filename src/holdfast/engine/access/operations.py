"""One implementation for sync and async callers.

An operation is a generator. It decides, and where it has to wait it yields a request: `Settle` a submitted write,
`Read` from the store, `Call` a user's function, take a `Nap`, or `Listen` for news. A driver carries the request out
and sends the result back in. There are two drivers, one that blocks and one that awaits; which one is used depends on
whether the object that the operation belongs to is `Async`. So ``run.save(...)`` is written once, and is a plain call
on a `Run` and an awaitable on an `AsyncRun`.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from functools import wraps
from threading import Lock
from types import MethodType
from typing import Any, Concatenate, Generic, NoReturn, ParamSpec, Self, TypeVar, overload

from holdfast.engine.access.commit import Committer, Ticket
from holdfast.engine.access.offload import Line, aside
from holdfast.engine.access.wakeups import Bell, Heard
from holdfast.errors import UsageError
from holdfast.kernel.clock import Clock, SystemClock

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


class Settle:
    """Wait until a submitted write is committed."""

    __slots__ = ("ticket",)

    def __init__(self, ticket: Ticket) -> None:
        self.ticket = ticket


class Read:
    """Call a function that asks the store something."""

    __slots__ = ("args", "function", "kwargs")

    def __init__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs

    def ask(self) -> Any:
        """Call it."""
        return self.function(*self.args, **self.kwargs)


class TakeTurn:
    """Wait for the caller's turn in a line. The result is the function that ends the turn.

    A synchronous caller does not wait: threads decide and submit under the lock of the lease.
    """

    __slots__ = ("line",)

    def __init__(self, line: Line) -> None:
        self.line = line


class Call:
    """Call a user's function, which may be a coroutine function if the caller is async."""

    __slots__ = ("args", "function", "kwargs")

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs


class Nap:
    """Wait for some seconds, in place. A thread goes on as soon as it gets ``gate``, if there is one."""

    __slots__ = ("clock", "gate", "seconds")

    def __init__(self, clock: Clock, seconds: float, gate: Lock | None = None) -> None:
        self.clock = clock
        self.seconds = seconds
        self.gate = gate

    def sleep(self) -> None:
        """The waiting of a thread."""
        if self.gate is not None:
            self.gate.acquire(timeout=self.seconds)
        else:
            self.clock.sleep(self.seconds)

    async def nap(self) -> None:
        """The waiting of an async caller. A clock of a test's own says itself how time passes."""
        if isinstance(self.clock, SystemClock):
            import asyncio

            await asyncio.sleep(self.seconds)
        else:
            self.clock.sleep(self.seconds)


class Listen:
    """Wait until something was committed since ``heard``, or until some seconds have passed."""

    __slots__ = ("bell", "heard", "seconds")

    def __init__(self, bell: Bell, heard: Heard, seconds: float | None) -> None:
        self.bell = bell
        self.heard = heard
        self.seconds = seconds


Request = Settle | Read | TakeTurn | Call | Nap | Listen
Op = Generator[Request, Any, R]
Each = Iterator[R] | AsyncIterator[R]  # of a sync caller, and of an async one


class Operable:
    """Something that has operations: a handle that users hold."""

    _committer: Committer

    @property
    def _subject(self) -> Any:
        """The object that its operations work on."""
        return self

    def _presented(self, value: Any) -> Any:
        """The result of an operation as users get it."""
        return value

    def perform(self, operation: Op[Any]) -> Any:
        """Carry out an operation of the engine as this handle carries out its own; of an async one, to be awaited."""
        if isinstance(self, Async):
            return self._performed(operation)
        return self._presented(drive(operation, self._committer))

    async def _performed(self, operation: Op[Any]) -> Any:
        return self._presented(await drive_async(operation, self._committer))


class Sync:
    """Marks a class whose operations block."""


class Async:
    """Marks a class whose operations are awaited."""


class Operation(Generic[S, P, R]):
    """A generator method that is driven in the way that its object wants: a plain method, or one to be awaited."""

    def __init__(self, function: Callable[Concatenate[S, P], Op[R]]) -> None:
        self.function = function
        self._plain, self._awaited = _methods(function)

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: Async, owner: type) -> Callable[P, Coroutine[Any, Any, R]]: ...
    @overload
    def __get__(self, instance: Sync, owner: type) -> Callable[P, R]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        method = self._awaited if issubclass(owner, Async) else self._plain
        return method if instance is None else MethodType(method, instance)


class Stream(Generic[S, P, R]):
    """A method that gives values as they come: to ``for``, or to ``async for`` if its object is async."""

    def __init__(self, function: Callable[Concatenate[S, P], Each[R]]) -> None:
        self.function = function

        @wraps(function)
        def method(self: Any, /, *args: Any, **kwargs: Any) -> Each[R]:
            return function(self._subject, *args, **kwargs)

        self._method = method

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: Async, owner: type) -> Callable[P, AsyncIterator[R]]: ...
    @overload
    def __get__(self, instance: Sync, owner: type) -> Callable[P, Iterator[R]]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        return self._method if instance is None else MethodType(self._method, instance)


def _methods(function: Callable[..., Op[Any]]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The two methods that an operation becomes, which look to users like what they do."""

    def plain(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return self._presented(drive(function(self._subject, *args, **kwargs), self._committer))

    async def awaited(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return self._presented(await drive_async(function(self._subject, *args, **kwargs), self._committer))

    signature = inspect.signature(function)
    gives = str(signature.return_annotation).removeprefix("Op[").removesuffix("]")
    methods: tuple[Any, Any] = (plain, awaited)
    for method in methods:
        method.__name__, method.__doc__, method.__module__ = function.__name__, function.__doc__, function.__module__
        method.__qualname__ = function.__qualname__
        method.__signature__ = signature.replace(return_annotation=gives)
        method.function = function
    return methods


def drive(operation: Op[R], committer: Committer) -> R:
    """Carry out an operation, blocking where it waits."""
    committer.check_process()
    value: Any
    try:
        request = next(operation)
        while True:
            try:
                if type(request) is Settle:
                    value = committer.settle(request.ticket)
                elif type(request) is Read:
                    value = request.function(*request.args, **request.kwargs)
                elif type(request) is TakeTurn:
                    value = no_turn
                elif type(request) is Call:
                    value = request.function(*request.args, **request.kwargs)
                    if hasattr(value, "__await__"):
                        refuse_awaitable(value, request.function)
                elif type(request) is Nap:
                    request.sleep()
                    value = None
                else:
                    assert type(request) is Listen
                    request.bell.listen(request.heard, request.seconds)
                    value = None
            except BaseException as error:  # the operation decides
                request = operation.throw(error)
            else:
                request = operation.send(value)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


async def drive_async(operation: Op[R], committer: Committer) -> R:
    """Carry out an operation, awaiting where it waits."""
    committer.check_process()
    local = not committer.store.networked
    value: Any
    try:
        request = next(operation)
        while True:
            try:
                if type(request) is Settle:
                    value = await committer.settle_async(request.ticket)
                elif type(request) is Read:
                    value = request.ask() if local else await aside(committer.store, request.ask)
                elif type(request) is TakeTurn:
                    value = await request.line.take()
                elif type(request) is Call:
                    value = request.function(*request.args, **request.kwargs)
                    if hasattr(value, "__await__"):
                        value = await value
                elif type(request) is Nap:
                    await request.nap()
                    value = None
                else:
                    assert type(request) is Listen
                    await request.bell.listen_async(request.heard, request.seconds)
                    value = None
            except BaseException as error:  # the operation decides
                request = operation.throw(error)
            else:
                request = operation.send(value)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


def no_turn() -> None:
    """End the turn of a caller that did not have to wait for one."""


def refuse_awaitable(value: Any, function: Callable[..., Any]) -> NoReturn:
    """A value must be there already: a coroutine that nobody awaits has done nothing."""
    if hasattr(value, "close"):
        value.close()
    raise UsageError(
        f"{function!r} is async, or gave something to await, and nobody here awaits; declare it with async def "
        "and, if it is not a step of an async workflow, open the store with `async with`"
    )
