"""A crash, or a power failure, at every single call that changes the disk: what was acknowledged is there, and no
state appears that nobody made. Afterwards the store goes on."""

import copy
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sizes import sample, size

from holdfast.codec import redaction
from holdfast.errors import Claimed, LeaseLost, RunNotFound
from holdfast.kernel.journal import payload_digest, verify
from holdfast.kernel.model import Change, Filter, Item, Post, Status
from holdfast.stores.files.disk import Disk
from holdfast.stores.files.store import FilesStore
from holdfast.stores.protocol import write_one
from holdfast.testing.contract_author import delete


def erased(seq: int, payload: bytes) -> tuple[int, bytes]:
    return seq, redaction(payload_digest(payload))


class Story:
    """A sequence of transitions of two runs and a fork. Before each one `look` gives what is to be seen then."""

    def __init__(self, root: Path, drive: type, disk: Disk | None = None) -> None:
        self.store = FilesStore(str(root), disk=disk)
        self.driver = drive(self.store)

    def steps(self) -> list[Callable[[], object]]:
        driver, store = self.driver, self.store

        def run(id: str = "a"):
            record = store.get(id)
            if record is None:
                raise RunNotFound(id)
            return record

        def add(seq: int, *payloads: bytes, **more: object) -> None:
            if run().seq < seq:  # a step that was made before a crash is not repeated
                driver.append(run(), *payloads, **more)

        return [
            lambda: driver.create("a", b'"start"', uid="00000000000000000000000a"),
            lambda: store.beat("w1", 1000.0),
            lambda: driver.claim(run()),
            lambda: add(1, b'"one"'),
            lambda: add(3, b'"two"', b'"secret"'),
            lambda: write_one(store, Post(run().uid, Item("k1", "message", 1, b'"hello"'))),
            lambda: write_one(store, Post(run().uid, Item("k2", "message", 2, b'"there"', wakes=False))),
            lambda: add(4, b'"took"', took=("k1",)),
            lambda: add(5, b'"erased"', redact=(erased(3, b'"secret"'),)),
            lambda: add(6, b'"both"', took=("k2",), redact=(erased(1, b'"one"'),), change=Change(rollback=2)),
            lambda: add(7, b'"plain"'),
            lambda: add(8, b'"wait"', change=Change(status=Status.WAITING, wake_at=7, release=True)),
            lambda: write_one(store, Post(run().uid, Item("k3", "message", 3, b'"wake"'))),
            lambda: driver.claim(run()),
            lambda: add(9, b'"nap"', change=Change(status=Status.WAITING)),
            lambda: driver.append(
                run(), took=("k3",), redact=(erased(2, b'"two"'),), change=Change(status=Status.RUNNING)
            ),
            lambda: driver.fork(run(), 4, "b"),
            lambda: driver.append(run(), change=Change(status=Status.COMPLETED, release=True)),
            lambda: delete(store, run().uid),
            lambda: driver.create("a", uid="00000000000000000000000b"),
            lambda: delete(store, run("b").uid),
            lambda: delete(store, run("a").uid),
        ]


def look(root: Path) -> object:
    """All that can be seen in a store by a new handle, and that it adds up. Forks are told by id: uids are random."""
    if not (root / "holdfast.json").exists():
        return []
    store = FilesStore(str(root))
    seen = []
    found = store.find(Filter(hidden=None), limit=100)
    shared = {link.uid for record in found for link in record.lineage}
    for record in found:
        if record.hidden and record.uid not in shared:
            continue  # the next delete removes it
        entries = store.read(record.uid, 0, 10**9)
        verify(record.id, entries)
        assert [entry.seq for entry in entries] == list(range(record.base, record.seq + 1))
        assert entries[0].prev == record.root
        assert entries[-1].hash == record.hash
        assert (store.get(record.id) == record) is not record.hidden
        for link in record.lineage:
            assert store.read(link.uid, 0, link.upto)[-1].hash == record.root
        mail = (
            [] if record.hidden else [store.inbox(record.uid), [one.key for one in store.inbox(record.uid, taken=True)]]
        )
        about = (record.id, record.status, record.epoch, record.worker, record.wake_at, record.rollback, record.hidden)
        seen.append((about, [(entry.seq, entry.payload) for entry in entries], mail))
    return sorted(seen, key=str)


class Scene:
    """The store as it was before a step, and what is to be seen before it and after it."""

    def __init__(self, folder: Path, names: object, views: tuple[object, object]) -> None:
        self.folder, self.names, self.views = folder, names, views


@pytest.fixture(scope="module")
def scenes(drive, power_disk) -> Iterator[list[Scene]]:
    """A scene for each step of the story."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as place:
        live = Path(place) / "live"
        live.mkdir()
        disk = power_disk(10**9, "after", live)
        story = Story(live / "store", drive, disk)
        found = []
        for n, step in enumerate(story.steps()):
            before, names = look(live / "store"), copy.deepcopy(disk._node)
            shutil.copytree(live, Path(place) / str(n))
            step()
            found.append(Scene(Path(place) / str(n), names, (before, look(live / "store"))))
        story.store.close()
        yield found


def crashes(scenes: list[Scene], folder: Path, drive: type, disk_type: type, how: str, crash: type[BaseException]):
    """Play each step and die at each call that it makes; gives the step's number and the disk after each death.

    The step before is played too, by the same handle, so that what a handle knows from before is put to the test.
    """
    for n, scene in sample(list(enumerate(scenes)), 7):
        first = max(n - 1, 0)
        at = 0
        while True:
            at += 1
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(scenes[first].folder, folder)
            disk = disk_type(10**9, how, folder, copy.deepcopy(scenes[first].names))
            story = Story(folder / "store", drive, disk)
            story.store.beat("w1", 1000.0)
            for step in story.steps()[first:n]:
                step()
            disk.at = disk.count + at
            try:
                story.steps()[n]()
            except crash:
                story.store.drop()
                yield n, scene, disk, f"call {at} of step {n}"
                continue
            story.store.drop()
            assert look(folder / "store") == scene.views[1]
            break


def go_on(root: Path, drive: type, n: int) -> None:
    """Repeat the step that was interrupted and play some more, as somebody else would after the crash."""
    story = Story(root, drive)
    story.store.beat("w1", 1000.0)
    for step in story.steps()[n : n + 4]:
        with suppress(LeaseLost, Claimed, RunNotFound):  # a step that was made before the crash cannot be repeated
            step()
    assert delete(story.store, story.driver.create("the next one").uid)
    assert leftovers(root) == []
    look(root)
    story.store.close()


@pytest.mark.parametrize("how", ["before", "after", "half"])
def test_a_crash_at_every_call(memdir, drive, crash_disk, crash, scenes, how):
    folder, deaths = memdir / "live", 0
    for n, scene, _, where in crashes(scenes, folder, drive, crash_disk, how, crash):
        assert look(folder / "store") in scene.views, where
        settle(folder / "store", scene.views)
        go_on(folder / "store", drive, n)
        deaths += 1
    assert deaths > size(40, 200)


def test_a_crash_while_the_store_is_made(memdir, drive, crash_disk, crash):
    for how in ("before", "after", "half"):
        for at in range(1, 100):
            root = memdir / f"{how}{at}"
            try:
                FilesStore(str(root), disk=crash_disk(at, how)).close()
            except crash:
                drive(FilesStore(str(root))).create("run")
                continue
            break
        assert 10 < at < 50


def settle(root: Path, either: tuple[object, object]) -> None:
    """The first writer after a crash finishes what was begun, and thereby changes nothing that is to be seen."""
    store = FilesStore(str(root))
    seen = look(root)
    for record in store.find(Filter(hidden=None), limit=100):
        with store._run(record.uid, exclusive=True) as folder:
            folder.settle()
    with pytest.raises(RunNotFound):
        store.claim("f" * 24, "w")
    assert look(root) == seen
    assert seen in either
    for path in root.rglob("journal.jsonl"):
        if not path.parent.name.startswith("."):
            assert path.read_bytes().endswith(b"\n")
    store.drop()


def leftovers(root: Path) -> list[str]:
    """Names that mean nothing and should have been removed."""
    return [name for kind in ("runs", "hidden") for name in os.listdir(root / kind) if name[0] == "."]


def test_a_power_failure_at_every_call(memdir, drive, power_disk, crash, scenes):
    left, deaths = memdir / "left", 0
    for n, scene, disk, where in crashes(scenes, memdir / "live", drive, power_disk, "after", crash):
        for names in (False, True):
            for data in (False, True):
                disk._after_power_failure(left, names=names, data=data)
                assert look(left / "store") in scene.views, f"{where}, names {names}, data {data}"
                if names is data:
                    go_on(left / "store", drive, n)
                shutil.rmtree(left)
        deaths += 1
    assert deaths > size(40, 200)


def test_what_is_built_on_unsynced_things_is_lasting(memdir, drive, power_disk, crash, scenes):
    """A process dies before its sync, the next one builds on what is there, and then the power fails."""
    live, left = memdir / "live", memdir / "left"
    for n, _, disk, where in crashes(scenes, live, drive, power_disk, "after", crash):
        disk.at = 10**9  # the machine goes on, and with it all that was not synced
        story = Story(live / "store", drive, disk)
        story.store.beat("w1", 1000.0)
        for step in story.steps()[n : n + 3]:
            syncs = disk.syncs
            with suppress(LeaseLost, Claimed, RunNotFound):
                step()
            if syncs == disk.syncs:
                continue  # nothing was written, so nothing was promised
            disk._after_power_failure(left, names=False, data=False)
            assert look(left / "store") == look(live / "store"), where
            shutil.rmtree(left)
        story.store.drop()


def test_a_fork_does_not_stand_on_what_a_power_failure_takes_away(memdir, drive, power_disk, crash):
    disk = power_disk(10**9, "after", memdir)
    driver = drive(FilesStore(str(memdir / "store"), disk=disk)).enlist()
    run = driver.append(driver.claim(driver.create("run")), b"1")
    disk.at = disk.count + 2
    with pytest.raises(crash):
        driver.append(run, b"2")  # dies when the line is written and not yet synced
    driver.store.drop()
    disk.at = 10**9
    second = drive(FilesStore(str(memdir / "store"), disk=disk))
    parent = second.store.get("run")
    assert parent.seq == 2
    second.fork(parent, 2, "fork")
    disk._after_power_failure(memdir / "left", names=False, data=False)
    assert len(look(memdir / "left" / "store")) == 2


def test_a_run_whose_creator_died_lasts_when_somebody_goes_on_with_it(memdir, drive, power_disk, crash):
    for go_on_with in ("claim", "create"):
        parent = memdir / go_on_with
        parent.mkdir()
        disk = power_disk(10**9, "after", parent)
        bystander = drive(FilesStore(str(parent / "store"), disk=disk), "w2").enlist()
        bystander.create("other")
        creator = drive(FilesStore(str(parent / "store"), disk=disk))
        creator.create("another")
        calls = disk.count
        creator.create("a third")
        disk.at = disk.count + (disk.count - calls) - 1  # all but the last call, which syncs the folder of the runs
        with pytest.raises(crash):
            creator.create("run")
        disk.at = 10**9
        if go_on_with == "claim":
            bystander.append(bystander.claim(bystander.store.get("run")), b"1")
        else:
            bystander.create("run")
        disk._after_power_failure(memdir / "left", names=False, data=False)
        assert FilesStore(str(memdir / "left" / "store")).get("run") == bystander.store.get("run")
        shutil.rmtree(memdir / "left")
