"""Moves that were broken off, or are made by several at once: no run is lost, and nobody goes round in circles."""

from collections.abc import Callable
from typing import Any

import pytest
from writes import Make, around

from holdfast import Holdfast, ask, receive, send, workflow
from holdfast.engine.admin.move import Mover
from holdfast.errors import Moved, RunError
from holdfast.kernel.model import EndMove, Filter, Post, RunRecord
from holdfast.stores.protocol import write_one

driven: list[str] = []


@workflow(name="beside-asks")
def asks() -> str:
    return ask("Well?", str)


@workflow(name="beside-parent")
def parent() -> str:
    driven.append("parent")
    assert len(driven) < 20, "it goes round in circles"
    return asks()


@workflow(name="beside-receives")
def receives() -> Any:
    return receive()


@workflow(name="beside-sends")
def sends(to: str) -> str:
    driven.append("sends")
    assert len(driven) < 20, "it goes round in circles"
    try:
        send(to, "hello")
    except Moved as moved:
        return f"it is in {moved.place}"
    return "sent"


@pytest.fixture(autouse=True)
def nothing_driven() -> None:
    driven.clear()


@pytest.fixture
def there(opened: Callable[..., Holdfast], beside: Callable[[object], str]) -> Holdfast:
    """Another store of the same kind."""
    return opened(beside("there"))


def test_who_tidies_does_not_remove_what_another_lets_live_meanwhile(
    hf: Holdfast, there: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One mover has found a copy in the target; before it looks at the source, another one finishes the move."""
    run = hf.start(asks, id="run")
    one, another = Mover(hf.client.engine, there.client.store), Mover(hf.client.engine, there.client.store)
    get, arrive = hf.client.store.get, one._arrive

    def meanwhile(record: RunRecord) -> str | None:
        def slowly(*, uid: str) -> RunRecord | None:
            monkeypatch.setattr(hf.client.store, "get", get)
            assert arrive(record) == "run"
            assert write_one(hf.client.store, EndMove(uid, epoch=record.epoch))
            return get(uid=uid)

        monkeypatch.setattr(hf.client.store, "get", slowly)
        another.tidy()
        return arrive(record)

    monkeypatch.setattr(one, "_arrive", meanwhile)
    one.move(one.plan(Filter())[0])
    assert (run.status, there.get("run").status) == ("away", "waiting")


@pytest.mark.parametrize("begun", [True, False])
def test_one_that_is_moved_back_before_its_mover_is_done_is_not_lost(
    hf: Holdfast, there: Holdfast, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    """The last word of the first mover comes when the second has put a copy where the run came from."""
    run = hf.enqueue(asks, id="run")
    if begun:
        hf.work(until_idle=True)
    before = run.status
    first, back = Mover(hf.client.engine, there.client.store), Mover(there.client.engine, hf.client.store)
    apply, arrive = hf.client.store.apply, back._arrive

    def late(write: EndMove, make: Make) -> Any:
        monkeypatch.setattr(hf.client.store, "apply", apply)
        assert back.move(back.plan(Filter())[0]) == ["run"]
        return make(write)

    def meanwhile(record: RunRecord) -> str | None:
        copy = hf.client.store.get(uid=record.uid)
        assert copy is not None
        assert apply([EndMove(copy.uid, copy.epoch)]) == [False], "a copy that is to become the run is not given up"
        return arrive(record)

    def arrived(record: RunRecord) -> str | None:
        monkeypatch.setattr(hf.client.store, "apply", around(hf.client.store, EndMove, late))
        return (
            "run" if write_one(there.client.store, EndMove(record.uid, epoch=record.epoch, here=record.was)) else None
        )

    monkeypatch.setattr(back, "_arrive", meanwhile)
    monkeypatch.setattr(first, "_arrive", arrived)
    first.move(first.plan(Filter())[0])
    assert (run.status, there.get("run").status) == (before, "away")
    monkeypatch.undo()
    assert hf.move(there).moved == ("run",)
    assert (run.status, there.get("run").status) == ("away", before)


def test_a_message_to_a_run_that_was_moved_is_refused_to_who_sends_it(hf: Holdfast, there: Holdfast) -> None:
    hf.start(receives, id="to")
    hf.move(there)
    assert hf.start(sends, "to", id="from").result(timeout=20) == f"it is in {there.place}"
    assert driven == ["sends"]
    assert there.get("to").status == "waiting"


def test_a_message_that_was_left_before_the_move_was_sent(hf: Holdfast, there: Holdfast) -> None:
    """The sender died after it had left the message, and before it could say so."""
    to = hf.start(receives, id="to")
    posted = []

    def twice(post: Post, make: Make) -> Any:
        posted.extend(make(post))
        assert hf.move(there, prefix="to").moved == ("to",)
        return make(post)

    hf.client.store.apply = around(hf.client.store, Post, twice)  # type: ignore[method-assign]
    assert hf.start(sends, "to", id="from").result(timeout=20) == "sent"
    assert (posted, to.status) == ([True], "away")
    assert there.get("to").resume() == "completed"
    assert there.get("to").result() == "hello"


def test_a_run_whose_part_has_departed_without_it_is_left_alone_until_the_move_goes_on(
    hf: Holdfast, there: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = hf.enqueue(parent, id="run")
    hf.work(until_idle=True)
    [part] = [info.id for info in hf.runs() if info.id != "run"]
    depart = Mover._depart

    def broken_off(self: Mover, before: RunRecord, claimed: RunRecord) -> None:
        if before.id == "run":
            raise KeyboardInterrupt
        depart(self, before, claimed)

    monkeypatch.setattr(Mover, "_depart", broken_off)
    with pytest.raises(KeyboardInterrupt):
        hf.move(there)
    assert (hf.get(part).status, run.status) == ("away", "waiting")
    driven.clear()
    with pytest.raises(RunError, match="`holdfast move` finishes it"):
        run.resume()
    hf.work(until_idle=True)
    assert driven == ["parent", "parent"]  # once by each
    monkeypatch.undo()
    assert sorted(hf.move(there).moved) == ["run", part]
    there.get(part).answer("well")
    there.work(until_idle=True)
    assert there.get("run").result() == "well"
