"""What must hold wherever the work of `scenario` is interrupted.

`crash_at` lets a part of it die at one point and be finished by the next process, and gives what was violated;
`crash_twice` lets that process die as well, at each point of its own; `power_fails` lets it find what a power failure
may have left. The invariants are those of the design: nothing acknowledged is lost or changed, nothing completed is
done again, nothing at-most-once is done twice, no run is stranded, and the outcome is that of the work without a crash.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from hashlib import blake2b
from typing import Any

from powerloss import Platter, PowerLossDisk, fingerprint
from scenario import Desk, FilesSite, Part, Seen, Site, at_work

from holdfast.engine.run.handle import Run
from holdfast.errors import Claimed, HoldfastError, Redacted, RunNotFound
from holdfast.kernel.fold import name_in
from holdfast.kernel.model import Filter, Kind, Status
from holdfast.stores.files.store import FilesStore
from holdfast.stores.protocol import Store
from holdfast.testing.crash import Crash, Fuse
from holdfast.views import Effect

# --- what must hold


def outcome(desk: Desk) -> dict[str, Any]:
    """How everything is, without what may differ when work is interrupted: numbers, times, and tries that died."""
    told: dict[str, Any] = {"things": dict(sorted(desk.world.things.items())), "payments": dict(desk.world.payments)}
    for name in ("here", "there") if "there" in desk._stores else ("here",):
        hf = desk.engine(name, "k1")
        for info in hf.runs(limit=1000):
            told[f"{name}/{info.id}"] = _told(hf.get(info.id), info)
    told["hidden"] = len(desk.engine().client.store.find(Filter(hidden=True)))
    return told


# A try that died leaves an intent more; what is resolved is not done; and a claim alone lets a parked run go on.
_DIED = frozenset({"uncertain", "raised", "repeated"})  # effects of tries that were not the last
_CHANCE = frozenset({"now", "random", "uuid"})  # what a workflow asks for, and gets another time differently
_COUNTED = frozenset(Kind) - {Kind.INTENDED, Kind.DONE, Kind.RAISED, Kind.RESOLVED, Kind.SAVED, Kind.UNBLOCKED}


def _told(run: Run, info: Any) -> dict[str, Any]:
    now = run.checkpoint()
    kinds = Counter(entry.kind for entry in run.history(limit=10_000))
    return {
        "status": info.status,
        "generation": info.generation,
        "state": now.state,
        "next": now.next,
        "queue": now.queue,
        "results": {key: result for key, result in now.results.items() if name_in(key) not in _CHANCE},
        "completed": sorted(now.completed),
        "answers": now.answers,
        "result": now.result,
        "questions": len(now.questions),
        "effects": sorted((e.key, _became(e)) for e in run.effects() if e.status not in _DIED),
        "entries": {kind: n for kind, n in sorted(kinds.items()) if kind in _COUNTED},
        "erased": len(run.audit().redacted),
    }


def _became(effect: Effect) -> str:
    """What became of an effect. A child is not undone for sure if one of its own tries died."""
    doubtful = effect.status == "left" and re.search(r"of its run '[^']*', \d+ uncertain;", effect.error or "")
    return "undone" if doubtful else effect.status


def check_acknowledged(desk: Desk, *, everywhere: bool = True) -> None:
    """Raise AssertionError if something that was acknowledged is missing or changed.

    Everywhere, so also where nothing was acknowledged, there must be no state that never was.
    """
    seen = desk.seen
    for uid, id in seen.ids.items():
        if uid in seen.gone:
            record = desk.engine().client.store.get(id)
            assert record is None or record.uid != uid, f"{id} was deleted and is back"
            continue
        run = _found(desk, uid, id)
        if run is not None:
            _check_run(seen, run, everywhere)
    if seen.backup is not None:
        with open(desk.path, "rb") as file:
            assert file.read() == seen.backup, "the backup changed"


def _found(desk: Desk, uid: str, id: str) -> Run | None:
    """The run; None if it may be gone, because its deletion was under way."""
    try:
        run = desk.engine(key="k1").get(id)
    except RunNotFound:
        assert id in ("trunk", "old", "older", "last"), f"run {id} is lost"
        return None
    assert run.uid == uid, f"run {id} is another one now"
    return run


def _check_run(seen: Seen, run: Run, everywhere: bool) -> None:
    uid = run.uid
    report = run.audit(head=seen.heads[uid])
    record = run.held.read_record()
    erased = seen.erased.get(uid, set())
    assert erased <= set(report.redacted), "what was erased is back"
    states = seen.states.get(uid, {})
    for seq in range(record.seq + 1) if everywhere else states:
        try:
            state = run.checkpoint(seq).state
        except Redacted:
            assert report.redacted, f"{run.id} at {seq} is erased and nobody asked for it"
            continue
        assert state in seen.attempted, f"{run.id} at {seq} has a state that never was: {state!r}"
        assert seq not in states or state == states[seq], f"{run.id} at {seq}: {state!r}, not {states[seq]!r}"
    now = run.checkpoint()
    for (generation, key), result in seen.steps.get(uid, {}).items():
        if generation == now.generation:
            assert run.is_completed(key), f"{run.id}: step {key} is forgotten"
            assert key not in now.results or now.results[key] == result, f"{run.id}: {key} gave {now.results[key]!r}"
    open_questions = {question.id for question in run.questions()}
    assert not open_questions & seen.answered.get(uid, set()), f"{run.id}: an answer is forgotten"
    if uid in seen.ended:
        epoch, status = seen.ended[uid]
        assert record.epoch > epoch or record.status is status, f"{run.id} was {status} and is {record.status}"
    undone = Counter(data["effect"] for data in _undone(run))
    assert not undone or max(undone.values()) == 1, f"{run.id}: an undo is on record twice: {undone}"


def settled(desk: Desk) -> tuple[dict[str, int], dict[str, int]]:
    """How often each function was called whose result, or undo, is on record: it must not be called again."""
    called: dict[str, int] = {}
    undone: dict[str, int] = {}
    hf = desk.engine(key="k1")
    for info in hf.runs(limit=1000):
        run = hf.get(info.id)
        record = run.held.read_record()
        for _, entry in run.held.journals.entries(record, record.base, record.seq, saved=False):
            data = run.held.journals.data(run.id, record.uid, entry)
            name = _named(run, data, entry.kind)
            if entry.kind == Kind.DONE and name in desk.world.calls:
                called[name] = desk.world.calls[name]
            elif entry.kind == Kind.UNDONE and data["ok"] and name in desk.world.undos:
                undone[name] = desk.world.undos[name]
    return called, undone


def _undone(run: Run) -> list[dict[str, Any]]:
    """The undos that succeeded."""
    record = run.held.read_record()
    entries = run.held.journals.entries(record, record.base, record.seq, saved=False)
    told = [run.held.journals.data(run.id, record.uid, entry) for _, entry in entries if entry.kind == Kind.UNDONE]
    return [data for data in told if data["ok"]]


def acted(desk: Desk) -> dict[tuple[str, str, str], int]:
    """How often each step of a workflow acted that is on record as done: it must not act again under the same key."""
    done: dict[tuple[str, str, str], int] = {}
    hf = desk.engine(key="k1")
    for info in hf.runs(limit=1000):
        run = hf.get(info.id)
        steps = run.held.refold(run.held.read_record()).steps
        done |= {act: n for act, n in desk.world.acts.items() if act[0] == run.id and act[1] in steps}
    return done


def taken_back(desk: Desk) -> dict[str, int]:
    """How often each step of a workflow was undone, by idempotency key, if that is on record: it must not be again."""
    undone: dict[str, int] = {}
    hf = desk.engine(key="k1")
    for info in hf.runs(limit=1000):
        run = hf.get(info.id)
        record = run.held.read_record()
        for data in _undone(run):
            uid, entry = run.held.journals.entry(record, data["effect"])
            generation = sum(rewind.at < entry.seq for rewind in record.rewinds)
            key = run.held.journals.data(run.id, uid, entry)["key"]
            made = blake2b(f"{record.uid}/{generation}/{key}".encode(), digest_size=16).hexdigest()
            undone[made] = desk.world.undos[made]
    return undone


def _named(run: Run, data: dict[str, Any], kind: str) -> str:
    """What the step of this entry did, as the world knows it."""
    intent = data.get("intent") if kind == Kind.DONE else data.get("effect") if kind == Kind.UNDONE else None
    if intent is None:
        return str(data.get("key", ""))
    uid, entry = run.held.journals.entry(run.held.read_record(), intent)
    args = run.held.journals.data(run.id, uid, entry).get("args", [""])
    return str(args[0])


def check_claims(desk: Desk) -> None:
    """Raise AssertionError if a run is stranded, or can be claimed twice."""
    assert not desk.hf.client.store.find(Filter(orphaned=True)), "a run is still held by a dead worker"
    for info in desk.hf.runs(limit=1000):
        assert info.status is not Status.RUNNING, f"{info.id} is running and nobody holds it"
        if info.status in (Status.READY, Status.WAITING):
            one, two = desk.engine(key="k1").get(info.id), desk.engine(key="k2").get(info.id)
            with one.claim():
                try:
                    two.claim()
                except Claimed:
                    continue
                raise AssertionError(f"{info.id} was claimed twice")


# --- crashing


def live(site: Site, part: Part, fuse: Fuse, *, recover: bool = True) -> bool:
    """One process: recover what the one before left, then do the work. Whether it lived to the end."""
    desk = Desk(site, fuse)
    try:
        if recover:
            desk.recover()
        part(desk)
        desk.leave()
        fuse.point("end")
    except Crash:
        if at_work(desk):
            desk.die()
        return False
    except BaseException:  # a failed check, too: no thread of it goes on
        desk.die()
        raise
    return True


def without_crash(site: Site, part: Part) -> tuple[Fuse, dict[str, Any]]:
    """The points of a part, and its outcome."""
    site.wipe()
    fuse = Fuse()
    assert live(site, part, fuse)
    return fuse, finish(site, part)


def finish(site: Site, part: Part, *, recover: bool = True) -> dict[str, Any]:
    """The next process: checks what it finds, finishes the work, checks again. The outcome."""
    desk = Desk(site, Fuse())
    try:
        check_acknowledged(desk)
        called, undone = settled(desk)
        done, gone = acted(desk), taken_back(desk)
        if recover:
            desk.recover()
            assert not desk.hf.client.store.find(Filter(orphaned=True)), "recover() left a run with its dead holder"
        part(desk)
        check_acknowledged(desk, everywhere=False)
        for name, times in called.items():
            assert desk.world.calls[name] == times, f"{name} was done, and was called again"
        for act, times in done.items():
            assert desk.world.acts[act] == times, f"step {act[1]} of {act[0]} was done, and acted again"
        for made, times in gone.items():
            assert desk.world.undos[made] == times, f"step {made} was undone, and was undone again"
        for name, times in undone.items():
            assert desk.world.undos[name] == times, f"{name} was undone, and was undone again"
        desk.recover()
        check_claims(desk)
        return outcome(desk)
    finally:
        try:
            desk.leave()
        except BaseException:  # also an interrupt: the next process starts from nothing
            desk.die()
            raise


def crash_at(site: Site, part: Part, at: int, expected: dict[str, Any], *, recover: bool = True) -> str | None:
    """Let a part die at one point, and the next process finish it; what was violated, if anything."""
    site.wipe()
    fuse = Fuse(at)
    lived = live(site, part, fuse)
    place = f"{site.kind} {part.__name__} {at} ({fuse.points[-1][0]})"
    if lived:
        return f"{place}: the point was not reached"
    return _verdict(place, site, part, expected, recover)


def _verdict(place: str, site: Site, part: Part, expected: dict[str, Any], recover: bool) -> str | None:
    try:
        found = finish(site, part, recover=recover)
    except (AssertionError, HoldfastError, OSError, LookupError) as error:
        return f"{place}: {type(error).__name__}: {error}"
    differences = [difference for name in sorted(expected) for difference in _differences(name, found, expected)]
    more = sorted(found.keys() - expected.keys())
    return f"{place}: {'; '.join([*differences, *more])}" if differences or more else None


def _differences(name: str, found: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    is_, should = found.get(name), expected[name]
    if isinstance(is_, dict) and isinstance(should, dict) and is_.keys() == should.keys():
        return [f"{name}: {one} is {is_[one]!r}, not {should[one]!r}" for one in should if is_[one] != should[one]]
    return [f"{name} is {is_!r}, not {should!r}"] if is_ != should else []


def crash_twice(site: Site, part: Part, at: int, expected: dict[str, Any]) -> tuple[int, list[str]]:
    """Let a part die at one point, and the next process at each of its own; how many, and what was violated."""
    site.wipe()
    if live(site, part, Fuse(at)):
        return 0, [f"{site.kind} {part.__name__} {at}: the point was not reached"]
    image = site.image()
    fuse = Fuse()
    assert live(site, part, fuse)
    violations = []
    for second in fuse.distinct():
        site.restore(image)
        place = f"{site.kind} {part.__name__} {at}, then {second} ({fuse.points[second][0]})"
        if live(site, part, Fuse(second)):
            violations.append(f"{place}: the point was not reached")
        elif verdict := _verdict(place, site, part, expected, True):
            violations.append(verdict)
    return len(fuse.distinct()), violations


# --- power failures


class PowerSite(FilesSite):
    """Files on a disk that forgets what was not synced. Keeps what may be found after a failure at each moment."""

    kind = "power"

    def __init__(self, folder: str, *, every: bool = False) -> None:
        super().__init__(folder)
        self.every = every
        self.platter = Platter(folder)
        self.found: dict[bytes, tuple[str, Any]] = {}
        self.moments = 0

    def open(self, name: str, fuse: Fuse) -> Store:
        return FilesStore(os.path.join(self.folder, name), disk=PowerLossDisk(self.platter, self.moment))

    def wipe(self) -> None:
        super().wipe()
        self.platter, self.found, self.moments = Platter(self.folder), {}, 0

    def moment(self, what: str) -> None:
        """The power may fail here. Of two that leave the same, the later one has acknowledged more."""
        self.moments += 1
        frozen = self._frozen()
        backup = os.path.join(self.folder, "backup.jsonl")
        for how, tree in self.platter.leftovers(every=self.every):
            if os.path.exists(backup):
                with open(backup, "rb") as file:
                    tree["backup.jsonl"] = file.read()
            acted = repr((frozen[0].things, frozen[0].payments)).encode()
            place = f"power fails before {what.replace(self.folder, '')}: {how}"
            self.found[fingerprint(tree) + acted] = place, (tree, frozen)


def power_failures(
    folder: str, part: Part, *, every: bool = False
) -> tuple[int, list[tuple[str, Any]], dict[str, Any]]:
    """How many moments there are at which the power can fail, what may then be found, and the outcome without it."""
    site = PowerSite(folder, every=every)
    site.wipe()
    assert live(site, part, Fuse())
    site.moment("the end")
    moments, found = site.moments, list(site.found.values())
    return moments, found, finish(site, part)


def power_fails(site: Site, part: Part, place: str, image: Any, expected: dict[str, Any]) -> str | None:
    """Let the next process find this, and finish the work; what was violated, if anything."""
    site.restore(image)
    return _verdict(f"{part.__name__}: {place}", site, part, expected, True)
