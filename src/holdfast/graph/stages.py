"""The two ways to drive a graph: on this thread, with threads for parallel tasks, and on the event loop, with tasks.

What is done in a task, and in between, are the operations of `Running`. Here is only what waits for them.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from functools import partial
from typing import Any

from holdfast.engine.access.operations import drive, drive_async
from holdfast.engine.workflow.concurrency.branches import Threads, cancel_all, start_in
from holdfast.engine.workflow.concurrency.races import drop_children
from holdfast.engine.workflow.outcomes import Unwind
from holdfast.engine.workflow.scope import Scope, current_scope
from holdfast.graph.execution import Running
from holdfast.graph.plan import Task

# --- plain functions


def plainly(running: Running) -> None:
    """Drive a graph of plain functions to its end."""
    committer = running.execution.committer
    drive(running.begin(), committer)
    while tasks := drive(running.gate(), committer):
        if len(tasks) > 1:
            _in_threads(running, tasks)
            continue
        scope = running.scope_of(tasks[0])
        _here(running, tasks[0], scope)
        if scope.stopped:
            running.execution.root.stopped = True
            raise Unwind


def _here(running: Running, task: Task, scope: Scope) -> None:
    token = current_scope.set(scope)
    try:
        drive(running.carry_out(task, scope), running.execution.committer)
    finally:
        current_scope.reset(token)


def _in_threads(running: Running, tasks: list[Task]) -> None:
    threads = Threads(running.execution.root, "", (), None, more=len(tasks))
    futures: dict[Task, Future[Any]] = {}
    while True:
        going = [task for task, future in futures.items() if not future.done() and not running.scope_of(task).stopped]
        for task in tasks:
            if task not in futures and running.may_begin(task, going):
                scope = running.scope_of(task)  # here: its thread may begin when this stage is over
                futures[task] = threads.begin(scope, partial(_here, running, task, scope))
                going.append(task)
        if not going:
            break
        threads.wait_for_any([futures[task] for task in going])
    threads.close()
    if any(running.scope_of(task).stopped for task in tasks):  # some may have been given up, with what they had begun
        drive(drop_children(running.execution), running.execution.committer)
    _raise_what_was_raised(running, {task: future for task, future in futures.items() if future.done()})


# --- coroutine functions


async def on_loop(running: Running) -> None:
    """Drive a graph that has coroutine functions to its end."""
    committer = running.execution.committer
    await drive_async(running.begin(), committer)
    while tasks := await drive_async(running.gate(), committer):
        if len(tasks) > 1:
            await _in_tasks(running, tasks)
            continue
        scope = running.scope_of(tasks[0])
        token = current_scope.set(scope)  # in this task, which is quicker than in one of its own
        try:
            await drive_async(running.carry_out(tasks[0], scope), committer)
        finally:
            current_scope.reset(token)


async def _in_tasks(running: Running, tasks: list[Task]) -> None:
    execution = running.execution
    made: dict[Task, asyncio.Task[Any]] = {}
    going: dict[asyncio.Task[Any], Task] = {}
    try:
        while True:
            for task in tasks:
                if task not in made and running.may_begin(task, list(going.values())):
                    scope = running.scope_of(task)
                    made[task] = start_in(scope, drive_async(running.carry_out(task, scope), execution.committer))
                    going[made[task]] = task
            if not going:
                break
            await asyncio.wait(going, return_when=asyncio.FIRST_COMPLETED)
            given_up = [one for one, task in going.items() if not one.done() and running.scope_of(task).stopped]
            if given_up:
                await cancel_all(given_up)
                await drive_async(drop_children(execution), execution.committer)
            going = {one: task for one, task in going.items() if not one.done()}
    except asyncio.CancelledError:
        await cancel_all(list(going))
        raise
    _raise_what_was_raised(running, made)


def _raise_what_was_raised(running: Running, ended: dict[Task, Any]) -> None:
    """Raise what a task has raised, the first in their order. If one of them waits, so does the graph."""
    needed = [one for task, one in ended.items() if not running.is_given_up(task)]
    if any(one.cancelled() for one in needed):  # by its own code
        raise asyncio.CancelledError
    errors = [error for one in needed if (error := one.exception()) is not None]
    for error in errors:
        if not isinstance(error, Exception | Unwind):  # an interrupt of this process
            raise error
    if any(isinstance(error, Unwind) for error in errors):
        running.execution.root.stopped = True
        raise Unwind
    for error in errors:
        raise error
