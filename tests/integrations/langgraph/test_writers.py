"""Several writers of one thread: all of their checkpoints are kept; with a guard, one of them is refused."""

import gc
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.types import ERROR
from langgraph.graph import START, StateGraph
from langgraph.types import Command

from holdfast import Holdfast
from holdfast.errors import Claimed, LeaseLost, StoreUnusable
from holdfast.integrations.langgraph import HoldfastSaver, layout, threads
from holdfast.integrations.langgraph.thread_writer import AFTER_VAIN


def put(saver: HoldfastSaver, config: Any, value: Any) -> Any:
    version = {"a": saver.get_next_version(None, None)}
    values: Any = {"id": str(uuid6()), "channel_values": {"a": value}, "channel_versions": version}
    return saver.put(config, {**empty_checkpoint(), **values}, {"source": "loop", "step": 0}, version)


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """What each call gave or raised, all of them made at the same time."""
    start, found = threading.Barrier(len(calls)), [None] * len(calls)

    def run(n: int) -> None:
        start.wait()
        try:
            found[n] = calls[n]()
        except Exception as error:
            found[n] = error  # type: ignore[call-overload]

    workers = [threading.Thread(target=run, args=(n,)) for n in range(len(calls))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return found


def test_nobody_without_a_guard_is_refused(saver_of: Any, thread: Any) -> None:
    savers = [saver_of() for _ in range(3)]
    config = thread(checkpoint_ns="")

    def writer(saver: HoldfastSaver, name: str) -> None:
        for n in range(8):
            stored = put(saver, config, [name, n])
            saver.put_writes(stored, [("a", n)], name)

    assert at_once(*(lambda s=s, n=n: writer(s, f"w{n}") for n, s in enumerate(savers))) == [None, None, None]
    found = list(saver_of().list(config))
    kept = sorted((one.checkpoint["channel_values"]["a"], one.pending_writes) for one in found)
    assert kept == [([f"w{n}", m], [(f"w{n}", "a", m)]) for n in range(3) for m in range(8)]
    saver_of()._hf.audit("t")


def test_a_thread_that_was_deleted_meanwhile_is_made_anew(saver_of: Any, thread: Any) -> None:
    one, other = saver_of(), saver_of()
    put(one, thread(checkpoint_ns=""), 1)
    other.delete_thread("t")
    put(one, thread(checkpoint_ns=""), 2)
    assert [found.checkpoint["channel_values"]["a"] for found in other.list(thread())] == [2]


def test_a_thread_that_was_deleted_meanwhile_and_has_a_copy_is_made_anew(saver_of: Any, thread: Any) -> None:
    one, other = saver_of(), saver_of()
    put(one, thread(checkpoint_ns=""), 1)
    other.copy_thread("t", "copy")
    other.delete_thread("t")
    put(one, thread(checkpoint_ns=""), 2)
    assert [found.checkpoint["channel_values"]["a"] for found in other.list(thread())] == [2]
    assert [found.checkpoint["channel_values"]["a"] for found in other.list(thread("copy"))] == [1]


def test_a_person_who_has_claimed_the_run_is_respected(saver: HoldfastSaver, hf: Holdfast, thread: Any) -> None:
    put(saver, thread(checkpoint_ns=""), 1)
    with hf.get("t").claim():
        with pytest.raises(Claimed):
            put(saver, thread(checkpoint_ns=""), 2)
        assert saver.get_tuple(thread()) is not None
    put(saver, thread(checkpoint_ns=""), 3)
    assert len(list(saver.list(thread()))) == 2


def test_a_dead_holder_does_not_block(saver: HoldfastSaver, opened: Any, kill: Any, thread: Any) -> None:
    put(saver, thread(checkpoint_ns=""), 1)
    dying = opened()
    run = dying.get("t")
    run.claim()
    kill(dying)
    put(saver, thread(checkpoint_ns=""), 2)
    assert len(list(saver.list(thread()))) == 2


def test_a_thread_that_was_looked_for_in_vain_may_be_there_when_it_is_made(saver_of: Any, thread: Any) -> None:
    one, other = saver_of(), saver_of()
    assert one.get_tuple(thread()) is None
    put(other, thread(checkpoint_ns=""), "theirs")
    put(one, thread(checkpoint_ns=""), "ours")
    assert [found.checkpoint["channel_values"]["a"] for found in other.list(thread())] == ["ours", "theirs"]


def test_who_is_always_late_is_told_in_the_end(saver_of: Any, thread: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    saver, other = saver_of(), saver_of()
    put(saver, thread(checkpoint_ns=""), 1)
    monkeypatch.setattr(threads, "TRIES", 3)
    plain = threads.Threads._pen

    def outrun(self: Any, id: str) -> Any:
        pen = yield from plain(self, id)
        if self is saver._threads:
            put(other, thread(checkpoint_ns=""), "first")
        return pen

    monkeypatch.setattr(threads.Threads, "_pen", outrun)
    put(other, thread(checkpoint_ns=""), "before")
    with pytest.raises(LeaseLost):
        put(saver, thread(checkpoint_ns=""), 2)


# --- with a guard


def test_of_two_resumes_at_once_one_is_refused_before_it_runs(saver_of: Any, asking: Any, thread: Any) -> None:
    for savers in ([saver_of(guard=True)] * 2, [saver_of(guard=True), saver_of(guard=True)]):
        id = str(uuid6())
        graphs = [asking(saver) for saver in savers]
        graphs[0].invoke({"xs": ["in"]}, thread(id))
        found = at_once(*(partial(g.invoke, Command(resume=n), thread(id)) for n, g in enumerate(graphs)))
        [refused] = [one for one in found if isinstance(one, Exception)]
        [result] = [one for one in found if not isinstance(one, Exception)]
        assert isinstance(refused, Claimed)
        assert [one for graph in graphs for one in graph.ran] == [result["xs"][-1]], "the node ran once"
        assert savers[0]._hf.get(id).info().holder is None


def test_a_guarded_thread_passes_from_one_to_another(saver_of: Any, asking: Any, nested: Any, thread: Any) -> None:
    one, other = saver_of(guard=True), saver_of(guard=True)
    asking(one).invoke({"xs": ["in"]}, thread())
    asking(other).update_state(thread(), {"xs": ["edited"]})
    assert asking(other).invoke(Command(resume="x"), thread())["xs"] == ["in", "first", "edited", "x"]
    nested(one).invoke({"xs": []}, thread("deep"))
    while nested(other).get_state(thread("deep")).next:
        nested(other).invoke(Command(resume="x"), thread("deep"))
    assert nested(one).get_state(thread("deep")).values["xs"][-1] == "end"


def test_a_failed_invocation_gives_up_its_claim(saver_of: Any, thread: Any) -> None:
    def fail(state: Any) -> Any:
        raise ValueError("no")

    graph = StateGraph(dict)  # type: ignore[type-var]
    graph.add_node("fail", fail)
    graph.add_edge(START, "fail")
    for _ in range(2):
        for saver in (saver_of(guard=True), saver_of(guard=True)):
            with pytest.raises(ValueError, match="no"):
                graph.compile(checkpointer=saver).invoke({"a": 1}, thread())


def test_what_was_on_its_way_at_the_end_does_not_take_the_claim_again(saver_of: Any, thread: Any) -> None:
    class Runtime:
        control = object()
        stream_writer = staticmethod(lambda _: None)

    saver = saver_of(guard=True)
    config = thread(checkpoint_ns="", __pregel_runtime=Runtime())
    saver.get_tuple(config)
    assert saver._hf.get("t").info().holder is not None
    ids = [str(uuid6()) for _ in range(2)]
    ending = thread(checkpoint_ns="", checkpoint_id=ids[0], __pregel_runtime=Runtime())
    saver.put_writes(ending, [(ERROR, "no")], "task")
    assert saver._hf.get("t").info().holder is None
    for id, holds in ((ids[0], False), (ids[1], True)):  # the first was late, the second says that it goes on
        values: Any = {"id": id, "channel_values": {"branch:to:a": None}, "channel_versions": {"branch:to:a": "1"}}
        saver.put(config, {**empty_checkpoint(), **values}, {"source": "loop", "step": 0}, {"branch:to:a": "1"})
        assert (saver._hf.get("t").info().holder is not None) == holds


def breaking(saver: HoldfastSaver) -> Any:
    """A graph that stops before its second node, which shows in nothing that is written."""
    graph = StateGraph(dict)  # type: ignore[type-var]
    graph.add_node("one", lambda state: {"a": 1})
    graph.add_node("two", lambda state: {"a": 2})
    graph.add_edge(START, "one")
    graph.add_edge("one", "two")
    return graph.compile(checkpointer=saver, interrupt_before=["two"])


def chain(saver: HoldfastSaver) -> Any:
    """Three nodes, one after the other."""
    graph = StateGraph(dict)  # type: ignore[type-var]
    before = START
    for name in ("one", "two", "three"):
        graph.add_node(name, lambda state, name=name: {"a": name})
        graph.add_edge(before, name)
        before = name
    return graph.compile(checkpointer=saver)


def test_an_end_that_nothing_tells_is_known_by_what_is_left_of_it(saver_of: Any, thread: Any) -> None:
    saver, other = saver_of(guard=True), saver_of(guard=True)
    breaking(saver).invoke({}, thread())
    assert breaking(saver).invoke(None, thread()) == {"a": 2}, "the same caller goes on at any time"
    breaking(saver).invoke({}, thread("u"))
    gc.collect()
    while saver._hf.get("u").info().holder is not None:
        gc.collect()
    assert breaking(other).invoke(None, thread("u")) == {"a": 2}
    breaking(saver).invoke({}, thread("v"))
    saver.release("v")
    saver.release("v")
    assert breaking(other).invoke(None, thread("v")) == {"a": 2}


def test_a_stale_writer_is_refused(saver_of: Any, kill: Any, asking: Any, thread: Any) -> None:
    stale, other = saver_of(guard=True), saver_of(guard=True)
    stream = chain(stale).stream({}, thread(), durability="sync")
    next(stream)  # it is at work
    with pytest.raises(Claimed):
        chain(other).invoke({}, thread())
    with pytest.raises(Claimed):
        put(stale, thread(checkpoint_ns=""), 1)
    kill(stale._hf)
    chain(other).invoke({}, thread())
    count = len(list(other.list(thread())))
    with pytest.raises((LeaseLost, StoreUnusable)):
        list(stream)
    assert len(list(other.list(thread()))) == count


def test_a_superseded_invocation_is_refused_in_its_own_program(saver_of: Any, thread: Any) -> None:
    saver = saver_of(guard=True)
    old = chain(saver).stream({}, thread(), durability="sync")
    next(old)
    chain(saver).invoke({}, thread())  # the same caller has begun another one
    with pytest.raises(LeaseLost):
        list(old)


def test_closing_gives_up_the_claims(saver_of: Any, thread: Any) -> None:
    saver, other = saver_of(guard=True), saver_of(guard=True)
    stream = chain(saver).stream({}, thread(), durability="sync")
    next(stream)
    saver.close()
    assert chain(other).invoke({}, thread()) == {"a": "three"}
    with pytest.raises((LeaseLost, StoreUnusable)):
        list(stream)


# --- whichever thread is faster


def taken_along(saver: HoldfastSaver) -> list[int]:
    """How many tasks' writes each entry of the thread has."""
    run = saver._hf.get("t")
    record = run.held.read_record()
    return [
        len(layout.tasks_in(run.held.journals.data(run.id, uid, entry)))
        for uid, entry in run.held.journals.entries(record, 1, record.seq)
    ]


@pytest.mark.parametrize("store_url", ["memory"], indirect=True)
def test_a_checkpoint_waits_for_what_led_to_it(
    saver: HoldfastSaver, thread: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LangGraph has handed on the writes first, but their thread is slow."""
    monkeypatch.setattr(threads, "LINGER", 20.0)
    monkeypatch.setattr(threads, "GATED", 1.0)
    first = put(saver, thread(), 0)
    writing = threading.Timer(0.05, saver.put_writes, [first, [("a", 1)], "task"])
    writing.start()
    put(saver, first, 1)
    writing.join()
    assert taken_along(saver) == [0, 1]


@pytest.mark.parametrize("store_url", ["memory"], indirect=True)
def test_writes_that_come_after_their_checkpoint_do_not_wait_for_another(
    saver: HoldfastSaver, thread: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "LINGER", 0.01)
    first = put(saver, thread(), 0)
    put(saver, first, 1)  # has waited in vain
    monkeypatch.setattr(threads, "GATED", 10**6)  # whoever waits now, waits for ever
    saver.put_writes(first, [("a", 1)], "task")
    assert taken_along(saver) == [0, 0, 1]


@pytest.mark.parametrize("store_url", ["memory"], indirect=True)
def test_after_a_wait_in_vain_the_next_checkpoints_do_not_wait(
    saver: HoldfastSaver, thread: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "LINGER", 0.01)
    config = put(saver, put(saver, thread(), 0), 1)
    monkeypatch.setattr(threads, "LINGER", 10**6)
    for n in range(2, 2 + AFTER_VAIN):
        config = put(saver, config, n)
