"""Two stores between which runs are moved by a process that dies, and what must hold whenever it does."""

from __future__ import annotations

import copy
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import holdfast
from holdfast import Holdfast, ask, receive, step, workflow
from holdfast.engine.admin.backup import archived_run
from holdfast.errors import HoldfastError, Moved, RunNotFound
from holdfast.kernel.model import Filter, RunRecord, Status
from holdfast.stores import memory
from holdfast.stores.files.store import FilesStore
from holdfast.stores.memory import MemoryStore
from holdfast.stores.protocol import Store
from holdfast.testing import ManualClock
from holdfast.testing.crash import Crash, CrashDisk, CrashSqliteStore, CrashStore, Fuse

Meanwhile = Callable[[Holdfast, Holdfast], None]
done: Counter[str] = Counter()  # the steps that were carried out


@step(name="move-act")
def act(what: str) -> str:
    done[what] += 1
    return what


@workflow(name="move-part")
def part(what: str) -> str:
    return act(f"{what}, {ask('And then?', str)}")


@workflow(name="move-whole")
def whole(what: str) -> str:
    first = act(what)
    return f"{first}; {part(what)}"


@workflow(name="move-short")
def short(what: str) -> str:
    return act(what)


@workflow(name="move-broken")
def broken() -> None:
    raise ZeroDivisionError("as it is")


@workflow(name="move-told")
def told() -> str:
    return act(str(receive()))


def furnish(hf: Holdfast, delay: float = 1_000_000) -> None:
    """Runs of all kinds, a queue and a schedule."""
    done.clear()
    hf.start(whole, "a", id="whole", tags={"kind": "family"})
    hf.start(short, "b", id="short")
    hf.get("short").fork(at=0, id="fork", input={"what": "c"})
    hf.enqueue(short, "d", id="later", delay=delay, key="ann", priority=3)
    hf.start(broken, id="broken")
    hf.start(told, id="told")
    hf.get("told").send("news")  # it waits in the inbox
    by_hand = hf.run("by hand")
    with by_hand.claim():
        by_hand.save({"n": 1})
        by_hand.once("k", str.upper, "x")
    by_hand.rollback(to=1)
    by_hand.pause("Go on?")
    by_hand.answer("yes")
    hf.queue("mail", limit=3)
    hf.schedule(short, "e", cron="0 9 1 1 *", id="yearly")


class Pair:
    """A store to move from, ``here``, and one to move to, ``there``, each time as they were at first."""

    def __init__(self, kinds: tuple[str, str], folder: Path) -> None:
        self.kinds = dict(zip(("here", "there"), kinds, strict=True))
        self.folder = folder
        folder.mkdir()
        self.clock = ManualClock()
        with self.process() as (here, _):
            furnish(here)
        self._began = self.clock.mark()
        self._shelf = copy.deepcopy(self._journals("here"))
        self._done = done.copy()
        shutil.copytree(folder, self._kept, dirs_exist_ok=True)
        self.before = self.contents("here")
        # A run that was begun and waits, and whose claimer died, is due: it is driven once, and waits again.
        self.may_be_driven = {"whole", "whole/move-part#1"}

    @property
    def _kept(self) -> Path:
        return self.folder.with_name(self.folder.name + ".kept")

    def _name(self, name: str) -> str:
        return f"move-{self.folder.name}-{name}"

    def _journals(self, name: str) -> Any:
        shelf = memory._shared.get(self._name(name))
        return (shelf.runs, shelf.ids, shelf.documents) if shelf else ({}, {}, {})

    def rewind(self) -> None:
        """Put back what there was at first."""
        for name in ("here", "there"):
            memory._shared.pop(self._name(name), None)
        MemoryStore(self._name("here")).close()
        shelf = memory._shared[self._name("here")]
        shelf.runs, shelf.ids, shelf.documents = copy.deepcopy(self._shelf)
        shutil.rmtree(self.folder)
        shutil.copytree(self._kept, self.folder)
        self.clock.reset(self._began)
        done.clear()
        done.update(self._done)

    def open(self, name: str, fuse: Fuse) -> Store:
        match self.kinds[name]:
            case "memory":
                return CrashStore(MemoryStore(self._name(name), clock=self.clock), fuse)
            case "files":
                return FilesStore(str(self.folder / name), clock=self.clock, disk=CrashDisk(fuse))
            case _:
                return CrashSqliteStore(str(self.folder / f"{name}.db"), fuse, clock=self.clock)

    @contextmanager
    def process(self, fuse: Fuse | None = None) -> Iterator[tuple[Holdfast, Holdfast]]:
        """Both stores, open in one process, which dies if the fuse blows."""
        fuse = fuse or Fuse()
        stores: list[Store] = []
        try:
            stores += [self.open(name, fuse) for name in ("here", "there")]
            here, there = (holdfast.open("", store=store) for store in stores)
            yield here, there
            here.close()
            there.close()
        except Crash:
            for handle in (here, there) if len(stores) == 2 else ():
                handle.client.engine.worker.stop()
        finally:
            for store in stores:
                with suppress(Crash):
                    store.drop()

    def contents(self, name: str) -> dict[str, Any]:
        """What a store has of each run that is not hidden, as it is at rest, whether or not it lives there."""
        store = self.open(name, Fuse())
        found: dict[str, Any] = {}
        for record in store.find(Filter(), limit=1000):
            run = archived_run(store, record.uid)
            assert run is not None
            hashes = [(entry.hash, entry.payload) for entry in run.entries]
            status = record.was or record.status  # of a copy that did not arrive: away
            facts = (status, record.wake_at, record.reason, record.tags, record.rewinds, record.rollback, record.lane)
            found[record.id] = (record.uid, facts, hashes, run.items, run.taken)
        store.drop()
        return found


def lives(pair: Pair) -> Counter[str]:
    """In how many of the stores each run lives, by its id."""
    living: Counter[str] = Counter()
    for name in ("here", "there"):
        store = pair.open(name, Fuse())
        records: list[RunRecord] = store.find(Filter(), limit=1000)
        living.update({record.id: int(record.status is not Status.AWAY) for record in records})
        store.drop()
    return living


def ticking(here: Holdfast, there: Holdfast) -> int:
    """In how many of the stores the schedule ticks."""
    return sum(not one.paused for hf in (here, there) for one in hf.schedules())


def crash_at(pair: Pair, at: int, meanwhile: Meanwhile) -> str | None:
    """Die at that point of a move, do something, move again; what is wrong then, if anything is."""
    pair.rewind()
    fuse = Fuse(at)
    with pair.process(fuse) as (here, there):
        here.move(there, timeout=0)
    try:
        assert fuse.dead, "it did not come there"
        assert max(lives(pair).values()) <= 1, "a run lives twice"
        assert lives(pair).keys() == pair.before.keys(), "a run is lost"
        with pair.process() as (here, there):
            assert ticking(here, there) <= 1, "the schedule ticks twice"
            meanwhile(here, there)
        with pair.process() as (here, there):
            report = here.move(there, timeout=0)
            assert not report.left, report.left
            assert ticking(here, there) == 1
            assert [one.id for one in there.schedules() if not one.paused] == ["yearly"]
            assert [one.name for one in there.queues() if one.limit == 3] == ["mail"]
            for info in there.runs(limit=1000):
                there.audit(info.id)
            assert here.move(there, timeout=0).moved == (), "it is moved again"
        assert set(lives(pair).values()) == {1}, lives(pair)
        assert not (set(pair.before) - set(pair.contents("there"))), "a run did not arrive"
        if meanwhile is nothing:
            changed = {id for id, one in pair.contents("there").items() if one != pair.before[id]}
            assert changed <= pair.may_be_driven, f"{changed} are not what they were"
        with pair.process() as (_, there):
            finish(there)
    except (AssertionError, HoldfastError) as error:
        return f"{fuse.points[at][0]} ({at}): {type(error).__name__}: {error}"
    return None


def nothing(here: Holdfast, there: Holdfast) -> None:
    """Nobody does anything between the death and the next move."""


def others_work(here: Holdfast, there: Holdfast) -> None:
    """Workers of both stores go on, and somebody answers wherever that is taken."""
    for hf in (here, there):
        with suppress(Moved, RunNotFound):
            hf.get("whole/move-part#1").answer("z")
            break
    for hf in (here, there):
        hf.work(until_idle=True)


def finish(there: Holdfast) -> None:
    """All of it goes on where it is now, and each step was made once."""
    child = there.get("whole/move-part#1")
    if child.questions():
        child.answer("z")
    there.work(until_idle=True)
    assert there.get("whole").result() == "a; a, z"
    assert (there.get("short").result(), there.get("fork").result()) == ("b", "c")
    assert (there.get("later").result(), there.get("told").result()) == ("d", "news")
    assert there.get("broken").status == "failed"
    by_hand = there.get("by hand")
    assert by_hand.checkpoint().state == {"n": 1}
    with by_hand.claim():
        assert by_hand.checkpoint().answers == {"answer": "yes"}
    assert set(done.values()) == {1}, done


class Interruption(Fuse):
    """Lets somebody else act at a point, and goes on."""

    def __init__(self, at: int, act: Callable[[], None]) -> None:
        super().__init__(at)
        self.act = act
        self.came = False

    def blow(self) -> None:
        self.came = True
        self.act()


def interrupt_at(pair: Pair, at: int, points: list[tuple[str, int]]) -> str | None:
    """At that point of a move somebody moves everything in the other direction; what is wrong then, if anything is."""

    def move_back() -> None:
        with pair.process() as (here, there):
            there.move(here, timeout=0)
        check()

    def check() -> None:
        assert max(lives(pair).values()) <= 1, "a run lives twice"
        assert lives(pair).keys() == pair.before.keys(), "a run is lost"
        with pair.process() as (here, there):
            assert ticking(here, there) <= 1, "the schedule ticks twice"

    pair.rewind()
    interruption = Interruption(at, move_back)
    try:
        with pair.process(interruption) as (here, there):
            here.move(there, timeout=0)
        assert interruption.came, "it did not come there"
        check()
        with pair.process() as (here, there):
            here.move(there, timeout=0)
            report = here.move(there, timeout=0)
            assert (report.moved, report.left) == ((), ()), report
            assert ticking(here, there) == 1
        assert set(lives(pair).values()) == {1}, lives(pair)
        with pair.process() as (_, there):
            finish(there)
    except (AssertionError, HoldfastError) as error:
        return f"{points[at][0]} ({at}): {type(error).__name__}: {error}"
    return None
