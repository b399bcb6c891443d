"""The life of a workflow's run: it is begun, driven until it ends or has to wait, and looked at from outside.

`start` makes the run already held by this worker and drives it here. `enqueue` leaves it to whoever works
(`holdfast.engine.work`). A run that pauses is driven again by the handle that started it (in `result` and `wait`), or
by any worker. Each drive is one `Execution`; `finish` writes how it ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from holdfast.clock import SystemClock, new_uid
from holdfast.codec import Codec, Tree
from holdfast.engine import children
from holdfast.engine.checks import check_options, check_texts, tags_of
from holdfast.engine.define import Workflow, current_scope, driving, registered
from holdfast.engine.drive import Async, Call, Listen, Op, Read, Settle, drive
from holdfast.engine.events import INFO, WARNING, tell
from holdfast.engine.execution import (
    Aborted,
    Cancelled,
    Continued,
    Execution,
    Expired,
    Outcome,
    Parked,
    Raised,
    Released,
    Returned,
    Suspended,
    Unwind,
)
from holdfast.engine.failures import account_of, revive
from holdfast.engine.lease import Lease
from holdfast.engine.rollback import begin_rollback, plan_rollback, rollback
from holdfast.errors import (
    Claimed,
    DeadlinePassed,
    DefinitionChanged,
    HoldfastError,
    LeaseLost,
    Redacted,
    RunBlocked,
    RunCancelled,
    RunEnded,
    TimedOut,
    UndoRefused,
    UsageError,
    ValueRefused,
    WorkflowMissing,
)
from holdfast.journal import Data, Fold, genesis, next_entry
from holdfast.model import ENDED, Change, Create, Item, Kind, RunRecord, Status
from holdfast.stores.base import LIVE, check_id

if TYPE_CHECKING:
    from holdfast.engine import Engine, Holdfast
    from holdfast.engine.run import Run

PATIENCE = 5.0  # seconds for a thread to come to a safe point, when whoever waits for it is cancelled
LOOK_FOR_DEAD = 1.0  # seconds
MAX_CRASHES = 5  # of its holder at the same place, until a run is parked
QUEUE = "default"
CARRIED_ON = ("version", "deadline", "seconds", "parent", "depth", "trace")  # of the input, when a workflow begins anew


# --- beginning


class Input(Struct, frozen=True):
    """The arguments of a workflow as they are stored, and a digest of them."""

    args: list[Tree]
    kwargs: dict[str, Tree]
    digest: str

    @classmethod
    def of(cls, codec: Codec, workflow: Workflow[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Input:
        trees = [codec.encode(value, f"{workflow.name}.args[{n}]") for n, value in enumerate(args)]
        named = {name: codec.encode(value, f"{workflow.name}.{name}") for name, value in kwargs.items()}
        return cls(trees, named, codec.digest([workflow.name, trees, named]))


def start(
    hf: Holdfast,
    workflow: Workflow[..., Any],
    /,
    *args: Any,
    id: str | None = None,
    tags: Mapping[str, str] | None = None,
    deadline: float | None = None,
    queue: str = QUEUE,
    **kwargs: Any,
) -> Op[Run]:
    """Run a workflow here until it finishes or pauses; its run.

    The same ``id`` again gives the same run, and goes on with it if nobody else does; another workflow or other
    arguments under that id are refused with `DefinitionChanged`. ``deadline`` is how many seconds it may take.
    """
    given = _checked(hf, workflow, args, kwargs, deadline, queue)
    run, lease = yield from begin(
        hf._engine, hf._run_class, workflow, given, id, held=True, tags=tags_of(tags), deadline=deadline, queue=queue
    )
    run._adopted = True
    yield from drive_on(run, lease)
    return run


def enqueue(
    hf: Holdfast,
    workflow: Workflow[..., Any],
    /,
    *args: Any,
    id: str | None = None,
    tags: Mapping[str, str] | None = None,
    deadline: float | None = None,
    queue: str = QUEUE,
    **kwargs: Any,
) -> Op[Run]:
    """Leave a workflow to a worker (``hf.work()``, here or in another process); its run. See `start`."""
    given = _checked(hf, workflow, args, kwargs, deadline, queue)
    run, _ = yield from begin(
        hf._engine, hf._run_class, workflow, given, id, held=False, tags=tags_of(tags), deadline=deadline, queue=queue
    )
    hf._engine.bell.ring()
    return run


def _checked(
    hf: Holdfast, workflow: Any, args: tuple[Any, ...], kwargs: dict[str, Any], deadline: Any, queue: Any
) -> Input:
    if not isinstance(workflow, Workflow):
        raise UsageError(f"{workflow!r} is not a workflow; declare the function with @holdfast.workflow")
    scope = current_scope.get()
    if scope is not None:
        where = f"step {scope.step[0]!r}" if scope.step else "a workflow"
        raise UsageError(
            f"workflow {workflow.name} is started inside of {where} of run {scope.execution.run.id!r}; call it from "
            "the workflow as a function, and it becomes a child of that run"
        )
    check_options(deadline=deadline)
    if not isinstance(queue, str) or not queue:
        raise UsageError(f"queue={queue!r}: a queue has a name, which is text")
    return Input.of(hf._codec, workflow, *workflow.bind(args, kwargs))


def begin(
    engine: Engine,
    run_class: type[Run],
    workflow: Workflow[..., Any],
    given: Input,
    id: str | None,
    *,
    held: bool,
    tags: dict[str, str] | None = None,
    deadline: float | None = None,
    queue: str = QUEUE,
    parent: Data | None = None,
    depth: int = 0,
) -> Op[tuple[Run, Lease | None]]:
    """The run of that id, made if there is none; with the lease, if it was made to be held."""
    store = engine.store
    if id is not None:
        record = yield Read(lambda: store.get(check_id(id)))
        if record is not None:
            yield Read(lambda: _check_same(engine, record, workflow, given))
            return run_class(engine, record.id, record.uid), None
    worker = (yield Read(engine.worker.ready)) if held else None
    create, data = _create(engine, workflow, given, id, worker, tags or {}, deadline, queue, parent, depth)
    record = yield Settle(engine.committer.submit(create))
    run = run_class(engine, record.id, record.uid)
    if record.uid != create.record.uid:  # somebody made it in the same moment
        yield Read(lambda: _check_same(engine, record, workflow, given))
        return run, None
    if not held:
        return run, None
    fold = Fold(record.id)
    fold.add(0, Kind.CREATED, record.created_at, data)
    return run, Lease(record, engine.journals, engine.committer, fold)


def _create(
    engine: Engine,
    workflow: Workflow[..., Any],
    given: Input,
    id: str | None,
    worker: str | None,
    tags: dict[str, str],
    deadline: float | None,
    queue: str,
    parent: Data | None,
    depth: int,
) -> tuple[Create, Data]:
    clock = engine.store.clock
    uid, now = new_uid(clock), clock.now()
    key = engine.journals.new_key(uid)
    data: Data = {"definition": given.digest, "args": given.args, "kwargs": given.kwargs, "version": workflow.version}
    seconds = workflow.deadline if deadline is None else deadline
    if seconds is not None:
        data |= {"deadline": now + round(seconds * 1_000_000), "seconds": seconds}
    if parent is not None:
        data |= {"parent": parent, "depth": depth}
    if engine.tracer is not None:
        data["trace"] = engine.tracer.context()
    payload = engine.journals.seal(uid, key is not None, f"0/{Kind.CREATED}", data, f"arguments of {workflow.name}")
    root = genesis(uid)
    record = RunRecord(
        uid=uid,
        id=id if id is not None else f"{workflow.name[:480]}-{uid}",
        created_at=now,
        root=root,
        workflow=workflow.name,
        tags=tags,
        key_id=key.key_id if key else None,
        key_blob=key.blob if key else None,
        queue=queue,
        parent=parent["uid"] if parent else None,
        status=Status.RUNNING if worker else Status.READY,
        epoch=1 if worker else 0,
        worker=worker,
    )
    return Create(record, (next_entry(root, 0, Kind.CREATED, now, None, payload),)), data


def _check_same(engine: Engine, record: RunRecord, workflow: Workflow[..., Any], given: Input) -> None:
    if record.workflow != workflow.name or record.queue is None:
        what = f"workflow {record.workflow!r}" if record.queue is not None else "a loop that is driven by hand"
        raise DefinitionChanged(record.id, f"it is a run of {what}, not of {workflow.name!r}; use another id")
    uid, first = engine.journals.entry(record, record.base)
    if record.lineage:
        return  # a fork's input is what it was forked with
    if engine.journals.data(record.id, uid, first).get("definition") != given.digest:
        raise DefinitionChanged(
            record.id, f"it was started with other arguments for {workflow.name}; use another id, or fork it"
        )


# --- driving


def drive_on(run: Run, lease: Lease | None = None) -> Op[None]:
    """Drive the run until it ends, waits, is parked, or somebody else has it."""
    while True:
        if lease is None:
            try:
                lease = yield from run._claim()
            except (Claimed, RunEnded, RunBlocked, LeaseLost):
                return
        try:
            status = yield from execute(run, lease)
        except LeaseLost:  # while it was being cancelled or parked
            return
        if status is not Status.READY:
            return
        lease = None


def execute(run: Run, lease: Lease) -> Op[Status]:
    """One drive under the lease, which is given up in the end; the status that the run has then.

    Ready means that there is something new to go on with.
    """
    record = lease.record
    version = lease.fold.input.get("version")
    workflow = registered(record.workflow, version)
    if workflow is None:
        reason = missing(record.workflow, version)
        waits = Change(status=Status.READY, release=True, reason=f"waits for another process: {reason}")
        yield from run._let_go(lease, waits)
        raise WorkflowMissing(run.id, reason)
    deaths = _deaths(lease)
    if deaths >= MAX_CRASHES:
        reason = (
            f"its process died {deaths} times in a row after entry {record.seq}, so it was parked; see what "
            "kills it, then run.unblock()"
        )
        return (yield from _park(run, lease, reason))
    try:
        args, kwargs = _arguments(run, lease, workflow)
    except (Redacted, UsageError, ValueRefused) as error:
        return (yield from _park(run, lease, f"its arguments do not fit workflow {workflow.name} any longer: {error}"))
    cancel = yield Read(lambda: asked_to_cancel(run, run._store.inbox(run.uid)))
    if cancel is not None:
        return (yield from _cancel_driven(run, lease, cancel))
    began = len(lease.fold.log) == 1
    told = "run {run}: begins" if began else "run {run}: goes on at entry {seq}"
    tell(INFO, "run.begun" if began else "run.resumed", told, run=run.id, seq=lease.seq, workflow=workflow.name)
    try:
        execution, outcome = yield Call(_call, (run, lease, workflow, args, kwargs), {})
    except BaseException:  # an interrupt of this process says nothing about the run
        if not _left_to_thread(run, lease):
            yield from run._let_go(lease)
        raise
    try:
        return (yield from _finish(run, execution, outcome))
    except LeaseLost:
        return Status.RUNNING


def _deaths(lease: Lease) -> int:
    """How often the run's process died in a row without getting anywhere. That it meant to act is no progress."""
    if not lease.record.crashes:
        return 0
    meant: dict[str, int] = {}
    for _, kind, _, data in reversed(lease.fold.log):
        if kind == Kind.INTENDED:
            meant[data["key"]] = meant.get(data["key"], 0) + 1
        elif kind != Kind.STARTED and not (kind == Kind.RESOLVED and not data["done"]):
            break
    return max(lease.record.crashes, *meant.values()) if meant else lease.record.crashes


def missing(name: str | None, version: str | None) -> str:
    """Why a run cannot go on in this process."""
    what = f"workflow {name!r}" + (f" in version {version!r}" if version is not None else "")
    return f"{what} is not declared in this process; import the module that declares it"


def _arguments(run: Run, lease: Lease, workflow: Workflow[..., Any]) -> tuple[list[Any], dict[str, Any]]:
    """The stored arguments as values."""
    given = lease.fold.input
    if "args" not in given:
        raise Redacted(run.id, "its input was erased on request")
    types = workflow.types()
    names = [name for name, one in workflow.signature.parameters.items() if one.kind is not one.KEYWORD_ONLY]
    value = run._journals.value
    args = [
        value(run.id, tree, f"argument {n}", types.get(names[n]) if n < len(names) else None)
        for n, tree in enumerate(given["args"])
    ]
    kwargs = {name: value(run.id, tree, f"argument {name}", types.get(name)) for name, tree in given["kwargs"].items()}
    workflow.bind(tuple(args[1:] if workflow.instance is not None else args), kwargs)
    return args, kwargs


def _call(run: Run, lease: Lease, workflow: Workflow[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call the workflow's function, in the way that it and its caller want; the execution, and how it went."""
    if isinstance(run, Async):
        if workflow.is_async:
            return _in_loop(run, lease, workflow, args, kwargs)
        return _in_thread(run, lease, workflow, args, kwargs)
    if not workflow.is_async:
        return _here(run, lease, workflow, args, kwargs)
    import asyncio

    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise UsageError(f"workflow {workflow.name} is async, and so is this code: use `async with holdfast.open(...)`")
    return asyncio.run(_in_loop(run._awaited(), lease, workflow, args, kwargs))


async def _in_loop(
    run: Run, lease: Lease, workflow: Workflow[..., Any], args: list[Any], kwargs: dict[str, Any]
) -> tuple[Execution, Outcome]:
    from holdfast.engine.tasks import AsyncExecution

    execution = AsyncExecution(run, lease, workflow)
    with run._engine.watch.watching(execution):
        try:
            return execution, await execution.drive(tuple(args), kwargs)
        finally:  # before anything is written on how it ended, or undone: no task of it may still be at work
            await execution.dismantle()


async def _in_thread(
    run: Run, lease: Lease, workflow: Workflow[..., Any], args: list[Any], kwargs: dict[str, Any]
) -> tuple[Execution, Outcome]:
    import asyncio

    loop = asyncio.get_running_loop()
    driven = asyncio.ensure_future(run._engine.in_thread(partial(_here, run, lease, workflow, args, kwargs)))
    try:
        await asyncio.wait({driven})
    except asyncio.CancelledError:  # the thread goes on until its next safe point; then the run can be let go of
        until, told = loop.time() + PATIENCE, False
        while not driven.done() and loop.time() < until:
            execution = run._engine.executions.get(run.uid)
            if execution is not None and not told:
                if execution.outcome is not None:
                    break  # it was told before, and had its time
                execution.release()
                told = True
            with suppress(asyncio.CancelledError):
                await asyncio.wait({driven}, timeout=0.05)
        raise
    return driven.result()


def _here(
    run: Run, lease: Lease, workflow: Workflow[..., Any], args: list[Any], kwargs: dict[str, Any]
) -> tuple[Execution, Outcome]:
    if isinstance(run, Async):  # this is a thread of an async caller
        run = run._plain()
    execution = Execution(run, lease, workflow)
    token = current_scope.set(execution.root)
    thread = threading.get_ident()
    nested = thread in driving
    driving.add(thread)
    outcome: Outcome
    try:
        with run._engine.watch.watching(execution):
            outcome = Returned(_traced(execution, args, kwargs))
    except Unwind:
        outcome = Suspended()
    except Exception as error:
        outcome = Raised(error)
    finally:
        if not nested:
            driving.discard(thread)
        current_scope.reset(token)
    with lease.lock:
        execution.over = True
    if execution.abandoned:
        with suppress(HoldfastError):  # of a store that was closed, which gave up the lease too
            drive(run._let_go(lease), run._committer)
    if execution.outcome is not None:
        return execution, execution.outcome
    return execution, Suspended() if execution.root.stopped else outcome


def _left_to_thread(run: Run, lease: Lease) -> bool:
    """Whether the workflow's function is still being called by a thread, which cannot be stopped.

    Then the run stays held until the thread comes to a durable call, or the process ends: what it is doing must not
    be done by another one at the same time.
    """
    execution = run._engine.executions.get(run.uid)
    if execution is None or execution.workflow.is_async or execution.lease is not lease:
        return False
    with lease.lock:
        if execution.over:
            return False
        execution.abandoned = True
    execution.release()
    steps = ", ".join(execution.active) or "the workflow's own code"
    text = "run {run}: {steps} cannot be broken off, so the run is held until that has ended"
    tell(WARNING, "run.abandoned", text, run=run.id, steps=steps)
    return True


def _traced(execution: Execution, args: list[Any], kwargs: dict[str, Any]) -> Any:
    call = partial(execution.workflow.function, *args, **kwargs)
    tracer = execution.engine.tracer
    return call() if tracer is None else tracer.drive(execution, call)


# --- how a drive ended


def _finish(run: Run, execution: Execution, outcome: Outcome) -> Op[Status]:
    """Write how a drive ended, and give up the lease; the status that the run has then."""
    lease, workflow = execution.lease, execution.workflow
    match outcome:
        case Returned(value):
            if (left := execution.leftover()) is not None:
                return (yield from _park(run, lease, _left_out(left)))
            try:
                result = execution.codec.encode(value, f"result of {workflow.name}")
                return (yield from end(run, lease, Kind.COMPLETED, {"result": result}))
            except ValueRefused as error:
                return (yield from _fail(run, execution, error))
        case Raised(error):
            return (yield from _fail(run, execution, error))
        case Expired(seconds):
            late = DeadlinePassed(run.id, f"it took longer than its deadline of {seconds:g} s")
            return (yield from _fail(run, execution, late))
        case Cancelled():
            return (yield from _cancel_driven(run, lease, outcome))
        case Continued(args, kwargs):
            return (yield from _continue(run, execution, args, kwargs))
        case Parked(reason):
            return (yield from _park(run, lease, reason))
        case Released():
            yield from run._let_go(lease, Change(status=Status.READY, release=True))
            return Status.WAITING  # not for this process to go on with
        case Aborted(error):
            if not isinstance(error, LeaseLost):
                yield from run._let_go(lease)
                raise error
            run._give_up(lease)
            tell(WARNING, "run.lost", "run {run}: another worker took it over, so this one stopped", run=run.id)
            return Status.RUNNING
        case Suspended():
            return (yield from _suspend(run, execution))


def _left_out(key: str) -> str:
    return (
        f"the code no longer does what was recorded: {key!r} was recorded, and the workflow returned without calling "
        'it. Put back what it did, or guard the change with holdfast.patched("name"); then run.unblock()'
    )


def _suspend(run: Run, execution: Execution) -> Op[Status]:
    lease = execution.lease
    waited = set(execution.waits)
    closed = [
        (Kind.CLOSED, {"question": seq})
        for seq, asked in lease.fold.questions.items()
        if asked.key is not None and asked.key not in waited
    ]
    status = Status.READY if execution.stirred else Status.WAITING
    change = Change(status=status, release=True, wake_at=None if execution.stirred else execution.soonest())
    yield from run._write(lease, closed, change=change)
    run._give_up(lease)
    execution.engine.bell.ring()
    record = yield Read(run._record)
    return record.status  # type: ignore[no-any-return]


def _park(run: Run, lease: Lease, reason: str) -> Op[Status]:
    tell(WARNING, "run.parked", "run {run}: parked: {reason}", run=run.id, reason=reason)
    yield from run._let_go(lease, Change(status=Status.BLOCKED, release=True, reason=reason))
    run._engine.bell.ring()
    return Status.BLOCKED


def _fail(run: Run, execution: Execution, error: Exception) -> Op[Status]:
    lease = execution.lease
    data = account_of(error, execution.codec, run._journals.max_bytes)
    text = data["error"]
    data["keys"] = _causes(error, execution.failed)
    tell(WARNING, "run.failed", "run {run}: failed: {error}", run=run.id, error=text)
    if execution.workflow.on_failure == "rollback":
        try:
            return (yield from _end_by_rollback(run, lease, {"failure": data}, Status.FAILED))
        except UndoRefused as refused:
            return (yield from _park(run, lease, f"it failed ({text}), and cannot be rolled back: {refused}"))
    return (yield from end(run, lease, Kind.FAILED, data))


def _causes(error: BaseException, failed: list[tuple[BaseException, str]]) -> list[str]:
    """The keys of the calls whose errors made the run fail.

    What led to a call's own error is not looked at: the workflow had caught it, and called something else.
    """
    found: set[str] = set()
    seen: list[BaseException] = []
    pending: list[BaseException | None] = [error]
    while pending:
        one = pending.pop()
        if one is None or any(one is known for known in seen):
            continue
        seen.append(one)
        keys = {key for known, key in failed if known is one}
        found |= keys
        if not keys:
            pending += one.exceptions if isinstance(one, BaseExceptionGroup) else ()
            pending += [one.__cause__ or one.__context__]
    return sorted(found)


def _end_by_rollback(run: Run, lease: Lease, ending: Data, status: Status, took: tuple[str, ...] = ()) -> Op[Status]:
    try:
        beginning = max(lease.record.chapter, lease.record.base)
        yield from begin_rollback(run, lease, beginning, ending, took)
    except UndoRefused:  # nothing was done yet
        raise
    except BaseException:
        yield from run._let_go(lease)
        raise
    yield from children.notify(run, lease)
    yield from run._let_go(lease, Change(status=status, release=True))
    _tell_end(run, status)
    run._engine.bell.ring()
    return status


def _continue(run: Run, execution: Execution, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Op[Status]:
    lease = execution.lease
    try:
        given = Input.of(execution.codec, execution.workflow, args, kwargs)
    except ValueRefused as error:
        return (yield from _fail(run, execution, error))
    before = lease.fold.input
    data: Data = {"definition": given.digest, "args": given.args, "kwargs": given.kwargs}
    data |= {name: before[name] for name in CARRIED_ON if name in before}
    data["before"] = lease.record.chapter
    data["messages"] = [[one.seq, one.topic, one.value, one.by] for one in lease.fold.mailbox]
    change = Change(status=Status.READY, release=True, chapter=lease.seq + 1)
    try:
        yield from run._write(lease, [(Kind.CONTINUED, data)], change=change)
    except ValueRefused as error:
        return (yield from _fail(run, execution, error))
    run._give_up(lease)
    return Status.READY


def end(run: Run, lease: Lease, kind: Kind, data: Data, took: tuple[str, ...] = ()) -> Op[Status]:
    """Write that the run has ended, tell its parent, and give up the lease."""
    status = Status(kind.value)
    change = Change(status=status, release=True)
    if "parent" in lease.fold.input:
        yield from run._write(lease, [(kind, data)], took=took, what="result")
        yield from children.notify(run, lease)
        yield from run._let_go(lease, change)
    else:
        yield from run._write(lease, [(kind, data)], change=change, took=took, what="result")
        run._give_up(lease)
    _tell_end(run, status)
    run._engine.bell.ring()
    return status


def _tell_end(run: Run, status: Status) -> None:
    if status is not Status.FAILED:  # that was told before, with its error
        tell(INFO, f"run.{status}", "run {run}: {status}", run=run.id, status=str(status))


# --- cancelling and trying again


def asked_to_cancel(run: Run, items: list[Item]) -> Cancelled | None:
    """The wish to cancel the run, if it is in its inbox."""
    for item in items:
        if item.kind == "cancel":
            data = run._journals.item_data(run.id, run.uid, item)
            return Cancelled(data["why"], data["undo"], data["by"])
    return None


def wishes(run: Run) -> Op[tuple[str, ...]]:
    """The keys of all wishes to cancel the run, to be taken when it is, or when it goes on after its end."""
    items = yield Read(lambda: run._store.inbox(run.uid))
    return tuple(item.key for item in items if item.kind == "cancel")


def cancel(run: Run, why: str | None = None, *, undo: bool = False, by: str | None = None) -> Op[None]:
    """Give up the run, and the children that it started. With ``undo``, its effects are undone.

    A workflow that is being driven stops at its next durable call; async steps are cancelled at once. If another
    process drives it, it is asked to stop: `wait` until it has. The run can still be forked, or rolled back and go on.
    """
    check_texts(why=why, by=by)
    record = yield Read(run._record)
    if record.queue is None:
        yield from run._end(Status.CANCELLED, {"error": why})
        return
    if record.status in ENDED:
        yield from _cancel_ended(run, record, undo)
        return
    wish = Cancelled(why, undo, by)
    try:
        lease = yield from run._claim(LIVE | {Status.BLOCKED})
    except Claimed:
        yield from _ask_to_cancel(run, record, wish)
        run._engine.watch.tell(run.uid)
        run._engine.bell.ring()
        return
    except RunEnded:
        if (yield Read(run._record)).status is not Status.CANCELLED:
            raise
        return  # it was being cancelled when its process died, and the claim finished that
    try:
        yield from cancel_held(run, lease, wish)
    except UndoRefused:
        yield from run._let_go(lease)
        raise


def _cancel_ended(run: Run, record: RunRecord, undo: bool) -> Op[None]:
    if record.status is not Status.CANCELLED:
        raise RunEnded(run.id, f"it is {record.status}, so it cannot be cancelled; run.rollback(to=0) undoes it")
    beginning = max(record.chapter, record.base)
    if undo and (yield from plan_rollback(run, beginning)).steps:
        yield from rollback(run, beginning, then=Status.CANCELLED)


def _ask_to_cancel(run: Run, record: RunRecord, wish: Cancelled) -> Op[None]:
    data = {"why": wish.why, "undo": wish.undo, "by": wish.by}
    key = f"cancel:{record.epoch}.{run._store.clock.random_bytes(4).hex()}"
    item = run._journals.item(record, key, "cancel", data, wakes=True)
    yield Read(lambda: run._store.post(record.uid, item))


def cancel_held(run: Run, lease: Lease, wish: Cancelled) -> Op[Status]:
    """Cancel a run that is held here."""
    try:
        yield from _cancel_parts(run, lease, wish)
        took = yield from wishes(run)
    except BaseException:
        yield from run._let_go(lease)
        raise
    data: Data = {"error": wish.why, "by": wish.by}
    if wish.undo:
        return (yield from _end_by_rollback(run, lease, {"cancelled": data}, Status.CANCELLED, took))
    return (yield from end(run, lease, Kind.CANCELLED, data, took))


def _cancel_parts(run: Run, lease: Lease, wish: Cancelled) -> Op[None]:
    parts = yield from children.open_children(run, lease)
    if parts and (yield Read(lambda: asked_to_cancel(run, run._store.inbox(run.uid)))) is None:
        yield from _ask_to_cancel(run, lease.record, wish)  # should this process die half-way, the next one goes on
    for part in parts:
        with suppress(RunEnded):  # just now, by itself
            yield from cancel(part, wish.why or f"run {run.id} was cancelled", undo=wish.undo, by=wish.by)


def _cancel_driven(run: Run, lease: Lease, wish: Cancelled) -> Op[Status]:
    """Cancel a run for somebody who is not here to be told if it cannot be undone."""
    try:
        return (yield from cancel_held(run, lease, wish))
    except UndoRefused as refused:
        return (yield from _park(run, lease, f"it was cancelled, and cannot be rolled back: {refused}"))


def retry(run: Run, *, by: str | None = None) -> Op[None]:
    """Let a failed, cancelled or parked run go on: what it failed with is tried again, what was done is kept."""
    check_texts(by=by)
    record = yield Read(run._record)
    if record.status is Status.BLOCKED:
        from holdfast.engine.run import Run

        yield from Run.unblock.function(run, by=by)
    elif record.status in (Status.FAILED, Status.CANCELLED):
        lease = yield from run._claim({Status.FAILED, Status.CANCELLED})
        try:
            yield from _retry_held(run, lease, by)
        except BaseException:
            yield from run._let_go(lease)
            raise
        run._give_up(lease)
    else:
        raise UsageError(f"run {run.id!r} is {record.status}; only a failed, cancelled or blocked run is tried again")
    run._adopted = run._adopted or record.queue is not None
    run._engine.bell.ring()


def _retry_held(run: Run, lease: Lease, by: str | None) -> Op[None]:
    ended = lease.fold.ended
    data: Data = {"keys": ended[1].get("keys", []) if ended else [], "by": by}
    for part in (yield from children.broken_children(run, lease, data["keys"])):
        yield from retry(part, by=by)
    if (seconds := lease.fold.input.get("seconds")) is not None:
        data["deadline"] = run._store.clock.now() + round(seconds * 1_000_000)
    took = yield from wishes(run)
    change = Change(status=Status.READY, release=True)
    yield from run._write(lease, [(Kind.RETRIED, data)], change=change, took=took)


# --- looking at it from outside


def resume(run: Run) -> Op[Status]:
    """Go on with the run here until it finishes or pauses, if nobody else does; the status it has then.

    From then on this handle drives it, like one that `start` gave.
    """
    record = yield Read(run._record)
    if record.queue is None:
        raise UsageError(f"run {run.id!r} is driven by hand: claim it, and go on in your own loop")
    run._adopted = True
    yield from drive_on(run)
    return (yield Read(run._record)).status  # type: ignore[no-any-return]


def wait(run: Run, *, timeout: float | None = None) -> Op[Status]:
    """Wait until the run has ended or is blocked; its status. After ``timeout`` seconds, the status it has then.

    A handle that started or resumed the run drives it on, when its time has come or an answer is there.
    """
    check_options(timeout=timeout)
    clock, engine = run._store.clock, run._engine
    until = None if timeout is None else clock.now() + round(timeout * 1_000_000)
    try_at = 0.0  # when to try to claim the run from somebody who drives it, and may have died
    while True:
        heard = yield Read(engine.bell.heard)
        record = yield Read(run._record)
        if record.status in ENDED or record.status is Status.BLOCKED:
            return record.status  # type: ignore[no-any-return]
        now = clock.now()
        wake = (yield from _next_move(run, record)) if run._adopted else None
        if wake is not None and wake <= now and (record.status is not Status.RUNNING or time.monotonic() >= try_at):
            try_at = time.monotonic() + LOOK_FOR_DEAD
            before = record.epoch
            yield from drive_on(run)
            if (yield Read(run._record)).epoch != before:
                continue
        moments = [at for at in (until, wake if record.status is Status.WAITING else None) if at is not None]
        left = None if not moments else (min(moments) - now) / 1_000_000
        if until is not None and now >= until:
            return record.status  # type: ignore[no-any-return]
        if left is not None and not isinstance(clock, SystemClock):
            yield Read(partial(clock.sleep, max(left, 0)))
        else:
            yield Listen(engine.bell, heard, _patience(engine, record, left))


def _next_move(run: Run, record: RunRecord) -> Op[int | None]:
    """When the run can go on by itself; since long, if it can now. Driving it drives its children, too."""
    if record.status is not Status.WAITING:
        return record.created_at  # ready; or running, by somebody who may have died
    part = yield from children.next_move(run)
    return min((at for at in (part, record.wake_at) if at is not None), default=None)


def _patience(engine: Engine, record: RunRecord, left: float | None) -> float | None:
    """How long to listen. The death of a holder makes no sound."""
    if record.status is not Status.RUNNING:
        return left
    return min(left, LOOK_FOR_DEAD) if left is not None else LOOK_FOR_DEAD


def result(run: Run, *, timeout: float | None = None, type: Any = None) -> Op[Any]:
    """What the workflow returned; waits for it (see `wait`). Raises what it raised.

    Raises `RunCancelled`, `RunBlocked`, or `TimedOut` after ``timeout`` seconds. ``type`` is what the result is read
    as, if its class is not registered and the workflow is not declared here.
    """
    status = yield from wait(run, timeout=timeout)
    record = yield Read(run._record)
    if status is Status.BLOCKED:
        remedy = "" if "run.unblock()" in (record.reason or "") else "; run.unblock() lets it go on"
        raise RunBlocked(run.id, f"{record.reason}{remedy}")
    if status not in ENDED:
        why = f"; it {record.reason}" if record.reason else ""
        raise TimedOut(run.id, f"it is {status} after {timeout:g} s{why}")
    fold = yield Read(lambda: run._refold(record))
    assert fold.ended is not None
    ended = fold.ended[1]
    if "erased" in ended:
        raise Redacted(run.id, "its result was erased on request")
    if status is Status.COMPLETED:
        workflow = registered(record.workflow, fold.input.get("version"))
        kind = type if type is not None or workflow is None else workflow.types().get("return")
        return run._journals.value(run.id, ended.get("result"), "result", kind)
    if status is Status.CANCELLED:
        raise RunCancelled(run.id, ended.get("error") or None)
    if "failure" in ended:
        error = revive(ended["failure"], run._codec)
        error.add_note(f"run {run.id!r} failed with it; run.retry() tries again, run.fork() goes another way")
        raise error
    raise RunEnded(run.id, f"it failed: {ended.get('error')}")
