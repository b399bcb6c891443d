"""Small calls on an event loop do not wait for the database; what they gave is lasting before it is built upon."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import holdfast
from holdfast import emit, now, patched, random, receive, send, step, uuid, workflow
from holdfast.engine.access.commit import BACKLOG
from holdfast.errors import StoreBusy
from holdfast.kernel.model import Append, Write
from holdfast.stores.postgres.arrays import _numbers, numbers
from holdfast.stores.postgres.store import PostgresStore

seen: list[Any] = []
said = threading.Event()


class Gate:
    """Holds up, or refuses, the writes that only add entries."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.refuses = 0
        self.sizes: list[int] = []


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made, apply = Gate(), PostgresStore.apply

    def guarded(self: PostgresStore, batch: Sequence[Write]) -> list[Any]:
        if all(isinstance(write, Append) and write.change is None for write in batch):
            made.sizes.append(len(batch))
            assert made.open.wait(20)
            if made.refuses:
                made.refuses -= 1
                raise StoreBusy(self.place)
        return apply(self, batch)

    monkeypatch.setattr(PostgresStore, "apply", guarded)
    monkeypatch.setattr("holdfast.engine.worker.worker.REST", (0.01, 0.1))
    seen.clear()
    said.clear()
    yield made
    made.open.set()


gates: list[Gate] = []  # of the test that runs
CALLS = {"uuid": uuid, "now": now, "random": random, "patched": lambda: patched("anew")}


@step(name="passing-charge")
async def charge(key: Any) -> None:
    seen.append((key, gates[-1].open.is_set()))


@workflow(name="passing-pays")
async def pays(call: str) -> None:
    gates[-1].open.clear()
    value = CALLS[call]()
    asyncio.get_running_loop().call_later(0.05, gates[-1].open.set)
    await charge(str(value))


@pytest.mark.parametrize("call", CALLS)
def test_a_step_begins_when_what_it_is_given_is_lasting(postgres_url: str, gate: Gate, call: str) -> None:
    gates[:] = [gate]

    async def main() -> None:
        async with holdfast.open(postgres_url) as hf:
            await (await hf.start(pays, call)).result(timeout=20)

    asyncio.run(asyncio.wait_for(main(), 30))
    assert [lasting for _, lasting in seen] == [True]


@workflow(name="passing-pays-once")
async def pays_once() -> None:
    gates[-1].refuses = 1 if not seen else 0
    value = str(uuid())
    seen.append(value)
    await charge(value)


def test_a_step_does_not_begin_if_that_could_not_be_written(postgres_url: str, gate: Gate) -> None:
    """It is driven again, is given another value, and only that one is ever used."""
    gates[:] = [gate]

    async def main() -> None:
        async with holdfast.open(postgres_url, lease=600.0) as hf:  # it does not look by itself within this test
            run = await hf.enqueue(pays_once)
            await hf.work(until_idle=True)
            assert (await run.info()).status == "completed"

    asyncio.run(asyncio.wait_for(main(), 30))
    first, second, charged = seen
    assert first != second
    assert charged == (second, True)


@workflow(name="passing-says")
async def says(wait: float, then: str) -> None:
    gates[-1].refuses = 1 if not seen else 0
    seen.append("driven")
    emit("a")
    await asyncio.sleep(wait)
    if then == "step":
        await charge(1)
    if then == "fail":
        raise ValueError
    if then == "emit":
        emit("b")


@pytest.mark.parametrize("wait", [0, 0.05])
@pytest.mark.parametrize("then", ["end", "step", "emit", "fail"])
def test_what_could_not_be_said_is_said_again(postgres_url: str, gate: Gate, wait: float, then: str) -> None:
    gates[:] = [gate]

    async def main() -> None:
        async with holdfast.open(postgres_url, lease=600.0) as hf:
            run = await hf.enqueue(says, wait, then)
            await hf.work(until_idle=True)
            assert [value async for value in run.follow()] == ["a", "b"][: 2 if then == "emit" else 1]
            assert [entry.kind for entry in await run.history()][:2] == ["created", "emitted"]

    asyncio.run(asyncio.wait_for(main(), 30))
    assert seen.count("driven") == 2


@workflow(name="passing-receives")
async def receives() -> Any:
    return await receive()


@workflow(name="passing-tells")
async def tells(to: str) -> str:
    gates[-1].refuses = 1 if not seen else 0
    seen.append(str(uuid()))
    send(to, seen[-1])
    return str(seen[-1])


def test_nor_is_it_sent_to_others(postgres_url: str, gate: Gate) -> None:
    gates[:] = [gate]

    async def main() -> None:
        async with holdfast.open(postgres_url) as hf:
            to = await hf.start(receives, id="to")
            told = await hf.enqueue(tells, "to")
            await hf.work(until_idle=True)
            assert await told.result(timeout=20) == await to.result(timeout=20) == seen[-1]

    asyncio.run(asyncio.wait_for(main(), 30))
    assert len(seen) == 2


@workflow(name="passing-talks")
async def talks() -> None:
    gates[-1].open.clear()
    emit("a")
    await asyncio.to_thread(said.wait, 5)
    seen.append("over")


def test_who_follows_is_told_when_it_is_there(postgres_url: str, gate: Gate) -> None:
    """The bell is rung by the commit: who looks at the moment of the call finds nothing yet."""
    gates[:] = [gate]

    async def main() -> None:
        async with holdfast.open(f"{postgres_url}&listen=off") as hf:
            await hf.enqueue(talks)
            working = asyncio.create_task(hf.work(until_idle=True))
            while gate.open.is_set():
                await asyncio.sleep(0.01)
            rung = hf.client.engine.bell._count
            gate.open.set()
            while hf.client.engine.bell._count == rung:
                await asyncio.sleep(0.01)
            assert not seen
            said.set()
            await working

    asyncio.run(asyncio.wait_for(main(), 15))


@workflow(name="passing-babbles")
async def babbles(times: int) -> None:
    for n in range(times):
        emit(n)


def test_what_nobody_waits_for_does_not_pile_up(postgres_url: str, gate: Gate) -> None:
    async def main() -> None:
        async with holdfast.open(postgres_url) as hf:
            run = await hf.start(babbles, 3 * BACKLOG)
            await run.result(timeout=20)
            assert [value async for value in run.follow()] == list(range(3 * BACKLOG))

    asyncio.run(asyncio.wait_for(main(), 60))
    assert max(gate.sizes) <= BACKLOG + 1


def test_what_is_kept_for_batches_of_each_size_is_bounded() -> None:
    for count in range(1, 200):
        numbers(range(count))
    assert _numbers.cache_info().currsize <= 64
