"""Tasks that an async workflow creates: the keys of their calls, and code that creates other tasks when resumed."""

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import anyio
import msgspec
import pytest

import holdfast
from holdfast import Holdfast, Run, Status, UsageError, ask, receive, step, workflow

charged: list[str] = []
extra: Callable[[], Any] | None = None  # what a library does before the workflow's own tasks


class Order(msgspec.Struct):
    """What is charged."""

    id: str
    cents: int = 100


@pytest.fixture(autouse=True)
def _as_at_first() -> None:
    global extra
    charged.clear()
    extra = None


@step
async def charge(order: Order) -> Order:
    charged.append(order.id)
    return order


@step
def charge_at_once(order: Order) -> Order:
    charged.append(order.id)
    return order


@step
async def breaks() -> None:
    raise ValueError("broken")


async def serve(name: str) -> Order:
    order = await charge(Order(name))
    await ask(name, str)
    return order


async def nothing() -> None:
    """What a tracer may do in a task of its own."""


async def fan(how: str, names: list[str], part: Callable[[str], Any]) -> list[Any]:
    if extra is not None:
        await extra()
    parts = [functools.partial(part, name) for name in names]
    found: list[Any] = []
    match how:
        case "gather":
            found = await asyncio.gather(*(part() for part in parts))
        case "task group":
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(part()) for part in parts]
            found = [task.result() for task in tasks]
        case "create_task":
            found = [await task for task in [asyncio.create_task(part()) for part in parts]]
        case "anyio":

            async def keep(part: Callable[[], Any]) -> None:
                found.append(await part())

            async with anyio.create_task_group() as tasks:
                for part in parts:
                    tasks.start_soon(keep, part)
        case "wait_for":
            found = await asyncio.gather(*(asyncio.wait_for(part(), 3600) for part in parts))
        case _:
            found = await holdfast.gather(*(part() for part in parts))
    return sorted(found, key=lambda order: str(getattr(order, "id", "")))


@workflow
async def serves(how: str) -> list[Order]:
    return await fan(how, ["a", "b"], serve)


HOWS = ["gather", "task group", "create_task", "anyio", "wait_for", "ours"]


def answered(run: Run) -> Run:
    for question in run.questions():
        run.answer("yes", question=question)
    return run


def created(*names: str | None) -> Callable[[], Any]:
    """Creates tasks that do nothing, with these names or without."""

    async def create() -> None:
        await asyncio.gather(*(asyncio.create_task(nothing(), name=name) for name in names))

    return create


# --- keys


@pytest.mark.parametrize("how", HOWS)
def test_one_more_task_of_another_name_changes_no_key(hf: Holdfast, how: str) -> None:
    global extra
    run = hf.start(serves, how)
    assert run.status is Status.WAITING
    extra = created(None, "a tracer", "Task-7")
    assert answered(run).result(timeout=20) == [Order("a"), Order("b")]
    assert charged == ["a", "b"]


def wrapped(function: Any) -> Any:
    @functools.wraps(function)
    async def wrapper(*args: Any) -> Any:
        return await function(*args)

    return wrapper


def in_a_thread(name: str) -> Order:
    return charge_at_once(Order(name))


@workflow
async def names_tasks() -> None:
    here = asyncio.create_task(serve("a"), name="mail/to #1")
    await asyncio.gather(
        here,
        serve("b"),
        functools.partial(serve, "c")(),
        wrapped(serve)("d"),
        asyncio.create_task(serve("e")),
        asyncio.to_thread(functools.partial(wrapped_in_a_thread, "f")),
    )


wrapped_in_a_thread = functools.wraps(in_a_thread)(lambda name: in_a_thread(name))


def test_a_task_is_called_by_its_name_or_by_what_it_executes(hf: Holdfast) -> None:
    run = hf.start(names_tasks)
    keys = {key: found.result["f"]["id"] for key, found in run.held.refold(run.held.read_record()).steps.items()}
    assert keys == {
        "mail_to _1~1/charge#1": "a",
        "serve~2/charge#1": "b",  # `gather` creates its tasks after create_task has created e's
        "serve~3/charge#1": "c",
        "serve~4/charge#1": "d",
        "serve~1/charge#1": "e",
        "in_a_thread~1/charge_at_once#1": "f",
    }
    answered(run).result(timeout=20)
    assert sorted(charged) == list("abcdef")


# --- other tasks


def inserts_before(part: Any) -> Callable[[], Any]:
    async def insert() -> None:
        await asyncio.gather(part("nobody"), part("nobody else"))

    return insert


def blocked(run: Run) -> str:
    """The reason why a run is blocked."""
    assert run.resume() is Status.BLOCKED
    return str(run.info().reason)


async def idle_first(name: str) -> Any:
    if name.startswith("nobody"):
        return None
    return await serve(name)


@workflow
async def serves_with_others(how: str) -> list[Order]:
    return await fan(how, ["a", "b"], idle_first)


@pytest.mark.parametrize("answers", [False, True], ids=["open", "answered"])
def test_one_more_task_of_the_same_name_blocks_the_run(hf: Holdfast, answers: bool) -> None:
    global extra
    run = hf.start(serves_with_others, "gather")
    if answers:
        answered(run)
    extra = inserts_before(idle_first)
    reason = blocked(run)
    for key in ("1/charge#1", "2/charge#1", "1/ask#1", "2/ask#1", "3/charge#1", "4/charge#1"):
        assert f"'idle_first~{key}'" in reason
    assert reason.index("~2/ask#1") < reason.index("attempted instead: 'idle_first~3/charge#1'")
    assert f"{__file__}:" in reason
    assert charged == ["a", "b"]
    extra = None
    run.unblock()
    run.resume()
    assert answered(run).result(timeout=20) == [Order("a"), Order("b")]
    assert charged == ["a", "b"]


def in_a_task(call: Callable[[str], Any]) -> Callable[[str], Any]:
    async def calls(name: str) -> Any:
        if name.startswith("nobody"):
            return None
        holdfast.note(name)
        found = await call(name)
        await ask(name, str)
        return found

    return calls


async def at_once(name: str) -> Order:
    return charge_at_once(Order(name))


async def in_thread(name: str) -> Order:
    return await asyncio.to_thread(charge_at_once, Order(name))


async def in_thread_of_anyio(name: str) -> Order:
    return await anyio.to_thread.run_sync(charge_at_once, Order(name))


@workflow
async def child_charges(name: str) -> Order:
    return await charge(Order(name))


async def in_a_child(name: str) -> Order:
    return await child_charges(name)


async def in_a_race(name: str) -> Order:
    found: Order = await holdfast.first(charge(Order(name)), holdfast.sleep(3600))
    return found


async def in_time(name: str) -> Order:
    found: Order = await holdfast.timeout(3600, charge(Order(name)))
    return found


async def shielded(name: str) -> Order:
    return await asyncio.shield(asyncio.create_task(charge(Order(name))))


CALLS: list[Callable[[str], Any]] = [at_once, in_thread, in_thread_of_anyio, in_a_child, in_a_race, in_time, shielded]
_calls: dict[str, Callable[[str], Any]] = {call.__name__: in_a_task(call) for call in CALLS}


@workflow
async def calls_in_tasks(call: str, how: str) -> list[Order]:
    return await fan(how, ["a", "b"], _calls[call])


@pytest.mark.parametrize("how", ["gather", "anyio", "ours"])
@pytest.mark.parametrize("call", list(_calls))
def test_whatever_is_called_in_a_task_is_not_executed_again(hf: Holdfast, call: str, how: str) -> None:
    global extra
    run = hf.start(calls_in_tasks, call, how)
    assert run.status is Status.WAITING
    before = run.info().seq

    async def insert() -> None:
        global extra
        extra = None
        await fan(how, ["nobody", "nobody else"], _calls[call])

    extra = insert
    reason = blocked(run)
    assert "the code no longer does what was recorded" in reason
    assert sorted(charged) == ["a", "b"]
    assert run.info().seq == before  # not even their notes were written, under other keys
    extra = None
    run.unblock()
    run.resume()
    assert answered(run).result(timeout=20) == [Order("a"), Order("b")]
    assert sorted(charged) == ["a", "b"]


# --- branches of a sync workflow


@workflow
def threads(names: list[str]) -> list[Any]:
    more = [lambda: None] * len(inserted)
    return holdfast.gather(*more, *(functools.partial(one_thread, name) for name in names))  # type: ignore[no-any-return]


inserted: list[str] = []


def one_thread(name: str) -> Order:
    order = charge_at_once(Order(name))
    ask(name, str)
    return order


def test_one_more_branch_in_threads_blocks_the_run(hf: Holdfast) -> None:
    run = hf.start(threads, ["a", "b", "c"])
    inserted.append("one more")
    try:
        reason = blocked(run)
    finally:
        inserted.clear()
    assert "the code no longer does what was recorded" in reason  # by the arguments, of whichever comes first
    assert sorted(charged) == ["a", "b", "c"]
    inserted.extend(["one", "two", "three"])  # so that no key is that of another branch
    run.unblock()
    try:
        reason = blocked(run)
    finally:
        inserted.clear()
    assert "'gather#1.1/charge_at_once#1'" in reason
    assert "attempted instead: " in reason
    assert sorted(charged) == ["a", "b", "c"]
    run.unblock()
    run.resume()
    assert answered(run).result(timeout=20) == [Order("a"), Order("b"), Order("c")]


# --- a person continues it


@workflow
async def in_order() -> list[str]:
    found = await asyncio.gather(idle_first("nobody"), idle_first("a")) if inserted else [await idle_first("a")]
    return [order.id for order in found if order is not None] + [(await charge(Order("last"))).id]


def test_a_person_may_accept_it(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    run = hf.start(in_order)
    inserted.append("a task")
    try:
        assert "'charge#1'" in blocked(run)
        run.unblock(accept=True, by="ops")
        assert run.resume() is Status.WAITING
        assert charged == ["a", "a"]  # as the person wanted
        other = opened().get(run.id)  # the journal knows that it was accepted
        assert other.resume() is Status.WAITING
        assert answered(other).result(timeout=20) == ["a", "last"]
        assert charged == ["a", "a", "last"]
    finally:
        inserted.clear()
    [entry] = [one for one in run.entries() if one.kind == "unblocked"]
    assert (entry.contents["by"], entry.contents["accepted"]) == ("ops", True)


packed: list[str] = []
items: list[str] = []


@step
def pack(item: str) -> None:
    packed.append(item)


@workflow
def packs() -> str:
    for item in items:
        pack(item)
    ask("Close it?", str)
    pack("paper")
    ask("Send it?", str)
    return "sent"


def test_what_was_accepted_is_not_blocked_at_the_next_execution(hf: Holdfast) -> None:
    packed.clear()
    items[:] = ["cup", "fork", "spoon"]
    run = hf.start(packs)
    items.remove("fork")
    assert "'pack#2'" in blocked(run)
    run.unblock(accept=True)
    run.resume()
    for _ in range(2):
        assert run.status is Status.WAITING
        run.answer("yes")
        run.resume()
    assert run.result(timeout=20) == "sent"
    assert packed == ["cup", "fork", "spoon", "spoon", "paper"]


files: list[str] = []
deleted: list[str] = []


@workflow
def deletes() -> None:
    for file in files:
        if ask(f"Delete {file}?", bool):
            deleted.append(file)
    ask("Done?", bool)


@workflow
def reads_mail() -> list[str]:
    return [receive(file) for file in files] + [ask("Done?", str)]


@pytest.mark.parametrize("answers", [0, 1])
def test_an_answer_meets_no_other_question(hf: Holdfast, answers: int) -> None:
    deleted.clear()
    files[:] = ["draft", "backup"]
    run = hf.start(deletes)
    for _ in range(answers):
        run.answer(True)
        run.resume()
    deleted.clear()
    files.insert(0, "everything")
    assert "('Delete draft?')" in (reason := blocked(run))
    assert "('Delete everything?')" in reason
    assert deleted == []
    files.remove("everything")
    run.unblock()
    assert run.resume() is Status.WAITING


def test_a_message_meets_no_other_topic(hf: Holdfast) -> None:
    files[:] = ["east", "west"]
    run = hf.start(reads_mail)
    run.send("from the east", topic="east")
    run.send("from the west", topic="west")
    run.resume()
    files.reverse()
    assert "('east')" in blocked(run)


def test_only_code_that_differs_can_be_accepted(hf: Holdfast) -> None:
    run = hf.start(serves, "gather")
    with pytest.raises(UsageError, match="is waiting, not blocked"):
        run.unblock(accept=True)

    @step(at_most_once=True)
    def acts() -> None:
        raise TimeoutError

    @workflow
    def uncertain() -> None:
        acts()

    run = hf.start(uncertain)
    assert run.status is Status.BLOCKED
    with pytest.raises(UsageError, match="nothing to accept"):
        run.unblock(accept=True)


# --- what is no other code


hows: list[str] = []


@workflow
async def waits_in_turn() -> Order:
    return await asyncio.wait_for(serve("a"), 3600) if hows[-1] == "task" else await serve("a")


@pytest.mark.parametrize("order", [["task", "none"], ["none", "task"]])
def test_wait_for_has_the_same_keys_with_a_task_and_without(hf: Holdfast, order: list[str]) -> None:
    """Python 3.11 creates a task for it, and later ones do not."""
    hows[:] = order[:1]
    run = hf.start(waits_in_turn)
    hows[:] = order[1:]
    assert answered(run).result(timeout=20) == Order("a")
    assert charged == ["a"]


@workflow
async def cancels() -> str:
    async def goes_on() -> None:
        await charge(Order("before"))
        await asyncio.to_thread(charge_late)

    async with asyncio.timeout(3600):
        task = asyncio.create_task(goes_on())
        await charge(Order("beside"))
        while "before" not in charged:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await ask("Go?", str)
        return (await charge(Order("after"))).id


def charge_late() -> None:
    charge_at_once(Order("late"))


def test_what_a_cancelled_task_did_is_not_missed(hf: Holdfast) -> None:
    run = hf.start(cancels)
    assert answered(run).result(timeout=20) == "after"
    assert sorted(set(charged)) == sorted(charged)


def test_a_branch_that_never_comes_back_does_not_hold_the_run_for_ever(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    global extra
    run = hf.start(serves_with_others, "gather")
    monkeypatch.setattr("holdfast.engine.workflow.replay_gate.LEAST", 0.0)
    monkeypatch.setattr("holdfast.engine.workflow.replay_gate.MOST", 0.0)

    async def beats() -> None:
        while True:
            await asyncio.sleep(0.001)

    async def insert() -> None:
        beating.append(asyncio.create_task(beats()))
        await idle_first("nobody")
        await asyncio.gather(idle_first("nobody"), idle_first("nobody else"))

    beating: list[Any] = []
    extra = insert
    assert "attempted instead" in blocked(run)
    assert charged == ["a", "b"]


@workflow
async def retries() -> list[str]:
    async def fails(name: str) -> str:
        if name == "nobody":
            return name
        if name == "broken" and not inserted:
            await breaks()
        await charge(Order(name))
        return name

    names = ["nobody", "nobody", "broken", "a"] if inserted == ["others"] else ["broken", "a"]
    return [one for one in await asyncio.gather(*map(fails, names), return_exceptions=True) if _raised(one)]  # type: ignore[arg-type,misc]


def _raised(one: Any) -> bool:
    if isinstance(one, Exception):
        raise one
    return True


@pytest.mark.parametrize("fix", ["others", "the bug"])
def test_a_retry_with_other_tasks_executes_nothing_again(hf: Holdfast, fix: str) -> None:
    run = hf.start(retries)
    assert run.status is Status.FAILED
    assert charged == ["a"]
    inserted.append(fix)
    try:
        run.retry()
        status = run.resume()
    finally:
        inserted.clear()
    assert charged.count("a") == 1
    assert status is (Status.BLOCKED if fix == "others" else Status.COMPLETED)


# --- journals of before


def test_keys_of_numbered_tasks_block_the_run_with_the_reason(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.engine.workflow.scope import Scope

    def numbered(self: Scope) -> None:
        unnamed, self.unnamed = self.unnamed, None
        for scope, _ in unnamed or ():
            count = self.counters["~"] = self.counters.get("~", 0) + 1
            scope.path = f"{self.path}{count}/"

    with monkeypatch.context() as before:
        before.setattr(Scope, "name_tasks", numbered)
        run = hf.start(serves, "gather")
    assert [one.key for one in run.steps()] == ["1/charge#1", "2/charge#1"]
    reason = blocked(run)
    assert "'1/charge#1', '2/charge#1'" in reason
    assert "keys of an earlier Holdfast, which numbered tasks" in reason
    assert charged == ["a", "b"]


# --- other processes

SCRIPT = """
    import asyncio, sys
    import holdfast
    from dataclasses import dataclass
    from holdfast import ask, step, workflow

    @dataclass
    class Order:
        id: str

    @step
    async def charge(order: Order) -> Order:
        print("charged", order.id)
        return order

    async def serve(id):
        order = await charge(Order(id))
        await asyncio.wait_for(check(order), 3600)
        return order.id

    async def check(order):
        await charge(Order(order.id + " checked"))
        await ask(order.id, str)

    @workflow
    async def serves() -> list[str]:
        if "tracer" in sys.argv:
            await asyncio.gather(asyncio.sleep(0))
        found = await asyncio.gather(serve("a"), asyncio.wait_for(serve("b"), 3600))
        async with asyncio.TaskGroup() as group:
            last = group.create_task(serve("c"), name="the last")
        return [*found, last.result()]

    with holdfast.open(sys.argv[1]) as hf:
        run = hf.start(serves, id="r")
        for question in run.questions():
            run.answer("yes", question=question)
        print(run.resume())
        print(run.info().reason) if run.info().reason else None
"""


ALL_CHARGED = [f"charged {name}{more}" for name in "abc" for more in ("", " checked")]


def test_another_process_with_a_tracer_executes_nothing_again(shared_url: str, python: Callable[..., str]) -> None:
    said = [python(SCRIPT, shared_url, *more) for more in ((), ("tracer",), ())]
    lines = [line for one in said for line in one.splitlines()]
    assert sorted(line for line in lines if line.startswith("charged")) == ALL_CHARGED
    assert lines[-1] == "completed"
