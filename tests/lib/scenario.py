"""A piece of work that uses every operation of a hand-driven run, written to be interrupted anywhere.

The work comes in `PARTS`. Each is written as a user writes a loop that can be resumed: it is called again from the
top by the next process, and skips what is on record. A `Site` is what survives a crash: the stores, the outside
`World`, and in `Seen` everything that was acknowledged. A `Desk` is one life of the process that works there.

`verdict` says what must hold whenever it is interrupted.
"""

from __future__ import annotations

import copy
import itertools
import os
import shutil
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from holdfast.codec import Keyring
from holdfast.engine.app import Holdfast
from holdfast.engine.run.handle import Run
from holdfast.engine.workflow.undo_functions import undo_function
from holdfast.errors import RunEnded, RunNotFound, Uncertain
from holdfast.kernel.model import ENDED, Kind, Status
from holdfast.stores.files.store import FilesStore
from holdfast.stores.memory import MemoryStore, _shared
from holdfast.stores.protocol import Store
from holdfast.testing.clock import ManualClock
from holdfast.testing.crash import CrashDisk, CrashSqliteStore, CrashStore, Fuse
from holdfast.testing.still import open_still

KEYS = {"k1": b"1" * 32, "k2": b"2" * 32}


# --- the outside world


class World:
    """What steps do things to. It survives every crash, and counts what was done to it."""

    def __init__(self, fuse: Fuse) -> None:
        self.fuse = fuse
        self.things: dict[str, str] = {}
        self.payments: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.undos: Counter[str] = Counter()
        self.acts: Counter[tuple[str, str, str]] = Counter()  # of steps: run, key and idempotency key
        self.made: dict[str, str] = {}  # the idempotency key under which something was made last


_now: list[World] = []  # the one that steps act on


def compute(name: str, n: int) -> str:
    """A step that touches nothing."""
    _now[-1].calls[name] += 1
    return f"{name} is {n}"


def put(name: str, text: str) -> str:
    """A step that can be undone."""
    world = _now[-1]
    world.calls[name] += 1
    world.things[name] = text
    world.fuse.changed()
    return f"put {name}"


@undo_function
def take_away(result: str, name: str, text: str) -> None:
    """Undoes `put`."""
    world = _now[-1]
    world.undos[name] += 1
    world.things.pop(name, None)
    world.fuse.changed()


def pay(name: str, cents: int) -> str:
    """A step that must not happen twice."""
    world = _now[-1]
    world.calls[name] += 1
    world.payments[name] += cents
    world.fuse.changed()
    return f"receipt for {name}"


# --- what was acknowledged


class Seen:
    """Everything that a caller was told, kept outside of the store; by the uid of the run."""

    def __init__(self) -> None:
        self.ids: dict[str, str] = {}
        self.heads: dict[str, str] = {}
        self.ended: dict[str, tuple[int, Status]] = {}
        self.states: dict[str, dict[int, Any]] = {}
        self.attempted: list[Any] = [None]
        self.steps: dict[str, dict[tuple[int, str], Any]] = {}
        self.answered: dict[str, set[str]] = {}
        self.erased: dict[str, set[int]] = {}
        self.gone: set[str] = set()
        self.backup: bytes | None = None
        self.kept: set[str] = set()  # what else was acknowledged, by name


class Site(ABC):
    """The places of the stores, the world, and what was acknowledged: all that the next process finds."""

    kind = ""

    def __init__(self, folder: str, clock: ManualClock | None = None) -> None:
        self.folder = folder
        self.clock = clock
        self.world = World(Fuse())
        self.seen = Seen()

    @abstractmethod
    def open(self, name: str, fuse: Fuse) -> Store:
        """The store of that name, which dies when the fuse blows."""

    def wipe(self) -> None:
        """Start afresh."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        self.world, self.seen = World(Fuse()), Seen()
        if self.clock is not None:
            self.clock.reset()

    def image(self) -> Any:
        """All of it, to be put back by `restore`."""
        return read_tree(self.folder), self._frozen(), self.clock.mark() if self.clock is not None else None

    def restore(self, image: Any) -> None:
        tree, (world, seen), *moment = image
        self.wipe()
        write_tree(self.folder, tree)
        self.world, self.seen = copy.deepcopy(world), copy.deepcopy(seen)
        if self.clock is not None:
            self.clock.reset(*moment)

    def _frozen(self) -> tuple[World, Seen]:
        return copy.deepcopy(self.world), copy.deepcopy(self.seen)


class FilesSite(Site):
    kind = "files"

    def open(self, name: str, fuse: Fuse) -> Store:
        return FilesStore(os.path.join(self.folder, name), clock=self.clock, disk=CrashDisk(fuse))


class SqliteSite(Site):
    kind = "sqlite"

    def open(self, name: str, fuse: Fuse) -> Store:
        return CrashSqliteStore(os.path.join(self.folder, name + ".db"), fuse, clock=self.clock)


class MemorySite(Site):
    kind = "memory"
    _numbers = itertools.count()

    def __init__(self, folder: str, clock: ManualClock | None = None) -> None:
        super().__init__(folder, clock)
        self._name = f"crash-site-{next(self._numbers)}"

    def open(self, name: str, fuse: Fuse) -> Store:
        return CrashStore(MemoryStore(f"{self._name}-{name}", clock=self.clock), fuse)

    def wipe(self) -> None:
        super().wipe()
        for name in ("here", "there"):
            _shared.pop(f"{self._name}-{name}", None)

    def image(self) -> Any:
        shelves = {}
        for name in ("here", "there"):
            shelf = _shared.get(f"{self._name}-{name}")
            if shelf is not None:
                shelves[name] = copy.deepcopy((shelf.runs, shelf.ids, shelf.workers, shelf.documents))
        return super().image(), shelves

    def restore(self, image: Any) -> None:
        files, shelves = image
        super().restore(files)
        for name, kept in shelves.items():
            shelf = MemoryStore(f"{self._name}-{name}")._shelf
            shelf.runs, shelf.ids, shelf.workers, shelf.documents = copy.deepcopy(kept)


SITES: dict[str, type[Site]] = {site.kind: site for site in (MemorySite, SqliteSite, FilesSite)}


def read_tree(folder: str) -> dict[str, bytes | None]:
    """All files below a folder with their contents; folders have None. Paths are relative to it."""
    tree: dict[str, bytes | None] = {}
    for path, folders, files in os.walk(folder):
        for name in folders:
            tree[os.path.relpath(os.path.join(path, name), folder)] = None
        for name in files:
            with open(os.path.join(path, name), "rb") as file:
                tree[os.path.relpath(os.path.join(path, name), folder)] = file.read()
    return tree


def write_tree(folder: str, tree: dict[str, bytes | None]) -> None:
    """Make the files that `read_tree` gave."""
    for path in sorted(tree):
        data = tree[path]
        if data is None:
            os.makedirs(os.path.join(folder, path), exist_ok=True)
        else:
            os.makedirs(os.path.dirname(os.path.join(folder, path)), exist_ok=True)
            with open(os.path.join(folder, path), "wb") as file:
                file.write(data)


# --- one life of the process


class Desk:
    """One process at work: engines on the stores, which note what they were told."""

    def __init__(self, site: Site, fuse: Fuse) -> None:
        self.site, self.world, self.seen = site, site.world, site.seen
        self.fuse = self.world.fuse = fuse
        self.path = os.path.join(site.folder, "backup.jsonl")
        self._stores: dict[str, Store] = {}
        _now.append(self.world)
        self._engine_of: dict[tuple[str, str | None], Holdfast] = {}

    def engine(self, name: str = "here", key: str | None = None) -> Holdfast:
        """An engine on the store of this name; with a key, it encrypts new runs with it."""
        made = self._engine_of.get((name, key))
        if made is None:
            if name not in self._stores:
                self._stores[name] = self.site.open(name, self.fuse)
            keys = Keyring(KEYS, current=key) if key is not None else None
            made = open_still(self._stores[name], keys=keys)
            self._engine_of[name, key] = made
        return made

    @property
    def hf(self) -> Holdfast:
        return self.engine()

    def recover(self) -> None:
        """Make ready what a dead process held: first without the keys, then with them."""
        self.hf.recover()
        self.engine(key="k1").recover()

    def leave(self) -> None:
        """End the process in good order. If it dies meanwhile, call `die`."""
        for engine in self._engine_of.values():
            engine.client.engine.worker.stop()
        for store in self._stores.values():
            store.close()
        _now.remove(self.world)

    def die(self) -> None:
        """The process is dead; what it had open goes with it."""
        for engine in self._engine_of.values():
            engine.client.engine.worker.stop()
        for store in self._stores.values():
            store.drop()
        _now.remove(self.world)

    # --- operations, and a note of what was acknowledged

    def note(self, run: Run) -> None:
        """The caller was told that everything up to here is done."""
        record = run.held.read_record()
        seen, uid = self.seen, run.uid
        seen.ids[uid], seen.heads[uid] = run.id, f"{record.seq}:{record.hash.hex()}"
        if record.status in ENDED:
            seen.ended[uid] = record.epoch, record.status
        else:
            seen.ended.pop(uid, None)

    def run(self, id: str, **how: Any) -> Run:
        run = self.hf.run(id, **how)
        self.note(run)
        return run

    def save(self, run: Run, state: Any, **how: Any) -> int:
        self.seen.attempted.append(copy.deepcopy(state))
        seq = run.save(state, **how)
        self.seen.states.setdefault(run.uid, {})[seq] = copy.deepcopy(state)
        self.note(run)
        return seq

    def once(self, run: Run, key: str, function: Callable[..., Any], *args: Any, **how: Any) -> Any:
        generation = run.checkpoint().generation
        result = run.once(key, function, *args, **how)
        self.seen.steps.setdefault(run.uid, {})[generation, key] = result
        self.note(run)
        return result

    def mark(self, run: Run, key: str, tool: str, target: str | None = None) -> None:
        generation = run.checkpoint().generation
        run.mark(key, tool, target, result=f"marked {key}")
        self.seen.steps.setdefault(run.uid, {})[generation, key] = f"marked {key}"
        self.note(run)

    def complete(self, run: Run, result: Any) -> None:
        run.complete(result)
        self.note(run)

    def gone(self, uid: str) -> None:
        """The caller was told that the run is deleted."""
        self.seen.gone.add(uid)
        self.seen.ended.pop(uid, None)


def at_work(desk: Desk) -> bool:
    """Whether the process has not ended yet."""
    return desk.world in _now


# --- the work


def loop(desk: Desk) -> None:
    """Saves of a growing state, plain steps, marks by the holder and by somebody else."""
    run = desk.run("loop", workflow="crash", definition={"version": 1}, tags={"part": "loop"})
    if run.status is Status.COMPLETED:
        return
    with run.claim():
        state = run.checkpoint().state or {"n": 0, "log": []}
        while state["n"] < 3:
            n = state["n"]
            value = desk.once(run, f"step-{n}", compute, f"step-{n}", n)
            state = {"n": n + 1, "log": [*state["log"], value * 3]}
            desk.save(run, state, next=f"step-{n + 1}", queue=[("tool", n)])
        desk.mark(run, "mail", "smtp", "a@example.org")
        desk.mark(desk.hf.get("loop"), "ping", "icmp")  # another handle: by way of the inbox
    desk.note(run)
    desk.complete(run, len(state["log"]))


def effects(desk: Desk) -> None:
    """A step with an undo, and one that must not happen twice."""
    run = desk.run("effects")
    if run.status is Status.COMPLETED:
        return
    with run.claim():
        desk.once(run, "write", put, "letter", "dear", target="letter", undo=take_away)
        payment = ("pay", pay, "rent", 100)
        try:
            desk.once(run, *payment, target="bank", at_most_once=True)
        except Uncertain:
            paid = desk.world.payments["rent"] > 0
            run.resolve("pay", done=paid, result="receipt for rent" if paid else None, by="clerk")
            desk.note(run)
            desk.once(run, *payment, target="bank", at_most_once=True)
    desk.complete(run, "paid")


def ask(desk: Desk) -> None:
    """A question, and its answer by somebody who does not hold the run."""
    run = desk.run("ask")
    if run.status is Status.COMPLETED:
        return
    with run.claim():
        if "go" not in run.checkpoint().answers and not run.questions():
            run.pause("Go on?", [{"name": "yes", "type": "boolean"}], output_key="go")
    desk.note(run)
    for question in run.questions():
        run.answer({"yes": True}, question=question.id, by="operator")
        desk.seen.answered.setdefault(run.uid, set()).add(question.id)
        desk.note(run)
    with run.claim():
        desk.save(run, {"go": run.checkpoint().answers["go"]})
    desk.complete(run, "went")


def fork(desk: Desk) -> None:
    """A fork goes its own way while the run that it came from is deleted."""
    try:
        twig = desk.hf.get("twig")
    except RunNotFound:
        trunk = desk.run("trunk")
        with trunk.claim():
            for n in range(len(trunk.history(kind=Kind.SAVED)), 2):
                desk.once(trunk, f"ring-{n}", put, f"ring-{n}", "wood", undo=take_away)
                desk.save(trunk, {"rings": n + 1, "bark": "rough" * 10})
        twig = trunk.fork(at=trunk.history(kind=Kind.SAVED).items[0].seq, id="twig")
    desk.note(twig)
    if twig.status is not Status.COMPLETED:
        with twig.claim():
            desk.once(twig, "leaf", put, "leaf", "green", undo=take_away)
            desk.save(twig, {**twig.checkpoint().state, "leaf": True})
        desk.complete(twig, "grown")
    try:
        trunk = desk.hf.get("trunk")
    except RunNotFound:
        return
    trunk.delete()
    desk.gone(trunk.uid)


def back(desk: Desk) -> None:
    """A failed run is rolled back, with its effects undone, and goes on."""
    run = desk.run("back")
    if run.status is Status.COMPLETED:
        return
    with suppress(RunEnded), run.claim():  # which finishes a rollback that has begun
        if run.checkpoint().generation == 0:
            if run.checkpoint().state is None:
                desk.save(run, {"at": 0})
            desk.once(run, "one", put, "one", "1", target="one", undo=take_away)
            if run.checkpoint().state == {"at": 0}:
                desk.save(run, {"at": 1})
            desk.once(run, "two", put, "two", "2", undo=take_away)
            desk.mark(run, "letter", "post")
            run.fail("out of paper")
            desk.note(run)
    if run.checkpoint().generation == 0:
        first = run.history(kind=Kind.SAVED).items[0].seq
        run.plan_rollback(first)
        run.rollback(first)
        desk.note(run)
    with run.claim():
        desk.once(run, "two", put, "again", "2", undo=take_away)
        desk.save(run, {"at": 2})
    desk.complete(run, "back")


def erase(desk: Desk) -> None:
    """Payloads are erased on request."""
    run = desk.run("erase")
    with suppress(RunEnded), run.claim():
        if run.checkpoint().state is None:
            desk.save(run, {"name": "world", "n": 0})
        desk.once(run, "greet", put, "greeting", "dear world", target="letter")
        if run.checkpoint().state["n"] == 0:
            desk.save(run, {"name": "world", "n": 1})
        desk.complete(run, "sent")
    if not run.history(kind=Kind.REDACTED):
        first = run.history(kind=Kind.SAVED).items[0].seq
        step = run.history(kind=Kind.DONE).items[0].seq
        run.redact(first, step, by="officer", why="asked to")
        desk.seen.erased[run.uid] = {first, step}
        desk.note(run)


def tidy(desk: Desk) -> None:
    """Ended runs are deleted and pruned, among them a fork and the run it came from."""
    boss = desk.run("boss")
    if not boss.is_completed("made"):
        old = desk.run("old")
        if old.status is not Status.COMPLETED:
            desk.save(old, {"old": True})
            desk.complete(old, 1)
        try:
            older = desk.hf.get("older")
        except RunNotFound:
            older = old.fork(id="older")
        desk.note(older)
        if older.status is not Status.COMPLETED:
            desk.complete(older, 2)
        last = desk.run("last")
        desk.complete(last, 3)
        desk.mark(boss, "made", "make")
    if not boss.is_completed("deleted"):
        for info in desk.hf.runs(prefix="last"):
            desk.hf.get("last").delete()
            desk.gone(info.uid)
        desk.mark(boss, "deleted", "delete")
    uids = {info.id: info.uid for info in desk.hf.runs()}
    for id in desk.hf.prune(older_than=timedelta(0)):
        desk.gone(uids[id])


def move(desk: Desk) -> None:
    """A backup is restored elsewhere, and goes on there when somebody says so."""
    boss = desk.run("boss")
    if not boss.is_completed("backed up"):
        going = desk.run("going")
        if not going.history(kind=Kind.SAVED):
            desk.save(going, {"going": 1})
        try:
            astray = desk.hf.get("astray")
        except RunNotFound:
            astray = going.fork(id="astray")
        desk.note(astray)
        if astray.status is not Status.COMPLETED:
            desk.complete(astray, "lost")
        desk.hf.backup(desk.path)
        with open(desk.path, "rb") as file:
            desk.seen.backup = file.read()
        desk.mark(boss, "backed up", "backup")
    there = desk.engine("there")
    if not boss.is_completed("restored"):
        there.restore(desk.path)
        desk.mark(boss, "restored", "restore")
    copied = there.get("going")
    if copied.status is Status.BLOCKED:
        copied.unblock(by="operator")
    if copied.status is not Status.COMPLETED:
        with copied.claim():
            copied.once("go", put, "gone", "far", target="far")
        copied.complete("arrived")


def secret(desk: Desk) -> None:
    """An encrypted run and its fork, while the master key is changed."""
    vault = desk.engine(key="k1")
    run = vault.run("secret")
    desk.note(run)
    if run.status is Status.COMPLETED:
        return
    with run.claim():
        if run.checkpoint().state is None:
            desk.save(run, {"pin": 1234})
        desk.once(run, "hide", put, "safe", "1234", target="safe", undo=take_away)
        desk.mark(vault.get("secret"), "whisper", "ear")
    try:
        shadow = vault.get("shadow")
    except RunNotFound:
        shadow = run.fork(at=run.history(kind=Kind.SAVED).items[0].seq, id="shadow")
    desk.note(shadow)
    desk.engine(key="k2").rotate_keys()
    if shadow.status is not Status.COMPLETED:
        if shadow.checkpoint().state == {"pin": 1234}:
            desk.save(shadow, {"pin": 4321})
        desk.complete(shadow, "dark")
    with run.claim():
        if run.checkpoint().state == {"pin": 1234}:
            desk.save(run, {"pin": 1234, "open": False})
    desk.complete(run, "safe")


Part = Callable[[Desk], None]
PARTS: dict[str, Part] = {part.__name__: part for part in (loop, effects, ask, fork, back, erase, tidy, move, secret)}


def whole(desk: Desk) -> None:
    """All parts in one store, one after the other, but for the one that deletes every ended run."""
    for part in PARTS.values():
        if part is not tidy:
            part(desk)
