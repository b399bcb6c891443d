"""The scopes of tasks: each task that a workflow creates has one, with the task's name or that of what it executes.

A task that was created by ``create_task(work(), name="mail")`` is ``mail``. Without a name it is ``work``, with its
module in front if that is not the workflow's. So one more task of another name changes no key of the others.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import sys
import weakref
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from functools import partial
from types import FrameType
from typing import Any

from holdfast.engine.workflow.scope import Scope, current_scope

_DEFAULT = re.compile(r"(Task-\d+|None)?")  # what asyncio calls a task that nobody has named; Python 3.13: None
_ASYNCIO = asyncio.__path__[0]
_MAKERS = frozenset({"create_task", "ensure_future", "_ensure_future"})
_WAIT_FOR = asyncio.wait_for.__code__
_TO_THREAD = asyncio.to_thread.__code__
_factories: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = weakref.WeakKeyDictionary()


def task_name(coro: Any, module: str, made: list[asyncio.Task[Any]]) -> Callable[[], str]:
    """A function that gives the name of a task. It is in ``made`` by then: asyncio names a task after its creation."""
    executed = _executed(coro)

    def name() -> str:
        given = made[0].get_name() if made else ""
        found = executed if _DEFAULT.fullmatch(given) else given
        return found.removeprefix(f"{module}.").replace("/", "_").replace("#", "_")

    return name


def is_of_wait_for(frame: FrameType | None) -> bool:
    """Whether a task is created by `asyncio.wait_for`, which creates one on Python 3.11 and none on later ones."""
    while frame is not None and frame.f_code.co_name in _MAKERS and frame.f_code.co_filename.startswith(_ASYNCIO):
        frame = frame.f_back
    return frame is not None and frame.f_code is _WAIT_FOR


def _executed(coro: Any) -> str:
    name: str = getattr(coro, "__qualname__", type(coro).__qualname__)
    frame: FrameType | None = getattr(coro, "cr_frame", None) or getattr(coro, "gi_frame", None)
    if frame is None:
        return name
    if frame.f_code is _TO_THREAD:
        return _named(frame.f_locals["func"])
    if frame.f_code is _WAIT_FOR:
        return _executed(frame.f_locals["fut"])
    module = frame.f_globals.get("__name__", "")
    if module.partition(".")[0] == "holdfast":  # a step: its coroutine has its name
        return name
    if frame.f_code.co_qualname != name:  # a wrapper that took over the name of what it calls
        wrapped = (value for value in frame.f_locals.values() if getattr(value, "__qualname__", None) == name)
        module = getattr(next(wrapped, None), "__module__", module)
    return f"{module}.{name}"


def _named(function: Any) -> str:
    """The module and qualified name of a function, without what is wrapped around it."""
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', None) or type(function).__module__}.{name}"


def install_task_factory(loop: asyncio.AbstractEventLoop, kind: type[Any]) -> None:
    """See to it that each task which a workflow creates on this loop has a scope. ``kind`` is that of executions."""
    before = loop.get_task_factory()
    if before is not None and _factories.get(loop) is before:
        return

    def factory(
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        *,
        context: Context | None = None,
        **more: Any,
    ) -> Any:
        around = context.get(current_scope) if context is not None else current_scope.get()
        scope = around if isinstance(around, Scope) else None  # inside of a step tasks are its own business
        execution = scope.execution if scope is not None else None
        inside = isinstance(execution, kind) and execution.is_on(loop)
        made: list[Any] = []
        shared = inside and is_of_wait_for(sys._getframe(1))
        if scope is not None and inside and not shared:
            scope = scope.task(task_name(coro, scope.execution.workflow.__module__, made))
            context = context.copy() if context is not None else copy_context()
            context.run(current_scope.set, scope)
        if before is not None:
            make: Any = before
            task: Any = make(loop, coro, context=context, **more) if context is not None else make(loop, coro)
        else:
            task = asyncio.Task(coro, loop=loop, context=context, **more)
        made.append(task)
        if scope is not None and isinstance(execution, kind) and inside:
            execution.follow(task, scope, shared=shared)
        return task

    _factories[loop] = factory
    loop.set_task_factory(factory)
