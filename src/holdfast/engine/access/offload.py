"""Calls to a store, made by a caller on an event loop.

Those of a store on this machine are too short to leave the loop. Those that wait for a network are made in threads of
their own: the loop's threads belong to the user's code, which may keep all of them busy.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

from holdfast.stores.protocol import Store

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

T = TypeVar("T")
MAX_THREADS = 32
_threads: ThreadPoolExecutor | None = None


def threads() -> ThreadPoolExecutor:
    """Where calls are made that would hold up a loop."""
    from concurrent.futures import ThreadPoolExecutor

    global _threads
    if _threads is None:
        _threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="holdfast-store")
    return _threads


def _begin_anew() -> None:
    global _threads
    _threads = None


os.register_at_fork(after_in_child=_begin_anew)


class Line:
    """Serves the tasks of an event loop one at a time, in the order in which they arrive.

    A thread's lock cannot do this: the operating system chooses which waiting thread gets it next.
    """

    def __init__(self) -> None:
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    async def take(self) -> Callable[[], None]:
        """Wait for the caller's turn. Return the function that ends it."""
        import asyncio

        loop = asyncio.get_running_loop()
        lock = self._locks.get(loop)
        if lock is None:
            lock = self._locks[loop] = asyncio.Lock()  # first come, first served
        await lock.acquire()
        return lock.release


async def aside(store: Store, ask: Callable[[], T]) -> T:
    """Ask the store something, without holding up the loop. Once it is asked, the answer is waited for.

    It may be a claim, and one that was made must become known. So who is cancelled meanwhile is at its next wait, as
    it would be with a store whose calls do not leave the loop.
    """
    if not store.networked:
        return ask()
    import asyncio

    future = asyncio.get_running_loop().run_in_executor(threads(), copy_context().run, ask)
    interrupt: asyncio.CancelledError | None = None
    task = asyncio.current_task()
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError as error:
            interrupt = error
            if task is not None:
                task.uncancel()
    if interrupt is not None and task is not None:
        task.cancel(*interrupt.args)
    return future.result()
