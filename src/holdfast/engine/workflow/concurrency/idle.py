"""What a task of a workflow waits for: something durable, its peers, or the world outside.

Asyncio does not say it, so it is read off the future that the task waits for and the function of asyncio's own that it
stands in. Whatever is not known for sure counts as the world outside: then the run is kept going, which costs a lease
and no more.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Collection, Iterable
from typing import Any

from holdfast.engine.workflow.replay_gate import OUTSIDE

RUNS = "runs"
DURABLE = "durable"
PEERS = "peers"

_ASYNCIO = asyncio.__path__[0]
_ANYIO = os.path.join("anyio", "_backends", "_asyncio.py")
_PRIMITIVES = frozenset({"locks", "queues"})


def is_busy(task: asyncio.Task[Any]) -> bool:
    """Whether the task has something to do at once, or has just ended and nobody was told yet."""
    future = getattr(task, "_fut_waiter", None)
    return future is None or future.done()


def waits_for(task: asyncio.Task[Any], tasks: Collection[asyncio.Task[Any]], durable: Collection[Any]) -> str:
    """What a task is doing. ``tasks`` are those of its workflow, ``durable`` the futures of what is durable."""
    if is_busy(task):
        return RUNS
    future: Any = task._fut_waiter  # type: ignore[attr-defined]
    if future in durable:
        return DURABLE
    return PEERS if _is_of_peers(future, tasks) or _waits_in_asyncio(task, tasks) else OUTSIDE


def _is_of_peers(future: Any, tasks: Collection[asyncio.Task[Any]]) -> bool:
    """Whether only the workflow's own tasks can end a future."""
    if future.done() or future in tasks:
        return True
    if isinstance(future, asyncio.Task):
        return False
    children = getattr(future, "_children", None)  # of asyncio.gather
    if children is not None:
        return _are_of_peers(children, tasks)
    behind = _behind(future)
    return behind is not None and _is_of_peers(behind, tasks)


def _are_of_peers(futures: Iterable[Any], tasks: Collection[asyncio.Task[Any]]) -> bool:
    return all(_is_of_peers(future, tasks) for future in futures)


def shielded(task: asyncio.Task[Any]) -> Any:
    """What a task waits for behind an asyncio.shield, if it does."""
    return _behind(getattr(task, "_fut_waiter", None))


def _behind(future: Any) -> Any:
    """What asyncio.shield stands before, if the future is one of its own."""
    for entry in getattr(future, "_callbacks", None) or ():
        callback = entry[0]
        if getattr(callback, "__qualname__", "") == "shield.<locals>._outer_done_callback":
            return dict(zip(callback.__code__.co_freevars, callback.__closure__, strict=True))["inner"].cell_contents
    return None


def _waits_in_asyncio(task: asyncio.Task[Any], tasks: Collection[asyncio.Task[Any]]) -> bool:
    """Whether a task stands in a function of asyncio that only the workflow's own tasks can let go on."""
    stack = _stack(task)
    frame = stack[-1]
    path = frame.f_code.co_filename
    if path.endswith(_ANYIO) and frame.f_code.co_qualname == "TaskGroup.__aexit__":
        return _are_of_peers(frame.f_locals["self"]._tasks, tasks)
    if not path.startswith(_ASYNCIO):
        return False
    module, function = path[len(_ASYNCIO) + 1 :].removesuffix(".py"), frame.f_code.co_name
    known = frame.f_locals
    match module, function:
        case "tasks", "_wait":
            return _are_of_peers(known["fs"], tasks)
        case "tasks", "wait_for":
            return _is_of_peers(known["fut"], tasks)
        case "tasks", "_cancel_and_wait":
            return _is_of_peers(known["fut"], tasks)
        case "taskgroups", _:
            return _are_of_peers(known["self"]._tasks, tasks)
    return module in _PRIMITIVES and not _is_shared(known["self"], stack)


def _is_shared(primitive: Any, stack: list[Any]) -> bool:
    """Whether a lock, event or queue is a module's global: then others than this workflow may use it, too."""
    users = [frame for frame in stack if not frame.f_code.co_filename.startswith(_ASYNCIO)]
    return any(value is primitive for frame in users for value in frame.f_globals.values())


def _stack(task: asyncio.Task[Any]) -> list[Any]:
    """The frames that a task stands in, innermost last."""
    frames: list[Any] = []
    awaited: Any = task.get_coro()
    while awaited is not None:
        for kind in ("cr", "gi", "ag"):  # coroutine, generator, async generator
            frame = getattr(awaited, f"{kind}_frame", None)
            if frame is not None:
                frames.append(frame)
                awaited = getattr(awaited, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")
                break
        else:  # what stands between: of `async for`, and of `__await__`
            held = [one for one in gc.get_referents(awaited) if hasattr(one, "cr_frame") or hasattr(one, "ag_frame")]
            awaited = held[0] if len(held) == 1 and not isinstance(awaited, asyncio.Future) else None
    return frames
