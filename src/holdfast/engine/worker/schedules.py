"""Schedules: a workflow is begun again and again, at the times that a cron expression says.

What is to be begun, and when next, stands in a document of the store. Any worker makes the runs that are due: the id of
a run says for which tick it is, and the store makes an id once, so a tick is one run however many workers there are.
Then the time of the next tick is set, by the first who comes to it. Nobody needs to have the workflow for that: the run
waits in its queue for a worker who does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from holdfast.codec import WrappedKey
from holdfast.engine.access.client import Client
from holdfast.engine.access.engine import Engine
from holdfast.engine.access.operations import Async, Op, Operable, Read, Settle, Sync
from holdfast.engine.access.operations import Operation as operation
from holdfast.engine.argument_checks import check_bounds, check_texts, tags_of
from holdfast.engine.execute.start import checked, checked_place, create_of
from holdfast.engine.log import INFO, WARNING, tell
from holdfast.engine.worker.cron import check_cron, due_ticks, next_tick
from holdfast.engine.workflow.declare import Workflow
from holdfast.engine.workflow.inputs import QUEUE, Beginning, Input, Place
from holdfast.errors import HoldfastError, ScheduleMoved, ScheduleNotFound, StoreDamaged, StoreError, UsageError, shown
from holdfast.kernel.clock import new_uid
from holdfast.kernel.model import Document
from holdfast.kernel.rules import MAX_ID
from holdfast.stores.protocol import Store, find_document
from holdfast.views import ScheduleInfo, moment

KIND = "schedule"
CATCH_UP = ("one", "all", "none")
MAX_NAME = MAX_ID - 60  # the ids of its runs are longer
AT_ONCE = 100  # ticks that are made up for in one go
_PLACE = "schedule"

CatchUp = Literal["one", "all", "none"]


class Plan(Struct, frozen=True, omit_defaults=True):
    """A schedule as it is stored. ``input`` are the sealed arguments; ``next_at`` is the tick to be seen to next."""

    uid: str
    workflow: str
    module: str
    cron: str
    tz: str
    queue: str
    input: bytes
    next_at: int
    version: str | None = None
    deadline: float | None = None
    priority: int = 0
    tags: dict[str, str] = {}
    catch_up: CatchUp = "one"
    paused: bool = False
    key_id: str | None = None
    key_blob: bytes | None = None
    last_at: int | None = None
    last_run: str | None = None
    set_at: int | None = None  # when it was last made, changed, paused or resumed, and by whom
    set_by: str | None = None
    away: str | None = None  # the store in which it is, if that is another one; here it is paused
    was_paused: bool | None = None  # while it is being moved: whether it is paused in the end where it then is
    move: str | None = None  # by which move, the same of both; and
    arriving: bool = False  # whether this is the copy, and not what departed

    def check_here(self, id: str) -> None:
        """Raise `ScheduleMoved` if it is in another store."""
        if self.away is not None:
            raise ScheduleMoved(id, self.away, settled=self.was_paused is None)


def read_plan(store: Store, document: Document) -> Plan:
    """What a document says; raises `StoreDamaged`."""
    try:
        return msgspec.json.decode(document.value, type=Plan)
    except msgspec.MsgspecError as error:
        remedy = f"hf.get_schedule({document.name!r}).delete() forgets it"
        problem = f"what it says of the schedule {document.name!r} cannot be read ({error}); {remedy}"
        raise StoreDamaged(store.place, problem) from None


def read_plan_or_none(document: Document) -> Plan | None:
    """What a document says, if that can be read: one that is damaged can be deleted, too."""
    try:
        return msgspec.json.decode(document.value, type=Plan)
    except msgspec.MsgspecError:
        return None


def paused(value: bytes) -> bytes:
    """A stored schedule that begins nothing until it is resumed."""
    return msgspec.json.encode(replace(msgspec.json.decode(value, type=Plan), paused=True))


def change(
    store: Store, id: str, decide: Callable[[Plan | None], Plan | None], *, known: Document | None = None
) -> Plan | None:
    """Replace a plan by what is decided on it as it is; None leaves it. Gives the plan that then is."""
    while True:
        document = known or find_document(store, KIND, id)
        before = read_plan(store, document) if document is not None else None
        after = decide(before)
        if after is None or after == before:
            return before
        if store.put_document(KIND, id, msgspec.json.encode(after), document.version if document else None):
            return after
        known = None


# --- making runs


def beginning_of(engine: Engine, id: str, plan: Plan) -> Beginning:
    """What the runs of a schedule begin with; raises `KeyMissing` where it is encrypted and the key is not here."""
    if plan.key_id is not None and plan.key_blob is not None:
        engine.journals.learn_key(plan.uid, WrappedKey(plan.key_id, plan.key_blob), f"schedule {id!r}")
    data = engine.journals.open(f"schedule {id}", plan.uid, _PLACE, plan.input)
    given = Input(data["args"], data["kwargs"], data["definition"])
    return Beginning(plan.workflow, plan.version, plan.module, given, plan.deadline)


def begin(engine: Engine, id: str, plan: Plan, run_id: str) -> Op[tuple[str, str]]:
    """Make a run of the schedule, if there is none of this id; its id and uid."""
    beginning = yield Read(beginning_of, engine, id, plan)
    create, _ = create_of(engine, beginning, run_id, None, Place(plan.queue, plan.priority, tags=plan.tags))
    record = yield Settle(engine.committer.submit(create))
    return record.id, record.uid


def tick_id(id: str, tick: int) -> str:
    """The id of the run for a tick."""
    return f"schedule:{id}@{moment(tick).strftime('%Y-%m-%dT%H:%M:%SZ')}"


def fire(engine: Engine, told: set[str]) -> Op[int | None]:
    """Make the runs of all schedules that are due; when the next one is, if there is any.

    What is wrong with one schedule is told once, and does not keep the others.
    """
    store = engine.store
    documents = yield Read(store.documents, KIND)
    moments: list[int] = []
    for document in documents:
        try:
            plan = yield from fire_one(engine, document)
        except HoldfastError as error:
            if isinstance(error, StoreError) and not isinstance(error, StoreDamaged):
                raise
            if document.name not in told:
                told.add(document.name)
                text = "schedule {schedule}: nothing can be begun here: {error}"
                tell(WARNING, "schedule.left", text, schedule=document.name, error=str(error))
        else:
            if plan is not None and not plan.paused:
                moments.append(plan.next_at)
    return min(moments, default=None)


def fire_one(engine: Engine, document: Document) -> Op[Plan | None]:
    """Make the runs of a schedule that are due; the plan as it is then."""
    store, id = engine.store, document.name
    plan, now = read_plan(store, document), store.clock.now()
    if plan.paused or plan.next_at > now:
        return plan
    chosen, following = due_ticks(plan.cron, plan.tz, plan.next_at, now, plan.catch_up, AT_ONCE)
    run_id: str | None = None
    for tick in chosen:
        run_id, _ = yield from begin(engine, id, plan, tick_id(id, tick))
        told = "schedule {schedule}: run {run} is begun"
        tell(INFO, "schedule.fired", told, schedule=id, run=run_id)
    if not chosen:
        told = "schedule {schedule}: what was due at {at} was missed"
        tell(WARNING, "schedule.missed", told, schedule=id, at=moment(plan.next_at).isoformat())
    last = (chosen[-1], run_id) if chosen else (plan.last_at, plan.last_run)

    def onward(before: Plan | None) -> Plan | None:
        """Another worker may have seen to the same ticks, and the schedule may have been changed meanwhile."""
        if before is None or before.uid != plan.uid or before.next_at != plan.next_at:
            return None
        return replace(before, next_at=following, last_at=last[0], last_run=last[1])

    return (yield Read(change, store, id, onward, known=document))  # type: ignore[no-any-return]


# --- what users do with them


class Schedule(Operable, Sync):
    """A schedule of an open store. See `Holdfast.schedule`."""

    def __init__(self, client: Client, id: str) -> None:
        self.id = id
        self._client = client
        self._engine = client.engine
        self._store = client.store
        self._committer = client.committer

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r}>"

    def _presented(self, value: Any) -> Any:
        return self._engine.upcalls.present(value, is_async=self._client.is_async)

    def _document(self) -> Document:
        document = find_document(self._store, KIND, self.id)
        if document is None:
            raise ScheduleNotFound(self.id, self._store.place)
        return document

    def _plan(self) -> Plan:
        return read_plan(self._store, self._document())

    @operation
    def info(self) -> Op[ScheduleInfo]:
        """What it begins, and when next."""
        return schedule_info(self.id, (yield Read(self._plan)))

    @operation
    def pause(self, *, by: str | None = None) -> Op[None]:
        """Begin nothing until it is resumed. ``by`` is who did it."""
        check_texts(by=by)
        now = self._store.clock.now()

        def paused(plan: Plan) -> Plan:
            return plan if plan.paused else replace(plan, paused=True, set_at=now, set_by=by)

        yield from self._change(paused)

    @operation
    def resume(self, *, by: str | None = None) -> Op[None]:
        """Go on with the next tick from now. What came to pass while it was paused is not made up for."""
        check_texts(by=by)
        now = self._store.clock.now()

        def resumed(plan: Plan) -> Plan:
            if not plan.paused:
                return plan
            next_at = next_tick(plan.cron, plan.tz, now)
            return replace(plan, paused=False, next_at=next_at, set_at=now, set_by=by)

        yield from self._change(resumed)

    @operation
    def trigger(self, *, key: str | None = None) -> Op[Any]:
        """Make a run of it now, beside those of its ticks; the run. It waits in the queue for a worker.

        With a ``key`` one is made for it, however often this is called.
        """
        plan = yield Read(self._plan)
        plan.check_here(self.id)
        name = f"schedule:{self.id}!{new_uid(self._store.clock) if key is None else key}"
        id, uid = yield from begin(self._engine, self.id, plan, name)
        self._engine.bell.ring()
        return self._client.run(id, uid)

    @operation
    def delete(self) -> Op[bool]:
        """Delete it; False if it was gone already. Its runs stay."""
        while document := (yield Read(find_document, self._store, KIND, self.id)):
            plan = read_plan_or_none(document)
            if plan is not None and plan.was_paused is not None:
                plan.check_here(self.id)
            version = document.version
            if (yield Read(self._store.put_document, KIND, self.id, None, version)):
                return True
        return False

    def _change(self, decide: Callable[[Plan], Plan]) -> Op[None]:
        def decided(before: Plan | None) -> Plan:
            if before is None:
                raise ScheduleNotFound(self.id, self._store.place)
            before.check_here(self.id)
            return decide(before)

        yield Read(change, self._store, self.id, decided)
        yield Read(self._engine.bell.announce)


class AsyncSchedule(Schedule, Async):
    """The same for async callers: every operation is awaited."""


def schedule(
    client: Client,
    workflow: Workflow[..., Any],
    /,
    *args: Any,
    cron: str,
    id: str,
    tz: str = "UTC",
    queue: str = QUEUE,
    priority: int = 0,
    tags: Mapping[str, str] | None = None,
    deadline: float | None = None,
    catch_up: CatchUp = "one",
    paused: bool | UnsetType = UNSET,
    **kwargs: Any,
) -> Op[Schedule]:
    """Begin a workflow with these arguments at the times that ``cron`` says, in the time zone ``tz``.

    The same ``id`` again changes the schedule, so a program may declare its schedules whenever it starts; whether it is
    paused stays, unless it is said. A tick for which no worker was there within a minute was missed: ``catch_up`` says
    whether the newest of those is made up for (``one``), ``all`` of them, or ``none``.
    """
    when = Timetable(cron, tz, queue, priority, tags, deadline, catch_up, paused)
    return (yield from set_schedule(client, id, workflow, args, kwargs, when))


class Timetable(Struct, frozen=True):
    """When a schedule starts its runs, and where they stand: see `schedule`. ``by`` is who sets it."""

    cron: str
    tz: str = "UTC"
    queue: str = QUEUE
    priority: int = 0
    tags: Mapping[str, str] | None = None
    deadline: float | None = None
    catch_up: CatchUp = "one"
    paused: bool | UnsetType = UNSET
    by: str | None = None


def set_schedule(
    client: Client,
    id: str,
    workflow: Workflow[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    when: Timetable,
) -> Op[Schedule]:
    """`schedule`, with the arguments of the workflow apart, whatever they are called."""
    cron, tz, tags, paused, by = when.cron, when.tz, tags_of(when.tags), when.paused, when.by
    check_texts(by=by)
    beginning = checked(client, workflow, tuple(args), dict(kwargs), when.deadline)
    place = checked_place(when.queue, when.priority)
    _check(id, cron, tz, when.catch_up, paused)
    client.codec.refuse_secrets(msgspec.json.encode([id, tags, place.queue, by]), "schedule")
    now, uid = client.store.clock.now(), new_uid(client.store.clock)
    key = client.journals.new_key(uid)
    given = beginning.given
    data = {"args": given.args, "kwargs": given.kwargs, "definition": given.digest}
    made = Plan(
        uid=uid,
        workflow=beginning.workflow,
        module=beginning.module,
        version=beginning.version,
        deadline=beginning.deadline,
        cron=cron,
        tz=tz,
        queue=place.queue,
        priority=place.priority,
        tags=tags,
        catch_up=when.catch_up,
        paused=paused is True,
        input=client.journals.seal(uid, key is not None, _PLACE, data, f"arguments of {beginning.workflow}"),
        key_id=key.key_id if key else None,
        key_blob=key.blob if key else None,
        next_at=next_tick(cron, tz, now),
        set_at=now,
        set_by=by,
    )
    yield Read(lambda: change(client.store, id, lambda before: _declared(client.engine, id, before, made, paused)))
    yield Read(client.engine.bell.announce)
    return (AsyncSchedule if client.is_async else Schedule)(client, id)


def _declared(engine: Engine, id: str, before: Plan | None, made: Plan, paused: bool | UnsetType) -> Plan:
    """The plan after it was declared: where it stands in time stays, while its ticks do."""
    if before is None:
        return made
    before.check_here(id)
    keeps_time = (before.cron, before.tz) == (made.cron, made.tz)
    resumed = before.paused and paused is False
    made = replace(
        made,
        paused=before.paused if isinstance(paused, UnsetType) else paused,
        next_at=before.next_at if keeps_time and not resumed else made.next_at,
        last_at=before.last_at,
        last_run=before.last_run,
    )
    if (before.key_id is None) == (made.key_id is None) and _same_input(engine, id, before, made):
        made = replace(made, uid=before.uid, input=before.input, key_id=before.key_id, key_blob=before.key_blob)
    is_same = made == replace(before, set_at=made.set_at, set_by=made.set_by)
    return before if is_same else made


def _same_input(engine: Engine, id: str, before: Plan, made: Plan) -> bool:
    return beginning_of(engine, id, before).given == beginning_of(engine, id, made).given


def _check(id: Any, cron: Any, tz: Any, catch_up: Any, paused: Any) -> None:
    if not isinstance(id, str) or not 0 < len(id) <= MAX_NAME:
        raise UsageError(f"{shown('id', id)}: a schedule has an id, which is text of 1 to {MAX_NAME} characters")
    if catch_up not in CATCH_UP:
        raise UsageError(f"{shown('catch_up', catch_up)}: it is one of {', '.join(CATCH_UP)}")
    if not isinstance(paused, UnsetType):
        check_bounds({"paused": paused})
    check_cron(cron, tz)


def schedules(client: Client) -> Op[tuple[ScheduleInfo, ...]]:
    """All schedules, by id."""
    found = yield Read(client.store.documents, KIND)
    return tuple(schedule_info(one.name, read_plan(client.store, one)) for one in found)


def get_schedule(client: Client, id: str) -> Op[Schedule]:
    """The schedule of this id; raises `ScheduleNotFound` if there is none."""
    handle = (AsyncSchedule if client.is_async else Schedule)(client, id)
    yield Read(handle._document)
    return handle


def schedule_info(id: str, plan: Plan) -> ScheduleInfo:
    """A schedule as users see it."""
    return ScheduleInfo(
        id=id,
        workflow=plan.workflow,
        cron=plan.cron,
        tz=plan.tz,
        queue=plan.queue,
        catch_up=plan.catch_up,
        paused=plan.paused,
        next_at=moment(plan.next_at),
        last_at=moment(plan.last_at) if plan.last_at is not None else None,
        last_run=plan.last_run,
        set_at=moment(plan.set_at) if plan.set_at is not None else None,
        set_by=plan.set_by,
        away=plan.away,
    )


def rotate_keys(engine: Engine) -> int:
    """Wrap the data keys of all schedules with the current master key; how many were."""
    keyring, store = engine.journals.keyring, engine.store
    assert keyring is not None
    rotated = 0
    for document in store.documents(KIND):
        plan = read_plan(store, document)
        if plan.key_id in (None, keyring.current) or plan.key_blob is None:
            continue
        new = keyring.rewrap(
            plan.uid, WrappedKey(plan.key_id, plan.key_blob), store.clock, of=f"schedule {document.name}"
        )

        def rewrapped(before: Plan | None, plan: Plan = plan, new: WrappedKey = new) -> Plan | None:
            same = before is not None and before.key_blob == plan.key_blob
            return replace(before, key_id=new.key_id, key_blob=new.blob) if before is not None and same else None

        after = change(store, document.name, rewrapped, known=document)
        rotated += after is not None and after.key_blob == new.blob
    return rotated
