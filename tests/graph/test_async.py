"""Graphs with coroutine functions, and plain functions among them, which wait for durable things in a thread."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, TypedDict

import pytest

import holdfast
from holdfast import Graph, Holdfast, Status, append, step
from holdfast.errors import HoldfastError, UsageError
from holdfast.testing.crash import Crash

calls: list[Any] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    calls.clear()


class Log(TypedDict, total=False):
    log: Annotated[list[str], append]


@step
async def fetch(what: str) -> str:
    calls.append(what)
    await asyncio.sleep(0)
    return what.upper()


@step
def act(what: str) -> str:
    calls.append(what)
    return what.upper()


def mixed(name: str, plain: Callable[[Any], Any], *more: Callable[[Any], Any]) -> Graph:
    """A coroutine function, then plain functions beside another coroutine function."""
    graph = Graph(Log, name=name)

    @graph.node
    async def first(state: Log) -> dict[str, Any]:
        return {"log": [await fetch("first")]}

    @graph.node
    async def beside(state: Log) -> dict[str, Any]:
        return {"log": [await fetch("beside")]}

    for n, function in enumerate((plain, *more)):
        graph.node(name=f"plain{n}")(function)
        graph.edge(first, f"plain{n}")
    graph.entry(first)
    graph.edge(first, beside)
    return graph


def test_coroutines_and_plain_functions_side_by_side(hf: Holdfast) -> None:
    threads: list[str] = []

    def plain(state: Log) -> dict[str, Any]:
        threads.append(threading.current_thread().name)
        return {"log": [act("plain")]}

    run = hf.start(mixed("mixed", plain), {})
    assert run.result()["log"] == ["FIRST", "BESIDE", "PLAIN"]
    assert threads == ["holdfast-node"]


def test_a_plain_function_asks_and_the_run_pauses_without_a_lease(hf: Holdfast) -> None:
    def asks(state: Log) -> dict[str, Any]:
        return {"log": [f"{act('before')} {holdfast.ask('Go?')}"]}

    run = hf.start(mixed("asks", asks), {})
    assert run.status is Status.WAITING
    assert run.info().holder is None
    assert run.checkpoint().queue == ["plain0"]
    run.answer("yes")
    assert run.result()["log"] == ["FIRST", "BESIDE", "BEFORE yes"]
    assert sorted(calls) == ["before", "beside", "first"]


def test_several_plain_functions_wait_at_once(memory: Holdfast) -> None:
    def asks(prompt: str) -> Callable[[Any], Any]:
        return lambda state: {"log": [holdfast.ask(prompt)]}

    run = memory.start(mixed("several", asks("a?"), asks("b?")), {})
    a, b = sorted(run.questions(), key=lambda question: question.prompt)
    run.answer("2", question=b)
    run.answer("1", question=a)
    assert run.result()["log"] == ["FIRST", "BESIDE", "1", "2"]


def test_a_plain_function_sleeps_receives_and_calls_a_workflow(memory: Holdfast) -> None:
    @holdfast.workflow
    def child(n: int) -> int:
        return n + 1

    def waits(state: Log) -> dict[str, Any]:
        holdfast.sleep(0.01)
        return {"log": [f"{holdfast.receive('news')} {child(1)}"]}

    run = memory.start(mixed("waits", waits), {})
    run.send("hello", topic="news")
    assert run.result()["log"] == ["FIRST", "BESIDE", "hello 2"]


def test_a_plain_step_is_tried_again_in_a_plain_function(memory: Holdfast) -> None:
    attempts = [0]

    @step(retries=3, delay=0.001)
    def flaky() -> int:
        attempts[0] += 1
        if attempts[0] < 3:
            raise OSError("not yet")
        return attempts[0]

    @step(retries=3, delay=0.001, target="x")
    def flaky_effect() -> int:
        return flaky.function()

    def tries(state: Log) -> dict[str, Any]:
        first = flaky()
        attempts[0] = 0
        return {"log": [f"{first} {flaky_effect()}"]}

    assert memory.start(mixed("retries", tries), {}).result()["log"] == ["FIRST", "BESIDE", "3 3"]


def test_an_async_step_in_a_plain_function_is_refused(memory: Holdfast) -> None:
    run = memory.start(mixed("async-step", lambda state: {"log": [fetch("x")]}), {})
    with pytest.raises(UsageError, match="step fetch is async, and what calls it in async-step is not"):
        run.result()


def test_an_error_of_a_plain_function_is_its_own(memory: Holdfast) -> None:
    def fails(state: Log) -> Any:
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        memory.start(mixed("fails", fails), {}).result()


def test_a_cancelled_run_takes_the_thread_apart(memory: Holdfast) -> None:
    ended = threading.Event()

    def waits(state: Log) -> dict[str, Any]:
        try:
            holdfast.receive("never")
        finally:
            ended.set()
        return {}

    run = memory.start(mixed("cancelled", waits), {})
    assert run.status is Status.WAITING
    assert ended.is_set()
    run.cancel("enough")
    assert run.status is Status.CANCELLED


def test_a_coroutine_awaits_ask_and_gather(memory: Holdfast) -> None:
    graph = Graph(Log, name="awaits")

    @graph.node
    async def both(state: Log) -> dict[str, Any]:
        found = await asyncio.gather(fetch("a"), fetch("b"))
        return {"log": [*found, await holdfast.ask("c?")]}

    graph.entry(both)
    run = memory.start(graph, {})
    run.answer("C")
    assert run.result()["log"] == ["A", "B", "C"]
    assert sorted(calls) == ["a", "b"]


def test_after_a_crash_a_coroutine_is_not_given_what_others_did(
    opened: Callable[..., Holdfast], kill: Callable[[Holdfast], None]
) -> None:
    first, second = opened(), opened()
    graph = Graph(Log, name="crashed")
    deadly = [True]

    @graph.node
    async def before(state: Log) -> dict[str, Any]:
        return {"log": [await fetch("one"), await fetch("two")]}

    @graph.node
    async def dies(state: Log) -> dict[str, Any]:
        found = await fetch("three")
        if deadly:
            deadly.clear()
            kill(first)
            raise Crash
        return {"log": [found, await fetch("four")]}

    graph.entry(before)
    graph.edge(before, dies)
    with suppress(Crash, HoldfastError):
        first.start(graph, {}, id="one")
    run = second.get("one")
    run.resume()
    assert run.result()["log"] == ["ONE", "TWO", "THREE", "FOUR"]
    assert calls == ["one", "two", "three", "four"]


def test_in_async_code() -> None:
    async def main() -> Any:
        async with holdfast.open("memory://") as hf:
            run = await hf.start(mixed("in-async", lambda state: {"log": [holdfast.ask("?")]}), {})
            await run.answer("yes")
            first = await run.result()
            plain = Graph(Log, name="plain-in-async")
            plain.node(name="only")(lambda state: {"log": [act("x")]})
            plain.entry("only")
            return first["log"], (await (await hf.start(plain, {})).result())["log"]

    assert asyncio.run(main()) == (["FIRST", "BESIDE", "yes"], ["X"])
