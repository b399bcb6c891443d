"""What type checkers see of the public surface. `make check` reads this file; nobody runs it."""

from typing import assert_type

import holdfast


async def main() -> None:
    async with holdfast.open("memory://") as hf:
        run = await hf.run("a")
        assert_type(run, holdfast.AsyncRun)
        async with run.claim() as held:
            assert_type(held, holdfast.AsyncRun)
            n = await run.save({"a": 1})
            assert_type(n, int)

            async def f(x: int) -> str:
                return str(x)

            s = await run.once("k", f, 1)
            assert_type(s, str)
        other = await run.fork()
        assert_type(other, holdfast.AsyncRun)
        cp = await other.checkpoint()
        assert_type(cp, holdfast.Checkpoint)


@holdfast.workflow
def report(kind: str) -> str:
    return kind


async def queues_and_schedules() -> None:
    async with holdfast.open("memory://") as hf:
        assert_type(await hf.queue("q", limit=1, rate=None), holdfast.AsyncQueue)
        assert_type(await hf.queues(), tuple[holdfast.QueueInfo, ...])
        assert_type(await hf.workers(), tuple[holdfast.WorkerInfo, ...])
        assert_type(await hf.schedule(report, "a", cron="0 * * * *", id="r"), holdfast.AsyncSchedule)
        assert_type(await hf.enqueue(report, "a", delay=1.5, key="k", dedup="d", ttl=60), holdfast.AsyncRun[str])


with holdfast.open("memory://") as hf:
    assert_type(hf.queue("q", limit=None, per_key=2), holdfast.Queue)
    assert_type(hf.get_schedule("r").info(), holdfast.ScheduleInfo)
    assert_type(hf.schedules(), tuple[holdfast.ScheduleInfo, ...])
    r = hf.run("x")
    assert_type(r, holdfast.Run)
    with r.claim() as h:
        assert_type(h, holdfast.Run)
        assert_type(r.save(1), int)
        assert_type(r.once("a", len, "abc"), int)
