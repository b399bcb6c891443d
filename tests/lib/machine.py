"""Random histories of an engine on a store, compared with a model after every step.

Two engines share one store, as two processes would. They create, claim, save, act, pause, answer, fork, roll back,
delete, prune and recover; leases expire, and processes die: in the act of a step, in the act of an undo, or between
two calls. The model is a few plain containers: for every entry of every run a `Moment`, what the checkpoint at that
entry must say for ever; and beside it who holds the run and what waits in its inbox. What the steps do to the world
is counted in `World`, so a step that was run again, or an undo that was called once too often, is noticed.

To try it on a store of your own, say how it is opened and let Hypothesis run it:

    class MyMachine(StoreMachine):
        def open_store(self, place, clock):
            return MyStore(place, clock=clock)

        def new_place(self):
            return tempfile.mkdtemp()

    run_state_machine_as_test(MyMachine)
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from machine_model import Asked, Deed, Done, Moment, Twin
from machine_stage import LEASE, Stage
from machine_world import UNDOS, WORLD, Died, compute, exact, put, texts, values

import holdfast
from holdfast.engine.run.handle import Run
from holdfast.errors import (
    Claimed,
    NoCheckpoint,
    NonDeterminism,
    QuestionClosed,
    RunEnded,
    RunExists,
    RunNotFound,
    Uncertain,
    UndoFailed,
    UsageError,
)
from holdfast.kernel.model import ENDED, Kind, Status
from holdfast.kernel.rules import LIVE

picks = st.integers(0, 30)
keys = st.sampled_from("abcdefgh")
sides = st.integers(0, 1)


class StoreMachine(Stage):
    """What happens in a random history. Subclass it and say how the store is opened."""

    # --- rules: runs and leases

    @precondition(lambda self: len(self.visible()) < 3)
    @rule(side=sides, n=st.integers(0, 1))
    def create(self, side: int, n: int) -> None:
        self.tick()
        id = f"run {n}"
        made = self.lives[side].hf.run(id, workflow="w", tags={"n": str(n)})
        twin = self.named(id)
        if twin is not None:
            assert made.uid == twin.uid
            return
        assert made.uid not in self.twins
        self.twins[made.uid] = twin = Twin(id, made.uid, 0, [Moment()])
        self.compare(twin)

    @precondition(lambda self: self.visible())
    @rule(side=sides, n=picks)
    def claim(self, side: int, n: int) -> None:
        self.tick()
        life, twin = self.lives[side], self.pick(n)
        handle = self.handle(life, twin)
        if life in twin.hands:
            with pytest.raises(Claimed):
                handle.claim()
            return
        self.enlist(life)
        if (refused := self.refusal(twin, LIVE)) is not None:
            with pytest.raises(refused):
                handle.claim()
        else:
            if self.take(life, twin):
                twin.hands.append(life)
                assert handle.claim().epoch == twin.epoch
            else:
                with pytest.raises(UndoFailed):
                    handle.claim()
        self.compare(twin)

    @precondition(lambda self: self.visible())
    @rule(side=sides, n=picks)
    def release(self, side: int, n: int) -> None:
        self.tick()
        life, twin = self.lives[side], self.pick(n)
        self.handle(life, twin).release()
        if self.is_zombie(life, twin):
            twin.hands.remove(life)
        elif life in twin.hands:
            twin.let_go()
        self.compare(twin)

    @rule()
    def expire_all_leases(self) -> None:
        self.clock.advance(LEASE + 1)

    @rule(side=sides)
    def beat(self, side: int) -> None:
        life = self.lives[side]
        if life.until is not None:
            life.hf.client.store.beat(life.hf.client.engine.worker.name, LEASE)
            life.until = self.clock.now() + int(LEASE * 1_000_000)

    @precondition(lambda self: self.visible())
    @rule(side=sides, n=picks)
    def take_over(self, side: int, n: int) -> None:
        """One process sleeps too long, and another one takes the run; then the first one wakes up and writes."""
        self.claim(side, n)
        self.clock.advance(LEASE + 1)
        self.beat(1 - side)
        self.claim(1 - side, n)
        self.bury(self.lives[side], self.pick(n))
        self.compare(self.pick(n))

    @precondition(lambda self: any(self.is_zombie(life, twin) for twin in self.twins.values() for life in twin.hands))
    @rule()
    def zombies_write(self) -> None:
        for twin in self.twins.values():
            for life in list(twin.hands):
                self.bury(life, twin)
            if twin.uid not in self.gone:
                self.compare(twin)

    @rule(side=sides)
    def crash(self, side: int) -> None:
        """A process dies and comes back. Its leases are over at the latest when their time is."""
        dead, other = self.lives[side], self.lives[1 - side]
        self.kill(dead)
        for twin in self.twins.values():
            twin.hands = [life for life in twin.hands if life is not dead]
        self.clock.advance(LEASE + 1)
        if other.until is not None:
            other.hf.client.store.beat(other.hf.client.engine.worker.name, LEASE)
            other.until = self.clock.now() + int(LEASE * 1_000_000)
        self.lives[side] = self.born()
        for twin in self.visible():
            self.compare(twin)

    @rule(side=sides)
    def recover(self, side: int) -> None:
        self.tick()
        life = self.lives[side]
        orphans = [twin for twin in self.visible() if twin.holder is not None and not self.is_alive(twin.holder)]
        if orphans:
            self.enlist(life)
        recovered = []
        for twin in orphans:
            if self.take(life, twin):
                twin.holder = None
                twin.let_go()
                recovered.append(twin.id)
        assert sorted(life.hf.recover()) == sorted(recovered)
        for twin in self.visible():
            self.compare(twin)

    # --- rules: states and steps

    @precondition(lambda self: self.visible())
    @rule(side=sides, n=picks, state=values, next=st.none() | texts, grows=st.booleans())
    def save(self, side: int, n: int, state: Any, next: str | None, grows: bool) -> None:
        self.tick()
        twin = self.pick(n)
        value: Any = state

        def prepare() -> None:
            nonlocal value
            if grows:  # a save that differs little from the one before is stored as the difference
                last = self.look(twin).checkpoint().state
                value = [*last, state] if isinstance(last, list) else [last, state]

        def call(run: Run) -> int:
            given = deepcopy(value)
            seq = run.save(given, next=next)
            if isinstance(given, list):
                given.append("changed after it was saved")
            return seq

        def then(seq: int) -> None:
            step = 0 if twin.now.step is None else twin.now.step + 1
            twin.write(Kind.SAVED, state=exact(value), state_seq=len(twin.moments), step=step, next=next)
            assert seq == twin.seq

        self.act(side, twin, call, then, prepare=prepare)

    @precondition(lambda self: self.visible())
    @rule(side=sides, n=picks, key=keys, arg=st.sampled_from([0, 0, 0, 1]), value=values)
    def compute_once(self, side: int, n: int, key: str, arg: int, value: Any) -> None:
        self.tick()
        twin, token = self.pick(n), f"compute {arg}"
        name = (compute.__qualname__, token, exact(value))

        def prepare() -> type[BaseException] | None:
            done = twin.now.done.get(key)
            return NonDeterminism if done is not None and done.call not in (None, name) else None

        def then(result: Any) -> None:
            done = twin.now.done.get(key)
            if done is None:
                self.confirm(self.lives[side])
                self.calls[token] += 1
                twin.complete(Kind.DONE, key, Done(exact(value), name), None)
                assert exact(result) == exact(value)
            elif done.call in (None, name):
                assert exact(result) == done.result

        self.once(side, twin, key, name, lambda run: run.once(key, compute, token, value), then, prepare)

    @precondition(lambda self: self.visible())
    @rule(
        side=sides,
        n=picks,
        key=keys,
        value=st.sampled_from([0, 0, 0, 1]),
        undo=st.sampled_from(["works", "works", "fails", "none"]),
        how=st.sampled_from(["works", "works", "works", "raises", "dies before", "dies after"]),
    )
    def put_once(self, side: int, n: int, key: str, value: int, undo: str, how: str) -> None:
        self.tick()
        twin = self.pick(n)
        place = f"{twin.uid}/{key}"
        name = (put.__qualname__, place, value)

        def prepare() -> type[BaseException] | None:
            done = twin.now.done.get(key)
            if done is not None:
                return NonDeterminism if done.call not in (None, name) else None
            return ValueError if how == "raises" else Died if how.startswith("dies") else None

        def then(result: Any) -> None:
            now = twin.now
            if (done := now.done.get(key)) is not None:
                assert done.call not in (None, name) or exact(result) == done.result
                return
            seq, deed = len(twin.moments), Deed(key, "uncertain", len(twin.moments), undo, place, name)
            before = now.open.get(key)
            deeds = {n: replace(d, status="repeated") if n == before else d for n, d in now.deeds.items()}
            twin.write(Kind.INTENDED, deeds={**deeds, seq: deed}, open={**now.open, key: seq})
            self.confirm(self.lives[side])
            self.calls[place] += 1
            if how in ("works", "dies after"):
                self.things[place] = value
            if how == "works":
                assert result == {"place": place}
                twin.complete(Kind.DONE, key, Done(exact(result), name), (seq, replace(deed, status="done")))
            elif how == "raises":
                twin.complete(Kind.RAISED, key, None, (seq, replace(deed, status="raised")))

        def call(run: Run) -> Any:
            WORLD.put_does = how
            return run.once(key, put, place, value, target=place, undo=UNDOS[undo])

        self.once(side, twin, key, name, call, then, prepare)

    def once(
        self,
        side: int,
        twin: Twin,
        key: str,
        name: Any,
        call: Callable[[Run], Any],
        then: Callable[[Any], None],
        prepare: Callable[[], type[BaseException] | None],
    ) -> None:
        """Call a step. One that is completed is answered without the lease, unless a rollback may abandon it."""
        life = self.lives[side]
        self.bury(life, twin)
        done = twin.now.done.get(key)
        if done is None and ("mark", key) in twin.inbox:
            done = Done(exact(None), None)
        if done is None or twin.rolling is not None or life in twin.hands:
            self.act(side, twin, call, then, prepare=prepare)
        elif done.call in (None, name):
            assert exact(call(self.handle(life, twin))) == done.result
        else:
            with pytest.raises(NonDeterminism):
                call(self.handle(life, twin))
        self.compare(twin)

    @precondition(lambda self: self.visible())
    @rule(side=sides, n=picks, work=st.lists(st.tuples(keys, st.sampled_from(list(UNDOS))), min_size=1, max_size=4))
    def work(self, side: int, n: int, work: list[tuple[str, str]]) -> None:
        """Some progress, as a run in good order makes it."""
        for key, undo in work:
            self.put_once(side, n, key, 0, undo, "works")
            self.save(side, n, key, None, grows=True)

    @precondition(lambda self: self.visible())
    @rule(side=sides, n=picks, key=keys, done=st.booleans(), again=values)
    def resolve(self, side: int, n: int, key: str, done: bool, again: Any) -> None:
        self.tick()
        twin = self.pick(n)
        key = min(twin.now.open, default=key)

        def then(_: None) -> None:
            seq = twin.now.open.get(key)
            if seq is not None:
                deed = twin.now.deeds[seq]
                result = Done(exact(again), deed.call) if done and key not in twin.now.done else None
                settled = (seq, replace(deed, status="done" if done else "raised"))
                twin.complete(Kind.RESOLVED, key, result, settled)

        def prepare() -> type[BaseException] | None:
            return None if key in twin.now.open else UsageError

        if twin.status is Status.BLOCKED and key not in twin.now.open:
            with pytest.raises(UsageError):
                self.handle(self.lives[side], twin).resolve(key, done=done)
            return
        self.act(side, twin, lambda run: run.resolve(key, done=done, result=again), then, prepare=prepare)

    @precondition(lambda self: self.visible())
    @rule(side=sides, n=picks, key=keys)
    def mark(self, side: int, n: int, key: str) -> None:
        """Needs no lease: while another one holds the run, the mark waits in the inbox. An ended run takes none."""
        self.tick()
        life, twin = self.lives[side], self.pick(n)
        self.bury(life, twin)
        used, known = f"mark {key} {twin.now.generation}", key in twin.now.done
        if life in twin.hands:
            assert self.handle(life, twin).mark(key, "tool") is not known
            if not known:
                twin.mark(key)
        else:
            new = not known and used not in twin.used
            if new and twin.status in ENDED:
                with pytest.raises(RunEnded):
                    self.handle(life, twin).mark(key, "tool")
                return
            assert self.handle(life, twin).mark(key, "tool") is new
            if new:
                twin.used.add(used)
                twin.inbox.append(("mark", key))
                twin.record_unheld()
        self.compare(twin)

    # --- rules: pauses and ends

    @precondition(lambda self: self.visible())
    @rule(side=sides, n=picks, prompt=st.sampled_from(["Go on?", "Sure?"]), output_key=keys)
    def pause(self, side: int, n: int, prompt: str, output_key: str) -> None:
        self.tick()
        twin = self.pick(n)

        def then(question: holdfast.Question) -> None:
            now, wanted = twin.now, (prompt, output_key)
            same = [seq for seq, asked in now.questions.items() if (asked.prompt, asked.output_key) == wanted]
            if not same:
                asked = Asked(now.generation, prompt, output_key)
                twin.write(Kind.ASKED, questions={**now.questions, len(twin.moments): asked})
            seq = same[0] if same else twin.seq
            assert (question.seq, question.prompt) == (seq, prompt)
            twin.let_go(Status.WAITING)

        self.act(side, twin, lambda run: run.pause(prompt, output_key=output_key), then)

    @precondition(lambda self: self.visible())
    @rule(side=sides, n=picks, which=picks, value=values)
    def answer(self, side: int, n: int, which: int, value: Any) -> None:
        """Needs no lease: while another one holds the run, the answer waits in the inbox."""
        self.tick()
        life, twin = self.lives[side], self.pick(n)
        self.bury(life, twin)
        handle = self.handle(life, twin)
        answered = {
            data["seq"]
            for kind, data in twin.inbox
            if kind == "answer" and twin.now.questions.get(data["seq"], data["asked"]).generation == data["generation"]
        }
        waiting = [seq for seq in twin.now.questions if seq not in answered and twin.rolling is None]
        seen = handle.questions()
        assert [question.seq for question in seen] == waiting
        if not waiting:
            with pytest.raises(QuestionClosed):
                handle.answer(value)
            return
        question = seen[which % len(seen)]
        handle.answer(value, question=question.id)
        asked = twin.now.questions[question.seq]
        data = {"seq": question.seq, "generation": asked.generation, "asked": asked, "value": exact(value)}
        twin.inbox.append(("answer", data))
        twin.wake()
        with pytest.raises(QuestionClosed):
            self.look(twin).answer(value, question=question.id)
        if life in twin.hands:
            twin.drain()
        else:
            twin.record_unheld()
        self.compare(twin)

    @precondition(lambda self: self.visible())
    @rule(side=sides, n=picks, value=values, fails=st.booleans())
    def end(self, side: int, n: int, value: Any, fails: bool) -> None:
        if n % 3:
            return  # ended runs do little, so not too many
        self.tick()
        life, twin = self.lives[side], self.pick(n)
        status = Status.FAILED if fails else Status.COMPLETED

        def call(run: Run) -> None:
            if fails:
                run.fail("no more")
            else:
                run.complete(value)

        def then(_: None) -> None:
            twin.drain()
            twin.write(Kind(status), ended=status, result=exact(None if fails else value), questions={})
            twin.let_go(status)

        self.bury(life, twin)
        if life not in twin.hands and twin.status is status:
            call(self.handle(life, twin))  # ending twice changes nothing
            self.compare(twin)
        else:
            self.act(side, twin, call, then)

    # --- rules: other ways

    @precondition(lambda self: self.visible() and len(self.visible()) < 5)
    @rule(side=sides, n=picks, at=picks, taken=st.integers(0, 9))
    def fork(self, side: int, n: int, at: int, taken: int) -> None:
        self.tick()
        twin = self.pick(n)
        parent, point = self.handle(self.lives[side], twin), at % (twin.seq + 1)
        if taken == 0:
            with pytest.raises(RunExists):
                parent.fork(point, id=twin.id)
            return
        if twin.rolling is not None and point > twin.rolling.to:
            with pytest.raises(NoCheckpoint, match="in the middle of its rollback"):
                parent.fork(point)
            return
        self.forks += 1
        id = f"fork {self.forks}"
        made = parent.fork(point, id=id)
        start = twin.moments[point]
        waiting = start.kind == Kind.ASKED or (point == twin.seq and twin.status is Status.WAITING)
        child = Twin(id, made.uid, point + 1, twin.moments[: point + 1], (*twin.lineage, twin.uid))
        child.status = Status.WAITING if waiting else Status.READY
        deeds = {seq: deed for seq, deed in start.deeds.items() if deed.status != "uncertain"}
        child.write(Kind.FORKED, deeds=deeds, open={}, ended=None, result=None)
        self.twins[made.uid] = child
        child.hashes = twin.hashes[: point + 1]
        self.compare(child)
        self.compare(twin)

    @precondition(lambda self: self.visible())
    @rule(
        side=sides,
        n=picks,
        to=picks,
        dies=st.sampled_from([None, None, "before", "after"]),
        force=st.booleans(),
        goes_on=st.booleans(),
    )
    def rollback(self, side: int, n: int, to: int, dies: str | None, force: bool, goes_on: bool) -> None:
        self.tick()
        life, twin = self.lives[side], self.pick(n)
        wanted = [seq for seq in twin.now.live if seq >= twin.base - 1]
        near = wanted[-6:] if to % 2 else wanted
        point = to if to % 7 == 0 else near[to % len(near)]
        if twin.rolling is not None and to % 3:
            point = twin.rolling.to
        was_blocked, begun = twin.status is Status.BLOCKED, False

        def prepare() -> type[BaseException] | None:
            nonlocal begun
            refused: type[BaseException] | None = None
            if twin.rolling is None:
                twin.drain()
            elif point > twin.rolling.to:
                refused = UsageError
            if refused is None and (point not in twin.now.live or point < twin.base - 1):
                refused = NoCheckpoint
            if refused is None and not force:
                done = twin.rolling.settled if twin.rolling is not None else ()
                left = [twin.now.deeds[seq] for seq in twin.plan(point) if seq not in done]
                refused = Uncertain if any(deed.status == "uncertain" for deed in left) else None
            if refused is not None:
                return refused
            begun = True
            twin.begin_rollback(point, force)
            for seq in twin.undos():
                deed = twin.now.deeds[seq]
                if deed.status == "done" and deed.undo == "works" and dies is not None:
                    WORLD.undo_dies = dies
                    return Died
                if deed.undo == "fails" and not force:
                    return UndoFailed
            return None

        def then(report: holdfast.RollbackReport | None) -> None:
            if not begun:
                if was_blocked:
                    twin.let_go(Status.BLOCKED)
                return
            rolling = twin.rolling
            assert rolling is not None
            how = self.finish_rollback(twin, dies)
            if report is None:
                assert how in ("died", "blocked")
                return
            assert how == "ended"
            told = {"undone": report.undone, "undo_failed": report.failed, "left": report.irreversible}
            for status, effects in told.items():
                expected = [seq for seq in rolling.plan if twin.now.deeds[seq].status == status]
                assert [effect.seq for effect in effects] == expected
            uncertain = [
                seq for seq in rolling.plan if twin.now.deeds[seq].status in ("uncertain", "repeated", "raised")
            ]
            assert sorted(effect.seq for effect in report.uncertain) == sorted(uncertain)
            assert (report.to, report.generation) == (rolling.to, twin.now.generation)

        allow = LIVE | ENDED | {Status.BLOCKED}
        self.act(
            side, twin, lambda run: run.rollback(point, force=force), then, allow=allow, prepare=prepare, rolls=True
        )
        if twin.rolling is not None and life in twin.hands:
            with pytest.raises(UsageError):
                self.handle(life, twin).save("in the middle of a rollback")
            self.release(side, n)
        if goes_on:
            self.save(side, n, "on again", None, grows=True)
            self.save(side, n, "and on", None, grows=True)

    @precondition(lambda self: self.visible())
    @rule(side=sides, n=picks)
    def delete(self, side: int, n: int) -> None:
        if n % 2:
            return
        self.tick()
        life, twin = self.lives[side], self.pick(n)
        handle = self.handle(life, twin)
        if self.is_alive(twin.holder):
            with pytest.raises(Claimed):
                handle.delete()
            self.compare(twin)
            return
        assert handle.delete()
        assert not handle.delete()
        self.forget(twin)

    @rule(side=sides, keep=st.integers(0, 1))
    def prune(self, side: int, keep: int) -> None:
        self.tick()
        ended = sorted((twin for twin in self.visible() if twin.status in ENDED), key=lambda twin: twin.uid)
        expected = [twin for twin in ended[: len(ended) - keep] if twin.holder is None]
        hf = self.lives[side].hf
        pruned = hf.prune(older_than=timedelta(0), keep_last=keep)
        assert sorted(pruned) == sorted(twin.id for twin in expected)
        self.forget(*expected)

    def forget(self, *twins: Twin) -> None:
        """The runs were deleted: they are not seen any more, and what forks share of them stays."""
        for twin in twins:
            twin.holder = None
            self.gone[twin.uid] = twin
        for twin in twins:
            with pytest.raises(RunNotFound):
                self.watcher.get(twin.id)
        for other in self.visible():
            self.compare(other)
        store = self.watcher.client.store
        for uid in self.gone:
            shared = any(uid in other.lineage and self.shares(other, uid) for other in self.visible())
            if shared:
                assert store.get(uid=uid) is not None

    def shares(self, twin: Twin, uid: str) -> bool:
        record = self.watcher.client.store.get(uid=twin.uid)
        assert record is not None
        return any(link.uid == uid for link in record.lineage)
