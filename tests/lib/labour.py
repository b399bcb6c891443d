"""A worker process, and the workflows that it knows. See tests/processes and tests/postgres/faults.

Arguments: the store's URL, and options as JSON: what `holdfast.open` and ``hf.work`` take, and

- ``log``: the file for its log;
- ``silence``: how many seconds a call to PostgreSQL may stay without an answer;
- ``count``: every so many seconds, say how many SQL statements were made so far, and the CPU time;
- ``stop_at``: stop (SIGSTOP) right after the intent of this step was written.

Everything that a step does to the outside world is one line in a file, synced: who, when, what.
"""

import asyncio
import json
import logging
import os
import select
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import holdfast
from holdfast import NotDone, step, workflow


def write(world: str, what: str) -> None:
    line = f"{os.getpid()} {time.monotonic_ns()} {what}\n".encode()
    fd = os.open(world, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.write(fd, line)
    os.fsync(fd)
    os.close(fd)


def lines(world: str) -> list[tuple[int, int, str]]:
    """What happened, in order: process, time, what."""
    try:
        with open(world) as file:
            found = [line.split(" ", 2) for line in file.read().splitlines()]
    except FileNotFoundError:
        return []
    return [(int(pid), int(at), what) for pid, at, what in found]


def happened(world: str) -> list[str]:
    return [what for _, _, what in lines(world)]


# --- steps


@step
def mark(world: str, what: str) -> str:
    write(world, what)
    return what


@step
async def mark_async(world: str, what: str) -> str:
    await asyncio.sleep(0.001)
    write(world, what)
    return what


@step(target="{what}")
def reserve(world: str, what: str) -> str:
    write(world, what)
    return what


@step(at_most_once=True)
def charge(world: str, what: str) -> str:
    time.sleep(0.001)
    write(world, what)
    time.sleep(0.004)  # long enough to be killed between the act and its result
    return what


@charge.check
def was_charged(world: str, what: str) -> Any:
    return holdfast.Done(what) if what in happened(world) else NotDone


@step(transactional=True)
def book(connection: Any, what: str) -> str:
    place = "?" if isinstance(connection, sqlite3.Connection) else "%s"
    connection.execute(f"INSERT INTO ledger (what) VALUES ({place})", (what,))
    return what


@step(transactional=True)
def book_slowly(connection: Any, world: str, what: str, seconds: float) -> str:
    """On PostgreSQL: keeps the connection for some time."""
    write(world, what)
    connection.execute("SELECT pg_sleep(%s)", (seconds,))
    return book.function(connection, what)


@step
def hold(world: str, what: str) -> str:
    """Takes until there is a file named after it."""
    write(world, what)
    while not os.path.exists(f"{world}.{what}"):
        time.sleep(0.005)
    return what


@step
async def hold_async(world: str, what: str) -> str:
    write(world, what)
    while not os.path.exists(f"{world}.{what}"):
        await asyncio.sleep(0.005)
    return what


def die(world: str, what: str, times: int) -> str:
    """Kills the process, so many times."""
    write(world, what)
    if happened(world).count(what) <= times:
        os._exit(7)
    return what


plain_death = step(name="plain_death")(die)
meant_death = step(name="meant_death", target="world")(die)
careful_death = step(name="careful_death", at_most_once=True, check=lambda *_: NotDone)(die)


# --- workflows


@workflow
def quick(world: str, n: int) -> int:
    mark(world, f"quick {n}")
    return n


@workflow
def asking(world: str, n: int) -> int:
    answer: int = holdfast.ask("how many?", int)
    mark(world, f"answered {n}")
    return answer


@workflow
def sleeping(world: str, n: int, seconds: float) -> int:
    holdfast.sleep(seconds)
    mark(world, f"woken {n}")
    return n


@step(at_most_once=True)
def charge_slowly(world: str, what: str) -> str:
    """At most once, and takes until there is a file named after it."""
    return hold.function(world, what)


@charge_slowly.check
def was_not_charged(world: str, what: str) -> Any:
    return NotDone


@workflow
def charging(world: str) -> str:
    return charge_slowly(world, "charge")


@workflow
def holding(world: str) -> list[str]:
    return [hold(world, "first"), mark(world, "second"), charge(world, "third")]


@workflow
async def holding_async(world: str) -> list[str]:
    return [await hold_async(world, "first"), mark(world, "second"), charge(world, "third")]


@workflow
def deadly(world: str, how: str, times: int, places: int) -> list[str]:
    kill = {"plain": plain_death, "meant": meant_death, "careful": careful_death}[how]
    return [kill(world, f"place {n}", times) for n in range(places)]


@step
def wait_for_word(world: str, n: int) -> int:
    """Does not end before the file ``world.go`` is there."""
    write(world, f"waits {n}")
    while not os.path.exists(world + ".go"):
        time.sleep(0.01)
    return n


@step(target="somewhere")
def meant_wait(world: str, n: int) -> int:
    return wait_for_word.function(world, n)


@workflow
def patient(world: str, n: int) -> int:
    return (meant_wait if n % 2 else wait_for_word)(world, n)


@workflow
def booking(world: str, n: int, seconds: float) -> str:
    return book_slowly(world, f"{n} booking", seconds)


@step
def take_time(world: str, what: str) -> str:
    time.sleep(0.3)
    write(world, what)
    return what


@workflow
def slow(world: str, n: int) -> str:
    return take_time(world, f"slow {n}")


@step
def be_there(world: str, n: int, key: str, seconds: float) -> int:
    write(world, f"enters {n} {key}")
    time.sleep(seconds)
    write(world, f"leaves {n} {key}")
    return n


@workflow
def counted(world: str, n: int, key: str, seconds: float) -> int:
    return be_there(world, n, key, seconds)


@workflow
def ticking(world: str) -> str:
    """Says which tick it is for."""
    return mark(world, holdfast.this_run())


@workflow
def parcel(world: str, n: int) -> str:
    packed = mark(world, f"{n} pack")
    holdfast.sleep(0.002)
    return f"{packed}, {charge(world, f'{n} postage')}"


@workflow
def order(world: str, n: int, sql: bool) -> list[Any]:
    done: list[Any] = [mark(world, f"{n} accept"), reserve(world, f"{n} reserve")]
    if sql:
        done.append(book(f"{n} book"))
    done += holdfast.gather(lambda: mark(world, f"{n} left"), lambda: charge(world, f"{n} deposit"))
    holdfast.sleep(0.003)
    done.append(holdfast.ask("which?", int))
    done.append(charge(world, f"{n} charge"))
    done.append(parcel(world, n))
    if sql:
        done.append(book(f"{n} close"))
    return done


@workflow
async def order_async(world: str, n: int, sql: bool) -> list[Any]:
    return await ordered(world, n, sql, asyncio.gather)


@workflow
async def order_in_branches(world: str, n: int, sql: bool) -> list[Any]:
    """The same without tasks of asyncio's own, which had other keys in an earlier release."""
    return await ordered(world, n, sql, holdfast.gather)


async def ordered(world: str, n: int, sql: bool, gather: Callable[..., Any]) -> list[Any]:
    done: list[Any] = [await mark_async(world, f"{n} accept"), reserve(world, f"{n} reserve")]
    if sql:
        done.append(book(f"{n} book"))

    async def deposit() -> str:
        await holdfast.sleep(0.002)
        return charge(world, f"{n} deposit")

    done += await gather(mark_async(world, f"{n} left"), deposit())
    await holdfast.sleep(0.003)
    done.append(await holdfast.ask("which?", int))
    done.append(charge(world, f"{n} charge"))
    done.append(await parcel_async(world, n))
    if sql:
        done.append(book(f"{n} close"))
    return done


@workflow
async def parcel_async(world: str, n: int) -> str:
    packed = await mark_async(world, f"{n} pack")
    await holdfast.sleep(0.002)
    return f"{packed}, {charge(world, f'{n} postage')}"


# --- the process


def count_statements(hf: Any, every: float) -> None:
    made = [0]

    def count(_: str) -> None:
        made[0] += 1

    if hasattr(hf.client.store, "_reader"):
        for connection in (hf.client.store._reader, hf.client.store._db):
            connection.set_trace_callback(count)

    def tell() -> None:
        while True:
            time.sleep(every)
            print(time.monotonic(), made[0], time.process_time(), flush=True)

    threading.Thread(target=tell, daemon=True).start()


def stop_after_intent(hf: Any, name: str) -> None:
    real = hf.client.store.apply

    def apply(batch: Any) -> Any:
        outcome = real(batch)
        if any(b'"tool":"%s"' % name.encode() in entry.payload for write in batch for entry in write.entries):
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(0.2)  # this thread may go on for a moment before the process is stopped
        return outcome

    hf.client.store.apply = apply


def main() -> None:
    url, options = sys.argv[1], json.loads(sys.argv[2])
    if "log" in options:
        logging.basicConfig(filename=options.pop("log"), level=logging.INFO)
    if os.environ.keys() & {"FAKETIME", "FAKETIME_TIMESTAMP_FILE"}:
        # libfaketime refuses the way in which Python sleeps, and no other way of waiting
        time.sleep = lambda seconds: select.select([], [], [], seconds)  # type: ignore[assignment]
    if silence := options.pop("silence", None):
        from holdfast.stores.postgres import stuck_calls  # here: the release before this one has other modules

        stuck_calls.LIMIT, stuck_calls.SWEEP = silence, silence / 5
    opening = {name: options.pop(name) for name in ("lease", "max_crashes") if name in options}
    with holdfast.open(url, **opening) as hf:
        if every := options.pop("count", None):
            count_statements(hf, every)
        if name := options.pop("stop_at", None):
            stop_after_intent(hf, name)
        print("ready", flush=True)
        hf.work(**options)


if __name__ == "__main__":
    main()
