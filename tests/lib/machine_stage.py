"""Where a random history takes place: engines on a store and the model of it, and how the two are compared."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis.stateful import RuleBasedStateMachine
from machine_model import Life, Moment, Twin
from machine_world import WORLD, Colour, Point, exact, put, take_away

import holdfast
from holdfast.engine.app import Holdfast
from holdfast.engine.run.handle import Run
from holdfast.errors import Claimed, HoldfastError, LeaseLost, RunBlocked, RunEnded, UndoFailed
from holdfast.kernel.model import Status
from holdfast.kernel.rules import LIVE
from holdfast.stores.protocol import Store
from holdfast.testing.clock import ManualClock

LEASE = 3600.0  # so long that the heartbeat, which beats in real time, never comes in between


class Stage(RuleBasedStateMachine):
    """Engines on a store, processes that live and die, and what is true of both the store and the model."""

    def __init__(self) -> None:
        super().__init__()
        WORLD.__init__()  # type: ignore[misc]
        self.clock = ManualClock()
        self.place = self.new_place()
        self.twins: dict[str, Twin] = {}  # by uid, also hidden ones
        self.gone: dict[str, Twin] = {}
        self.calls: Counter[str] = Counter()
        self.undos: Counter[str] = Counter()
        self.things: dict[str, int] = {}
        self.forks = 0
        self.lives = [self.born(), self.born()]
        self.watcher = self.open_engine()

    def open_store(self, place: str, clock: ManualClock) -> Store:
        """Open a handle on the store at ``place``."""
        raise NotImplementedError("say in a subclass how the store is opened")

    def new_place(self) -> str:
        """A place that no other example uses."""
        raise NotImplementedError("say in a subclass where the store lives")

    def remove_place(self, place: str) -> None:
        """Clean up."""

    # --- engines

    def open_engine(self) -> Holdfast:
        store = self.open_store(self.place, self.clock)
        hf = holdfast.open(store.place, store=store, lease=LEASE)
        hf.register(Colour)
        hf.register(Point)
        return hf

    def born(self) -> Life:
        return Life(self.open_engine())

    def kill(self, life: Life) -> None:
        """End an engine as a killed process ends: nothing is written."""
        life.hf.client.engine.worker.stop()
        life.hf.client.store.drop()

    def is_alive(self, life: Life | None) -> bool:
        return life is not None and life.until is not None and life.until > self.clock.now()

    def handle(self, life: Life, twin: Twin) -> Run:
        """The handle of this process on the run; it keeps one as long as it lives."""
        if twin.uid not in life.handles:
            life.handles[twin.uid] = life.hf.get(twin.id)
        return life.handles[twin.uid]

    def teardown(self) -> None:
        try:
            for twin in self.visible() if sys.exc_info()[0] is None else ():
                twin.checked = 0
                self.compare(twin)
        finally:
            for life in self.lives:
                life.hf.close()
            self.watcher.close()
            self.remove_place(self.place)

    # --- choosing

    def visible(self) -> list[Twin]:
        return [twin for twin in self.twins.values() if twin.uid not in self.gone]

    def pick(self, n: int) -> Twin:
        found = self.visible()
        return found[n % len(found)]

    def named(self, id: str) -> Twin | None:
        return next((twin for twin in self.visible() if twin.id == id), None)

    # --- holding a run

    def enlist(self, life: Life) -> None:
        if life.until is None:
            life.until = self.clock.now() + int(LEASE * 1_000_000)

    def confirm(self, life: Life) -> None:
        """A process that is about to do something outside beats first, if its leases have ended meanwhile."""
        if not self.is_alive(life):
            life.until = self.clock.now() + int(LEASE * 1_000_000)

    def refusal(self, twin: Twin, allow: frozenset[Status]) -> type[HoldfastError] | None:
        """Why the run may not be claimed now."""
        if twin.status not in allow:
            return RunBlocked if twin.status is Status.BLOCKED else RunEnded
        return Claimed if self.is_alive(twin.holder) else None

    def take(self, life: Life, twin: Twin, *, rolls: bool = False) -> bool:
        """The run is claimed: what was begun is finished, and what waits is taken in. Whether it is held then.

        One who ``rolls`` it back finishes it himself.
        """
        twin.holder, twin.status = life, Status.RUNNING
        twin.epoch += 1
        if twin.rolling is not None and rolls:
            return True
        if twin.rolling is not None and self.finish_rollback(twin) == "blocked":
            return False
        twin.drain()
        return True

    def finish_rollback(self, twin: Twin, dies: str | None = None) -> str:
        """Undo what is to be undone, unless it dies, or is blocked by an undo that fails; how it ended."""
        assert twin.rolling is not None
        assert twin.holder is not None
        if not twin.rolling.settled.issuperset(twin.rolling.plan):
            self.confirm(twin.holder)
        for seq in twin.undos():
            deed = twin.now.deeds[seq]
            works, passes = deed.undo == "works", deed.status != "done"
            if passes and twin.rolling.force:
                twin.undone(seq, None)
                twin.rolling.settled.add(seq)
                continue
            self.undos[deed.place] += 1
            if works and dies != "before":
                self.things.pop(deed.place, None)
            if works and dies is not None:
                return "died"
            twin.undone(seq, "undone" if works else "undo_failed")
            if not works and not twin.rolling.force:
                twin.let_go(Status.BLOCKED)
                return "blocked"
            twin.rolling.settled.add(seq)
        twin.rewind()
        return "ended"

    def is_zombie(self, life: Life, twin: Twin) -> bool:
        return life in twin.hands and twin.holder is not life

    def bury(self, life: Life, twin: Twin) -> None:
        """A handle whose run was taken over writes: that is refused, nothing is done, and it gives up."""
        if not self.is_zombie(life, twin):
            return
        handle = life.handles[twin.uid]
        with pytest.raises(LeaseLost):
            handle.save({"written by": "a zombie"})
        with pytest.raises(LeaseLost):
            handle.once("zombie", put, "grave", 0, undo=take_away)
        handle.release()
        twin.hands.remove(life)

    def act(
        self,
        side: int,
        twin: Twin,
        call: Callable[[Run], Any],
        then: Callable[[Any], Any],
        *,
        allow: frozenset[Status] = LIVE,
        during: type[BaseException] | None = None,
        prepare: Callable[[], type[BaseException] | None] | None = None,
        rolls: bool = False,
    ) -> None:
        """Do something that needs the lease, with the one that is held or one for this call alone.

        ``prepare`` looks at the model once the run is held, and says which error the call must raise. ``then`` does
        the same to the model.
        """
        life = self.lives[side]
        self.bury(life, twin)
        handle, owned = self.handle(life, twin), life not in twin.hands
        if owned:
            self.enlist(life)
            if (refused := self.refusal(twin, allow)) is not None:
                with pytest.raises(refused):
                    call(handle)
                self.compare(twin)
                return
            if not self.take(life, twin, rolls=rolls):
                with pytest.raises(UndoFailed):
                    call(handle)
                self.compare(twin)
                return
        expected = prepare() if prepare is not None else during
        if expected is None:
            then(call(handle))
        else:
            with pytest.raises(expected):
                call(handle)
            then(None)
        if owned and twin.holder is life:
            twin.let_go()
        self.compare(twin)

    # --- comparing

    def tick(self) -> None:
        self.clock.advance(0.001)

    def look(self, twin: Twin) -> Run:
        """A handle that knows nothing from before."""
        return self.watcher.get(twin.id)

    def compare(self, twin: Twin) -> None:
        """What the store says about the run is what the model says."""
        run = self.look(twin)
        info = run.info()
        assert run.uid == twin.uid
        assert (info.status, info.seq, info.generation) == (twin.status, twin.seq, twin.now.generation)
        assert (info.holder is None) is (twin.holder is None)
        if twin.holder is not None:
            assert info.holder == twin.holder.hf.client.engine.worker.name
        self.compare_journal(twin, run)
        for seq in range(min(twin.checked, twin.seq), twin.seq + 1):
            self.compare_moment(run, seq, twin.moments[seq])
        for seq in {self.clock.now() % (twin.seq + 1), twin.seq // 2}:
            self.compare_moment(run, seq, twin.moments[seq])
        twin.checked = twin.seq
        assert WORLD.things == self.things
        assert WORLD.calls == self.calls
        assert WORLD.undos == self.undos

    def compare_journal(self, twin: Twin, run: Run) -> None:
        """No gaps, the right kinds, nothing changed since it was read first, and the chain verifies."""
        history = run.history(limit=1000)
        ahead = twin.ahead()
        assert [(entry.seq, entry.kind) for entry in history] == [
            (seq, str(moment.kind)) for seq, moment in enumerate(ahead)
        ]
        assert [entry.seq for entry in history if entry.live] == list(ahead[-1].live)
        assert [entry.seq for entry in history if entry.pending] == list(range(twin.seq + 1, len(ahead)))
        assert [entry.seq for entry in history if entry.inherited] == list(range(twin.base))
        record = run.held.read_record()
        assert record.epoch == twin.epoch
        hashes = [entry.hash for entry in self.watcher.client.journals.headers(record, 0, twin.seq)]
        assert hashes[: len(twin.hashes)] == twin.hashes
        twin.hashes = hashes
        report = run.audit()
        assert (report.entries, report.redacted) == (twin.seq + 1, ())
        assert report.pending == tuple(str(moment.kind) for moment in ahead[twin.seq + 1 :])
        newest = run.checkpoint()
        assert (set(newest.completed), set(newest.answers)) == (set(ahead[-1].done), set(ahead[-1].answers))

    def compare_moment(self, run: Run, seq: int, moment: Moment) -> None:
        """A checkpoint says what was acknowledged, whatever happened since."""
        found = run.checkpoint(seq)
        assert (found.seq, found.generation) == (seq, moment.generation)
        assert (found.state_seq, found.step, found.next) == (moment.state_seq, moment.step, moment.next)
        if moment.state_seq is not None:
            assert exact(found.state) == moment.state
        assert {key: exact(value) for key, value in found.results.items()} == {
            key: done.result for key, done in moment.done.items()
        }
        assert [(effect.seq, effect.key, effect.status) for effect in found.effects] == [
            (n, deed.key, deed.status) for n, deed in sorted(moment.deeds.items())
        ]
        assert {question.seq: (question.prompt, question.output_key) for question in found.questions} == {
            n: (asked.prompt, asked.output_key) for n, asked in moment.questions.items()
        }
        assert {key: exact(value) for key, value in found.answers.items()} == moment.answers
        if moment.ended is not None:
            assert exact(found.result) == moment.result
