"""Runs are moved into another store: all that belongs to them goes along, and at the source they can only be read."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from movers import furnish
from writes import Make, around

import holdfast
from holdfast import Holdfast, Keyring, ask, emit, step, workflow
from holdfast.errors import Moved, ScheduleMoved, UsageError
from holdfast.kernel.model import Adopt, EndMove, Filter, Item, Post
from holdfast.stores.protocol import Store, write_one

KEYS = Keyring({"k": bytes(range(32))}, current="k")
done: Counter[str] = Counter()


@step(name="moving-act")
def act(what: str) -> str:
    done[what] += 1
    return what


@workflow(name="moving-two")
def two(what: str) -> str:
    return act(f"{what}1") + act(f"{what}2")


@workflow(name="moving-asks")
def asks(what: str = "") -> str:
    emit("asked")
    return act(f"{what}{ask('Well?', str)}")


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


@pytest.fixture
def there(opened: Callable[..., Holdfast], beside: Callable[[object], str]) -> Holdfast:
    """Another store of the same kind."""
    return opened(beside("there"))


def ids(hf: Holdfast, **wanted: Any) -> list[str]:
    return sorted(info.id for info in hf.runs(limit=1000, **wanted))


# --- what goes along


def test_all_kinds_of_runs(hf: Holdfast, there: Holdfast) -> None:
    furnish(hf)
    before = {info.id: info for info in hf.runs()}
    heads = {id: hf.audit(id).head for id in before}
    seen: list[tuple[int, int, str]] = []
    report = hf.move(there, progress=lambda *at: seen.append(at))
    assert sorted(report.moved) == sorted(before)
    assert (report.schedules, report.queues, report.left) == (("yearly",), ("mail",), ())
    assert (seen[-1][:2], [at[0] for at in seen]) == ((len(before), len(before)), sorted({at[0] for at in seen}))
    for id, info in before.items():
        now, left = there.get(id).info(), hf.get(id).info()
        assert (now.status, now.wake_at, now.tags, now.seq, now.away) == (
            *(info.status, info.wake_at, info.tags, info.seq, None),
        )
        assert (left.status, left.away, left.seq) == ("away", there.place, info.seq)
        assert there.audit(id).head == hf.audit(id).head == heads[id]
    assert hf.move(there).moved == ()


def test_it_goes_there_and_back_and_there_again(hf: Holdfast, there: Holdfast) -> None:
    run = hf.start(asks, "a", id="run")
    fork = run.fork(id="fork")
    for source, target in ((hf, there), (there, hf), (hf, there), (there, hf)):
        assert sorted(source.move(target).moved) == ["fork", "run"]
        assert (source.get("run").status, target.get("run").status) == ("away", "waiting")
    run.answer("b")
    assert (run.resume(), run.result()) == ("completed", "ab")
    hf.move(there)
    assert (there.get("run").result(), there.get("fork").info().forked_from) == ("ab", ("run", fork.info().seq - 1))


def test_a_fork_takes_the_journal_along_that_it_began_in(hf: Holdfast, there: Holdfast) -> None:
    run = hf.start(asks, "a", id="run")
    middle = run.fork(id="middle")
    middle.fork(id="leaf", at=run.info().seq)
    assert hf.move(there, prefix="leaf").moved == ("leaf",)
    assert (ids(there), ids(hf, status="away")) == (["leaf"], ["leaf"])
    leaf = there.get("leaf")
    assert [entry.kind for entry in leaf.history()] == [entry.kind for entry in hf.get("leaf").history()]
    leaf.resume()
    leaf.answer("x")
    leaf.resume()
    run.answer("y")  # its own history goes on where it is
    run.resume()
    assert sorted(hf.move(there).moved) == ["middle", "run"]
    assert (there.get("run").result(), there.get("leaf").result()) == ("ay", "ax")
    there.get("run").delete()
    assert there.audit("leaf").entries == leaf.info().seq + 1
    for id in ("middle", "leaf"):
        there.get(id).delete()
    assert there.client.store.find(Filter(hidden=None)) == []


def test_what_is_encrypted_stays_so(
    opened: Callable[..., Holdfast], beside: Callable[[object], str], raw_bytes: Callable[..., bytes], store_url: str
) -> None:
    hf = opened(keys=KEYS)
    hf.start(asks, "confidential", id="run")
    plain, there = opened(store_url), opened(beside("there"))
    assert plain.move(there).moved == ("run",)  # who moves needs no key
    assert b"confidential" not in raw_bytes()
    with pytest.raises(holdfast.errors.KeyMissing):
        there.get("run").questions()
    reader = opened(beside("there"), keys=KEYS)
    reader.get("run").answer("!")
    reader.get("run").resume()
    assert reader.get("run").result() == "confidential!"


def test_what_was_erased_stays_erased(hf: Holdfast, there: Holdfast) -> None:
    hf.start(two, "a", id="run")
    hf.get("run").redact(1, why="asked to")
    hf.move(there)
    assert there.audit("run").redacted == (1,)


# --- what is refused afterwards


def test_what_is_wanted_of_it_at_the_source_is_refused_with_the_place(hf: Holdfast, there: Holdfast) -> None:
    run = hf.start(asks, "a", id="run")
    once = hf.enqueue(two, "b", dedup="once")
    hand = hf.run("hand")
    hand.save({"n": 1})
    hf.move(there)
    for use in (
        lambda: run.answer("x"),
        lambda: run.send("x"),
        lambda: run.cancel(),
        lambda: run.rollback(to=0),
        lambda: run.result(timeout=5),
        lambda: run.wait(timeout=5),
        lambda: list(run.follow()),
        lambda: run.redact(0),
        lambda: hf.start(asks, "a", id="run"),
        lambda: hf.enqueue(asks, "a", id="run"),
        lambda: hf.enqueue(two, "b", dedup="once"),
        lambda: hand.save({"n": 2}),
        lambda: hand.claim(),
        lambda: hand.complete(),
    ):
        with pytest.raises(Moved) as error:
            use()
        assert error.value.place == there.place
        assert there.place in str(error.value)
    hf.work(until_idle=True)
    assert (once.status, hand.checkpoint().state, done) == ("away", {"n": 1}, {})
    assert run.questions()[0].prompt == "Well?"  # it can be read


def test_a_holder_that_slept_is_refused(
    opened: Callable[..., Holdfast], there: Holdfast, kill: Callable[[Holdfast], None]
) -> None:
    hf, sleeper = opened(), opened(lease=0.01)
    hand = sleeper.run("hand")
    holding = hand.claim()
    sleeper.client.engine.worker.stop()
    sleeper.client.store.beat(sleeper.client.engine.worker.name, 0)  # its lease is over
    assert hf.move(there, timeout=10).moved == ("hand",)
    with pytest.raises(Moved):
        hand.save({"n": 1})
    assert holding is not None
    assert there.get("hand").checkpoint().state is None


def test_what_was_moved_can_be_pruned(hf: Holdfast, there: Holdfast) -> None:
    furnish(hf)
    hf.move(there)
    assert hf.prune(older_than=timedelta(0)) == ()
    assert sorted(hf.prune(statuses=["away"])) == ids(there)
    assert ids(hf) == []
    assert there.audit("fork")


# --- while others work


def test_a_run_that_is_held_is_waited_for(opened: Callable[..., Holdfast], hf: Holdfast, there: Holdfast) -> None:
    held, free = opened().run("held"), hf.run("free")
    free.save(1)
    with held.claim():
        held.save({"n": 1})
        report = hf.move(there, timeout=0)
        assert (report.moved, [(one.id, one.error) for one in report.left]) == (("free",), [("held", "Claimed")])
        mover = threading.Thread(target=lambda: hf.move(there))
        mover.start()
        held.save({"n": 2})
    mover.join(20)
    assert there.get("held").checkpoint().state == {"n": 2}


def test_what_arrives_while_it_is_copied_arrives(
    hf: Holdfast, there: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = hf.start(asks, "a", id="run")
    later = hf.enqueue(asks, "b", id="later", delay=3600)

    def slowly(write: Adopt, make: Make) -> Any:
        made, record = make(write), write.record
        if record.id == "run" and run.questions():
            run.answer("in time")
        if record.id == "later" and not hf.client.store.inbox(record.uid):
            later.send("early")
        return made

    monkeypatch.setattr(there.client.store, "apply", around(there.client.store, Adopt, slowly))
    assert sorted(hf.move(there).moved) == ["later", "run"]
    assert (there.get("run").status, there.get("later").status) == ("ready", "waiting")
    assert len(there.client.store.inbox(later.uid)) == 1
    assert there.get("run").resume() == "completed"
    assert there.get("run").result() == "ain time"


def test_one_that_is_begun_while_it_is_copied_is_moved_when_it_rests(
    opened: Callable[..., Holdfast], hf: Holdfast, there: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    hf.enqueue(two, "a", id="run")
    worker = opened()

    def slowly(write: Adopt, make: Make) -> Any:
        made = make(write)
        worker.work(until_idle=True)
        return made

    monkeypatch.setattr(there.client.store, "apply", around(there.client.store, Adopt, slowly))
    assert hf.move(there, timeout=20).moved == ("run",)
    assert (there.get("run").result(), done) == ("a1a2", {"a1": 1, "a2": 1})


def test_two_movers_and_workers_of_both_stores(
    opened: Callable[..., Holdfast], store_url: str, beside: Callable[[object], str], there: Holdfast
) -> None:
    hf, names = opened(), [f"r{n}" for n in range(24)]
    for name in names:
        hf.enqueue(two, name, id=name)
    movers = [opened() for _ in range(2)]
    targets = [opened(beside("there")) for _ in range(2)]
    threads = [threading.Thread(target=lambda n=n: movers[n].move(targets[n], timeout=20)) for n in range(2)]
    for thread in threads:
        thread.start()
    opened().work(until_idle=True)
    for thread in threads:
        thread.join(30)
    hf.move(there, timeout=20)
    there.work(until_idle=True)
    assert (ids(there), ids(hf, status="away")) == (sorted(names), sorted(names))
    assert {there.get(name).result() for name in names} == {f"{name}1{name}2" for name in names}
    assert set(done.values()) == {1}


# --- which, and what was left


def test_only_those_that_are_asked_for(hf: Holdfast, there: Holdfast) -> None:
    furnish(hf)
    assert hf.move(there, workflow="move-part", dry_run=True).moved == ("whole", "whole/move-part#1")
    assert ids(there) == []
    report = hf.move(there, workflow="move-part")  # with what it is a part of
    assert (report.moved, report.schedules, report.queues) == (("whole", "whole/move-part#1"), (), ())
    assert hf.move(there, tags={"kind": "family"}).moved == ()
    assert hf.move(there, status=["failed", "waiting"]).moved == ("later", "broken")
    assert sorted(hf.move(there).moved) == ["by hand", "fork", "short", "told"]


def test_what_cannot_be_moved_is_left_and_told(
    hf: Holdfast, there: Holdfast, damage: Callable[[Any, int], None]
) -> None:
    for name in "abc":
        hf.start(two, name, id=name)
    there.start(two, "x", id="b")
    damage(hf.get("c"), 1)
    report = hf.move(there, timeout=0)
    assert report.moved == ("a",)
    assert [(one.id, one.error) for one in report.left] == [("b", "RunExists"), ("c", "RunDamaged")]
    assert (hf.get("b").status, there.get("b").result()) == ("completed", "x1x2")


def test_a_move_to_somewhere_else_is_finished_first(
    hf: Holdfast, there: Holdfast, opened: Callable[..., Holdfast], beside: Callable[[object], str], monkeypatch: Any
) -> None:
    hf.start(asks, "a", id="run")
    third = opened(beside("third"))

    class Dies(BaseException):
        pass

    def die(*_: Any) -> bool:
        raise Dies

    monkeypatch.setattr(there.client.store, "apply", around(there.client.store, EndMove, die))
    with pytest.raises(Dies):
        hf.move(there)
    monkeypatch.undo()
    assert hf.get("run").info().reason == f"is being moved between here and {there.place}"
    with pytest.raises(Moved):
        there.get("run").delete()
    [left] = hf.move(third, timeout=0).left
    assert (left.error, there.place in left.why) == ("Moved", True)
    assert hf.prune(statuses=["away"]) == ()
    with pytest.raises(Moved, match="`holdfast move` finishes it"):
        hf.get("run").delete()
    assert hf.move(there).moved == ("run",)
    assert (ids(third), there.get("run").status) == ([], "waiting")


def test_wrong_use(hf: Holdfast, there: Holdfast, opened: Callable[..., Holdfast]) -> None:
    with pytest.raises(UsageError, match="to itself"):
        hf.move(hf)
    with pytest.raises(UsageError, match="to itself"):
        hf.move(opened())
    with pytest.raises(UsageError, match=r"to='sqlite:///x': takes another open store"):
        hf.move("sqlite:///x")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="timeout"):
        hf.move(there, timeout=-1.0)


def test_async(hf: Holdfast, there: Holdfast) -> None:
    furnish(hf)

    async def main() -> int:
        async with hf as here, there as target:
            return len((await here.move(target)).moved)

    assert asyncio.run(main()) == 8


# --- schedules and backups


@pytest.fixture
def timed_pair(
    timed: Callable[..., Holdfast], beside: Callable[[object], str], clock: Any
) -> Iterator[tuple[Holdfast, Holdfast]]:
    from holdfast.stores import open_store

    url = beside("there")
    with holdfast.open(url, store=open_store(url, clock=clock)) as there:
        yield timed(), there


def test_a_schedule_ticks_in_one_place(timed_pair: tuple[Holdfast, Holdfast], clock: Any) -> None:
    hf, there = timed_pair
    for id, paused in (("hourly", False), ("quiet", True)):
        hf.schedule(two, id, cron="0 * * * *", id=id, catch_up="all", paused=paused)
    clock.advance(2 * 3600)  # nobody was there: it is due
    report = hf.move(there)
    assert report.schedules == ("hourly", "quiet")
    assert len(report.moved) == len(ids(there)) == 2  # what was due was begun, and moved
    assert [(one.id, one.paused, one.away) for one in there.schedules()] == [
        ("hourly", False, None),
        ("quiet", True, None),
    ]
    assert [(one.paused, one.away) for one in hf.schedules()] == [(True, there.place)] * 2
    clock.advance(3600)
    for handle in (hf, there, hf):
        handle.work(until_idle=True)
    assert (len(ids(there)), len(ids(hf, status="completed")), done["hourly1"]) == (3, 0, 3)
    for use in (
        lambda: hf.schedule(two, "hourly", cron="0 * * * *", id="hourly"),
        lambda: hf.get_schedule("hourly").resume(),
        lambda: hf.get_schedule("hourly").trigger(),
    ):
        with pytest.raises(ScheduleMoved) as error:
            use()
        assert error.value.place == there.place
    assert there.move(hf).schedules == ("hourly", "quiet")
    assert hf.get_schedule("hourly").delete()


def test_a_schedule_of_an_id_that_is_taken_is_left(hf: Holdfast, there: Holdfast) -> None:
    for handle in (hf, there):
        handle.schedule(two, "x", cron="0 0 1 1 *", id="yearly")
    [left] = hf.move(there).left
    assert (left.id, "already" in left.why) == ("yearly", True)
    assert [one.paused for one in (*hf.schedules(), *there.schedules())] == [False, False]


def test_a_backup_of_a_run_that_was_moved(
    hf: Holdfast, there: Holdfast, opened: Callable[..., Holdfast], beside: Callable[[object], str], tmp_path: Any
) -> None:
    hf.start(asks, "a", id="run")
    hf.move(there)
    hf.backup(str(tmp_path / "b"))
    restored = opened(beside("restored"))
    assert restored.restore(str(tmp_path / "b")) == ()
    assert (restored.get("run").status, restored.get("run").info().away) == ("away", there.place)


def test_items_are_not_looked_at(hf: Holdfast, there: Holdfast) -> None:
    """What is stored is copied byte by byte."""
    run = hf.start(asks, "a", id="run")
    store: Store = hf.client.store
    assert write_one(store, Post(run.uid, Item("odd", "unknown", 7, b"\xff\x00", False)))
    before = store.inbox(run.uid)
    hf.move(there)
    assert there.client.store.inbox(run.uid) == before


@pytest.mark.parametrize("fault", ["changed", "cut short"])
def test_a_copy_that_does_not_verify_is_not_moved_to(
    hf: Holdfast, there: Holdfast, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    from msgspec.structs import replace

    hf.start(two, "a", id="run")

    def badly(write: Adopt, make: Make) -> Any:
        *kept, last = write.entries
        entries = kept if fault == "cut short" else [*kept, replace(last, payload=b"{}")]
        return make(replace(write, entries=entries))

    monkeypatch.setattr(there.client.store, "apply", around(there.client.store, Adopt, badly))
    [left] = hf.move(there, timeout=0).left
    assert (left.error, hf.get("run").result()) == ("RunDamaged", "a1a2")
    monkeypatch.undo()
    if fault == "changed":  # the copy is replaced by a sound one
        assert hf.move(there).moved == ("run",)
        assert there.audit("run").entries == there.get("run").info().seq + 1
