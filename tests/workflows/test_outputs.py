"""What a run says while it goes on: notes and a durable output stream, read in pages or followed live."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, Status, UsageError, ask, emit, note, step, workflow
from holdfast.errors import NotStorable


@step
def of_step(n: int) -> int:
    return n


class Crash(BaseException):
    """The process dies here."""


@workflow
def talks(count: int, pauses: bool = False) -> str:
    for n in range(count):
        note(f"at {of_step(n)}")
        emit({"n": n})
        emit(n, stream="numbers")
        if pauses:
            ask("Go?")
    return "said"


@workflow
async def talks_async(count: int, pauses: bool = False) -> str:
    for n in range(count):
        note(f"at {of_step(n)}")
        emit({"n": n})
        emit(n, stream="numbers")
        if pauses:
            await ask("Go?")
    return "said"


talkers = pytest.mark.parametrize("talker", [talks, talks_async], ids=["sync", "async"])


@talkers
def test_what_was_said_is_read_by_stream_and_in_pages(hf: Holdfast, talker: Any) -> None:
    run = hf.start(talker, 150)
    found: list[Any] = []
    after = None
    while True:
        page = run.outputs("numbers", limit=40, after=after)
        found += [output.value for output in page]
        if (after := page.next) is None:
            break
    assert found == list(range(150))
    everything = run.outputs(limit=1000)
    assert {output.stream for output in everything} == {"notes", "output", "numbers"}
    assert len(everything) == 450
    assert everything.next is None
    assert [output.seq for output in everything] == sorted(output.seq for output in everything)
    assert list(run.follow("notes")) == [f"at {n}" for n in range(150)]
    assert list(run.follow()) == [{"n": n} for n in range(150)]
    assert list(run.follow("nothing")) == []


@talkers
def test_following_goes_on_where_it_was(hf: Holdfast, talker: Any) -> None:
    run = hf.start(talker, 5)
    seqs = [output.seq for output in run.outputs("numbers")]
    assert list(run.follow("numbers", after=seqs[2])) == [3, 4]
    assert list(run.follow("numbers", after=seqs[-1])) == []


@talkers
def test_followed_live_from_another_thread(hf: Holdfast, opened: Callable[..., Holdfast], talker: Any) -> None:
    run = hf.start(talker, 3, True)
    heard: list[int] = []
    news = threading.Condition()
    follower = opened().get(run.id)

    def follow() -> None:
        for value in follower.follow("numbers"):
            with news:
                heard.append(value)
                news.notify_all()

    thread = threading.Thread(target=follow)
    thread.start()
    for n in range(3):
        with news:
            assert news.wait_for(lambda n=n: heard == list(range(n + 1)), 20)  # type: ignore[misc]
        assert run.status is Status.WAITING  # it was heard before the run has ended
        run.answer(None)
        run.resume()
    thread.join(20)
    assert not thread.is_alive()
    assert heard == [0, 1, 2]


@talkers
def test_followed_live_in_async_code(store_url: str, talker: Any) -> None:
    async def main() -> None:
        async with holdfast.open(store_url) as hf:
            run = await hf.start(talker, 3, True)
            heard: list[int] = []

            async def follow() -> None:
                async for value in run.follow("numbers"):
                    heard.append(value)

            task = asyncio.create_task(follow())
            for n in range(3):
                async with asyncio.timeout(20):
                    while heard != list(range(n + 1)):
                        await asyncio.sleep(0.005)
                await run.answer(None)
                await run.resume()
            async with asyncio.timeout(20):
                await task
            assert heard == [0, 1, 2]
            assert [output.value for output in await run.outputs("numbers")] == [0, 1, 2]

    asyncio.run(main())


def test_followed_live_from_another_process(shared_url: str, tmp_path: Path) -> None:
    script = tmp_path / "follows.py"
    script.write_text(
        "import sys, holdfast\n"
        "with holdfast.open(sys.argv[1]) as hf:\n"
        "    for value in hf.get('talks').follow('numbers'):\n"
        "        print(value, flush=True)\n"
    )
    with holdfast.open(shared_url) as hf:
        run = hf.start(talks, 3, True, id="talks")
        with subprocess.Popen([sys.executable, str(script), shared_url], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for n in range(3):
                assert process.stdout.readline() == f"{n}\n"
                run.answer(None)
                run.resume()
            assert process.stdout.read() == ""
            assert process.wait(20) == 0


@talkers
@pytest.mark.parametrize("at", range(1, 12))
def test_nothing_is_said_twice_after_a_crash(
    opened: Callable[..., Holdfast], kill: Callable[[Holdfast], None], talker: Any, at: int
) -> None:
    doomed = opened()
    apply, calls = doomed.client.store.apply, []

    def dies(batch: Any) -> Any:
        calls.append(1)
        if len(calls) > at:
            raise Crash
        return apply(batch)

    doomed.client.store.apply = dies  # type: ignore[method-assign]
    with (
        suppress(Crash) if doomed.client.store.networked else pytest.raises(Crash)
    ):  # there, some of them share a commit
        doomed.start(talker, 3, id="talks")
    kill(doomed)
    hf = opened()
    said = [output.value for output in hf.get("talks").outputs("numbers")]
    run = hf.start(talker, 3, id="talks")
    assert list(run.follow("numbers")) == [0, 1, 2]
    assert [output.value for output in run.outputs("numbers")][: len(said)] == said
    assert list(run.follow("notes")) == ["at 0", "at 1", "at 2"]


@talkers
def test_what_was_rolled_back_is_not_shown(hf: Holdfast, talker: Any) -> None:
    run = hf.start(talker, 3)
    first = run.outputs("numbers")[0].seq
    run.rollback(to=first)
    assert list(run.outputs("numbers").items)[1:] == []
    run.resume()
    assert list(run.follow("numbers")) == [0, 1, 2]
    assert [output.value for output in run.outputs("notes")] == ["at 0", "at 1", "at 2"]


@talkers
def test_a_fork_has_what_was_said_before_it(hf: Holdfast, talker: Any) -> None:
    run = hf.start(talker, 3)
    fork = run.fork(at=run.outputs("numbers")[1].seq)
    assert [output.value for output in fork.outputs("numbers")] == [0, 1]
    fork.resume()
    assert list(fork.follow("numbers")) == [0, 1, 2]


def test_an_erased_output_is_left_out(hf: Holdfast) -> None:
    run = hf.start(talks, 3)
    run.redact(run.outputs("numbers")[1].seq)
    assert [output.value for output in run.outputs("numbers")] == [0, 2]


@workflow
def says_too_much() -> str:
    try:
        emit(object())
    except NotStorable as refused:
        return str(refused)
    return "kept"


def test_what_cannot_be_kept_is_refused_and_the_run_goes_on(hf: Holdfast) -> None:
    assert "emit.value" in hf.start(says_too_much).result()


def test_outside_of_a_run_nothing_is_said() -> None:
    assert note("hello") is None
    assert emit(1) is None


def test_wrong_use_is_refused(hf: Holdfast) -> None:
    run = hf.start(talks, 1)
    with pytest.raises(UsageError, match="stream="):
        run.follow(3)
    with pytest.raises(UsageError, match="after="):
        run.follow(after="3")
    with pytest.raises(UsageError, match="after="):
        run.outputs(after="x")

    @step
    def inside() -> None:
        emit(1)

    @workflow(name="emits in a step")
    def wrong() -> None:
        inside()

    with pytest.raises(UsageError, match=r"emit\(\) is called inside of step 'inside#1'"):
        hf.start(wrong).result()
