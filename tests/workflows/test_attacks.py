"""Features in combinations and moments that break them, were they only right one by one."""

import asyncio
import errno
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, Keyring, ask, gather, patched, receive, step, workflow
from holdfast import map as each
from holdfast.engine.workflow.execution import Execution
from holdfast.errors import RunBlocked, StoreFull, UndoFailed, UndoRefused
from holdfast.stores.files.disk import Disk, File
from holdfast.stores.files.store import FilesStore

SECRET = "the-word-that-must-not-be-found"

events: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_happened() -> None:
    events.clear()


@pytest.fixture
def threads_take_turns_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@step
def act(what: Any) -> Any:
    events.append(what)
    return what


@step(target="world")
def touch(what: str) -> str:
    events.append(what)
    return what


@touch.undo
def untouch(result: str, what: str) -> None:
    events.append(f"undo {what}")


# --- branches in threads


@workflow
def ask_many(count: int) -> int:
    return sum(gather(*(lambda n=n: ask(f"number {n}", int) for n in range(count))))  # type: ignore[misc]


@pytest.mark.usefixtures("threads_take_turns_often")
def test_branches_in_threads_ask_at_the_same_time(hf: Holdfast) -> None:
    run = hf.start(ask_many, 200)
    assert len(run.questions()) == 200
    for question in run.questions():
        run.answer(1, question=question)
    assert run.result(timeout=10) == 200


@workflow
def patch_many(count: int) -> list[bool]:
    return each(_patched, range(count))  # type: ignore[no-any-return]


def _patched(n: int) -> bool:
    taken = patched(f"change {n}")
    act(n)
    return taken


@pytest.mark.usefixtures("threads_take_turns_often")
def test_branches_in_threads_ask_for_patches_while_others_write(hf: Holdfast) -> None:
    assert hf.start(patch_many, 200).result(timeout=10) == [True] * 200


at_work: Counter[int] = Counter()
at_once: Counter[int] = Counter()
may_end = threading.Event()


@step
def slow(n: int) -> int:
    at_work[n] += 1
    at_once[n] = max(at_once[n], at_work[n])
    events.append(f"begun {n}")
    may_end.wait(10)
    at_work[n] -= 1
    return n


@workflow
def slow_branches() -> int:
    return sum(gather(lambda: slow(1), lambda: slow(2)))


def test_a_run_whose_caller_is_interrupted_is_let_go_of_when_its_branches_have_ended(hf: Holdfast) -> None:
    may_end.clear()
    at_once.clear()

    def interrupt() -> None:
        while len(events) < 2:
            pass
        os.kill(os.getpid(), signal.SIGINT)
        threading.Timer(0.1, may_end.set).start()

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        hf.start(slow_branches, id="run")
    assert hf.start(slow_branches, id="run").result(timeout=10) == 3
    assert at_once == {1: 1, 2: 1}
    assert sorted(events) == ["begun 1", "begun 2"]  # what they gave was kept


noticed = threading.Event()
ended: list[bool] = []


@step
def interrupted(n: int) -> int:
    if n == 1:
        # The signal comes to this thread, so the main thread is not woken from its wait. The same happens when it comes
        # right before the main thread begins to wait.
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    ended.append(noticed.wait(20))
    return n


@workflow
def interrupted_branches(how: str) -> Any:
    if how == "first":
        return holdfast.first(lambda: interrupted(1), lambda: interrupted(2))
    return gather(lambda: interrupted(1), lambda: interrupted(2))


@pytest.mark.parametrize("how", ["gather", "first"])
def test_an_interrupt_that_wakes_nobody_is_noticed_before_a_branch_ends(
    hf: Holdfast, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    noticed.clear()
    ended.clear()
    release = Execution.release

    def released(execution: Execution) -> None:
        noticed.set()
        release(execution)

    monkeypatch.setattr(Execution, "release", released)
    with pytest.raises(KeyboardInterrupt):
        hf.start(interrupted_branches, how, id="run")
    assert all(ended)


# --- errors that are none


@step
def leave() -> None:
    raise GeneratorExit


@workflow
def leaving() -> None:
    leave()


@workflow
async def leaving_async() -> None:
    leave()


@pytest.mark.parametrize("flow", [leaving, leaving_async])
def test_an_exit_that_is_meant_for_generators_fails_the_run(hf: Holdfast, flow: Any) -> None:
    run = hf.start(flow)
    with pytest.raises(RuntimeError, match="GeneratorExit"):
        run.result(timeout=10)
    assert run.info().holder is None


# --- calls that are broken off, and writes that fail


@workflow
async def ends_at_once() -> int:
    return 1


def test_a_run_whose_maker_was_cancelled_is_not_held_for_ever(store_url: str) -> None:
    async def scenario() -> None:
        async with holdfast.open(store_url) as hf:
            await asyncio.gather(*(hf.start(ends_at_once, id=f"before {n}") for n in range(3)))
            makers = [asyncio.create_task(hf.start(ends_at_once, id=f"run {n}")) for n in range(10)]
            for _ in range(2):
                await asyncio.sleep(0)
            for maker in makers:
                maker.cancel()
            await asyncio.gather(*makers, return_exceptions=True)
            assert {one.status for one in (await hf.runs()).items} <= {"ready", "completed"}
            for n in range(10):
                assert await (await hf.start(ends_at_once, id=f"run {n}")).result(timeout=10) == 1

    asyncio.run(scenario())


@workflow
def ends_with_a_part() -> int:
    return part_that_ends()


@workflow
def part_that_ends() -> int:
    act("done")
    return 1


@pytest.mark.parametrize("flow", [ends_with_a_part, ask_many])
def test_whatever_write_fails_the_run_can_go_on_in_the_same_process(memdir: Path, flow: Any) -> None:
    args = (2,) if flow is ask_many else ()
    for at in range(200):
        folder = memdir / str(at)
        disk = FullDisk()
        with holdfast.open("", store=FilesStore(str(folder), disk=disk)) as hf:
            disk.left = at
            with suppress(StoreFull):
                hf.start(flow, *args, id="run")
            was_full, disk.left = disk.left < 0, None
            run = hf.start(flow, *args, id="run")
            for question in run.questions():
                run.answer(1, question=question)
            assert run.result(timeout=10) == (2 if args else 1)
            for one in hf.runs().items:
                assert one.status == "completed"
                hf.audit(one.id)
        if not was_full:
            return
    raise AssertionError("the disk was always full")


class FullDisk(Disk):
    """A disk that takes so many more writes."""

    left: int | None = None

    def write(self, file: File, data: bytes) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.path)
        super().write(file, data)


# --- children that are damaged, deleted or erased


@workflow
def fragment(what: str) -> int:
    touch(what)
    return ask("part?", int)  # type: ignore[no-any-return]


@workflow
def assembly(what: str) -> Any:
    try:
        number = fragment(what)
    except Exception as error:
        events.append(error)
        raise
    ask("whole?", bool)
    return number


def _with_part_done(hf: Holdfast) -> Any:
    run = hf.start(assembly, "a", id="whole")
    hf.get("whole/fragment#1").answer(1)
    run.resume()
    assert [question.prompt for question in run.questions()] == ["whole?"]
    return run


def test_a_damaged_child_is_no_error_of_its_parent(hf: Holdfast, damage: Callable[[Any, int], None]) -> None:
    run = hf.start(assembly, "a", id="whole")
    damage(hf.get("whole/fragment#1"), 1)
    run.resume()
    assert run.status == "waiting"
    assert events == ["a"]


def test_an_ended_child_that_is_damaged_parks_its_parent(hf: Holdfast, damage: Callable[[Any, int], None]) -> None:
    run = hf.start(assembly, "a", id="whole")
    child = hf.get("whole/fragment#1")
    child.answer(1)
    child.resume()
    damage(child, 1)
    run.resume()
    assert run.status == "blocked"
    assert "whole/fragment#1" in (run.info().reason or "")
    assert events == ["a"]


def test_a_childs_result_that_was_erased_is_not_made_up(hf: Holdfast) -> None:
    run = hf.start(assembly, "a", id="whole")
    child = hf.get("whole/fragment#1")
    child.answer(1)
    child.resume()
    child.redact(child.info().seq)
    run.resume()
    with pytest.raises(RunBlocked, match="erased"):
        run.result(timeout=10)


def test_a_child_that_was_deleted_is_not_called_undone(hf: Holdfast) -> None:
    run = _with_part_done(hf)
    hf.get("whole/fragment#1").delete()
    with pytest.raises(UndoFailed, match="deleted") as caught:
        run.rollback(to=0)
    report = caught.value.report
    assert not report.undone
    assert [effect.key for effect in report.failed] == ["fragment#1"]
    assert "deleted" in (report.failed[0].error or "")
    assert events == ["a"]


def test_another_run_under_a_deleted_childs_id_is_not_touched(hf: Holdfast) -> None:
    run = _with_part_done(hf)
    hf.get("whole/fragment#1").delete()
    stranger = hf.start(fragment, "stranger", id="whole/fragment#1")
    run.rollback(to=0, force=True)
    assert stranger.status == "waiting"
    assert "undo stranger" not in events


# --- erasing


@workflow
def two_topics() -> Any:
    ask("go on?", bool)
    return receive(timeout=0.001, default="nothing came")


def test_an_erased_message_does_not_come_as_another_one(hf: Holdfast) -> None:
    run = hf.start(two_topics)
    run.send(SECRET, topic="private")
    run.resume()
    [received] = [entry.seq for entry in run.history().items if entry.kind == "received"]
    run.redact(received)
    run.answer(True)
    assert run.result(timeout=10) == "nothing came"


@workflow
def careful(what: str) -> Any:
    try:
        found = act(what)
    except Exception as error:
        events.append(error)
        return "something else"
    ask("go on?", bool)
    return found


def test_what_was_erased_is_no_error_of_the_step(hf: Holdfast) -> None:
    run = hf.start(careful, "a")
    run.redact(1)
    run.answer(True)
    with pytest.raises(RunBlocked, match=r"'act#1' was erased on request.*results="):
        run.result(timeout=10)
    assert events == ["a"]
    fork = run.fork(results={"act#1": "b"})
    assert fork.resume() == "waiting"
    fork.answer(True)
    assert fork.result(timeout=10) == "b"
    assert events == ["a"]


def test_what_a_fork_was_given_can_be_erased(hf: Holdfast, raw_bytes: Callable[..., bytes]) -> None:
    run = hf.start(careful, "a")
    fork = run.fork(results={"act#1": SECRET})
    fork.redact(fork.info().seq)
    other = run.fork(input={"what": SECRET})
    other.redact(other.info().seq)
    fork.audit()
    other.audit()
    fork.resume()
    other.resume()
    assert "'act#1' was erased" in (fork.info().reason or "")
    assert "input was erased" in (other.info().reason or "")
    assert events == ["a"]
    hf.close()
    assert SECRET.encode() not in raw_bytes()


@step
def fail(what: str) -> None:
    raise ValueError(what)


@workflow(on_failure="rollback")
def taken_back(what: str) -> None:
    touch("world")
    fail(what)


def test_what_a_rollback_was_made_for_can_be_erased(hf: Holdfast, raw_bytes: Callable[..., bytes]) -> None:
    run = hf.start(taken_back, SECRET)
    kinds = {entry.kind: entry.seq for entry in run.history().items}
    run.redact(*(kinds[kind] for kind in ("created", "raised", "rollback_begun", "failed")))
    assert run.status == "failed"
    run.audit()
    hf.close()
    assert SECRET.encode() not in raw_bytes()


def test_a_reason_tells_nothing_of_an_encrypted_run(
    opened: Callable[..., Holdfast], raw_bytes: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise UndoRefused(f"undo {name} cannot be found here")

    hf = opened(keys=Keyring({"one": b"k" * 32}, current="one"))
    monkeypatch.setattr("holdfast.engine.control.rollback.find", missing)
    run = hf.start(taken_back, SECRET)
    assert "cannot be rolled back" in (run.info().reason or "")
    hf.close()
    assert SECRET.encode() not in raw_bytes()
