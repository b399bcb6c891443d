"""What others do to a thread meanwhile: they copy, prune or delete it, or change what is being put."""

import asyncio
import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.errors import GraphRecursionError
from langgraph.graph import START, StateGraph

from holdfast.engine.access.operations import Settle
from holdfast.errors import NotStorable, RunNotFound
from holdfast.integrations.langgraph import HoldfastSaver, threads_admin
from holdfast.integrations.langgraph import values as cells
from holdfast.integrations.langgraph.guard import Holder
from holdfast.kernel.model import Kind

Opener = Callable[..., HoldfastSaver]


def named(thread: str = "t") -> Any:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}


def put(saver: Any, config: Any, values: dict[str, Any], step: int) -> Any:
    versions: Any = dict.fromkeys(values, f"{step:012}.1")
    checkpoint: Any = {**empty_checkpoint(), "id": str(uuid6()), "channel_values": values}
    checkpoint["channel_versions"] = versions
    return saver.put(config, checkpoint, {"source": "loop", "step": step, "parents": {}}, versions)


def fill(saver: Any, checkpoints: int = 4) -> Any:
    config = named()
    for n in range(checkpoints):
        config = put(saver, config, {"n": n}, n)
        saver.put_writes(config, [("n", n)], f"task-{n}")
    return config


def numbers(saver: Any, thread: str) -> list[int]:
    return [one.checkpoint["channel_values"]["n"] for one in saver.list(named(thread))]


# --- pruning


@pytest.mark.parametrize("looking", [True, False], ids=["after it looked for copies", "before its commit"])
def test_a_copy_that_is_made_while_the_thread_is_pruned_stays_whole(
    saver: HoldfastSaver, saver_of: Opener, monkeypatch: pytest.MonkeyPatch, looking: bool
) -> None:
    fill(saver)
    other, copied = saver_of(), list[str]()
    name = "_shared_upto" if looking else "_rewrite"
    real = getattr(threads_admin, name)

    def late(*given: Any) -> Any:
        found = real(*given)
        if not copied:
            copied.append("copy")
            other.copy_thread("t", "copy")
        return found

    monkeypatch.setattr(threads_admin, name, late)
    saver.prune(["t"])
    fresh = saver_of()
    assert copied
    assert numbers(fresh, "t") == [3]
    assert numbers(fresh, "copy") in ([3, 2, 1, 0], [3])
    assert fresh.get_tuple(named("copy")).checkpoint["channel_values"] == {"n": 3}  # type: ignore[union-attr]
    fresh._hf.get("copy").audit()


def test_a_copy_that_begins_before_a_pruning_and_is_made_after_it_is_made_anew(
    saver: HoldfastSaver, saver_of: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(saver)
    other, fork, pruned = saver_of(), threads_admin.fork, list[bool]()

    def late(*given: Any, **how: Any) -> Any:
        made = fork(*given, **how)
        asked = next(made)
        while True:
            if isinstance(asked, Settle) and not pruned:  # it knows what it is to share, and has not committed that
                pruned.append(True)
                other.prune(["t"])
            answer = yield asked
            try:
                asked = made.send(answer)
            except StopIteration as end:
                return end.value

    monkeypatch.setattr(threads_admin, "fork", late)
    saver.copy_thread("t", "copy")
    assert pruned
    assert numbers(saver_of(), "copy") == [3]


def test_a_pruning_that_died_in_between_is_finished_by_the_next(
    saver: HoldfastSaver, saver_of: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(saver)

    def die(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(threads_admin, "_erase", die)
        saver.prune(["t"])
    assert numbers(saver_of(), "t") == [3]
    assert not list(saver._hf.get("t").history(kind=Kind.REDACTED))
    saver_of().prune(["t"])
    [erased] = saver._hf.get("t").history(kind=Kind.REDACTED)
    saver_of().prune(["t"])
    assert [entry.seq for entry in saver._hf.get("t").history(kind=Kind.REDACTED)] == [erased.seq]
    saver._hf.get("t").audit()


@pytest.mark.parametrize("what", ["get_tuple", "list", "history"])
def test_what_is_read_while_the_thread_is_pruned_is_whole(
    saver: HoldfastSaver, saver_of: Opener, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Else what was written is missing, and nobody is told."""
    fill(saver)
    asked: dict[str, Callable[[Any], Any]] = {
        "get_tuple": lambda saver: saver.get_tuple(named()),
        "list": lambda saver: next(saver.list(named(), limit=1), None),
        "history": lambda saver: saver.get_delta_channel_history(config=named(), channels=["n"]),
    }
    other, pruned = saver_of(), list[bool]()
    read = other._threads.store.read

    def late(*given: Any, **how: Any) -> Any:
        if not pruned:
            pruned.append(True)
            saver.prune(["t"])
        return read(*given, **how)

    monkeypatch.setattr(other._threads.store, "read", late)
    told = asked[what](other)
    assert pruned
    if what == "list":  # what was listed and is gone is left out
        assert told is None or told == asked[what](saver_of())
    else:
        assert told == asked[what](saver_of())


# --- deleting


def test_a_thread_that_is_deleted_before_a_checkpoint_is_made_anew(saver: HoldfastSaver, saver_of: Opener) -> None:
    other = saver_of()
    config = put(saver, named(), {"n": 1}, 1)
    other.put_writes(config, [("n", 2)], "task")
    saver.delete_thread("t")
    put(other, config, {"n": 2}, 2)
    assert numbers(saver_of(), "t") == [2]


def test_a_thread_that_is_deleted_while_it_is_read_is_not_damaged(
    saver: HoldfastSaver, saver_of: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(saver)
    reader = saver_of()
    run, record = reader._hf.get("t"), reader._threads.record("t")
    assert record is not None
    saver.delete_thread("t")
    with pytest.raises(RunNotFound, match="deleted while it was read"):
        list(reader._threads.journals.entries(record, 0, record.seq))
    monkeypatch.setattr(type(reader._threads), "record", lambda self, id: record if id == "t" else None)
    assert list(reader.list(named())) == []
    assert run.id == "t"


# --- what is put changes


def test_a_dict_that_another_thread_changes_is_put_all_the_same(
    saver: HoldfastSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To go through it in Python takes a while, in which it may become larger; to pack it takes one moment."""

    def changed(*_: Any) -> Any:
        raise RuntimeError("dictionary changed size during iteration")

    monkeypatch.setattr(cells, "_simple", changed)
    config = put(saver, named(), {"n": {"a": 1}}, 1)
    saver.put_writes(config, [("n", {"a": 2})], "task")
    found: Any = saver.get_tuple(named())
    assert (found.checkpoint["channel_values"], found.pending_writes) == ({"n": {"a": 1}}, [("task", "n", {"a": 2})])


@dataclass
class Nested:
    inside: Any


def test_what_is_nested_too_deep_is_refused_by_its_name(saver: HoldfastSaver) -> None:
    made: Any = 1
    for _ in range(200):
        made = Nested(made)
    with pytest.raises(NotStorable, match="channel 'c' of thread 't'"):
        put(saver, named(), {"c": made}, 1)


def test_a_channel_may_have_the_name_of_a_tag(saver: HoldfastSaver) -> None:
    put(saver, named(), {"$": ["x"], "n": 1}, 1)
    assert saver._hf.get("t").checkpoint().raw_state == {"$": ["x"], "n": 1}


# --- invocations that are broken off


class State(TypedDict, total=False):
    n: int


def endless(saver: HoldfastSaver) -> Any:
    graph = StateGraph(State)
    graph.add_node("count", lambda state: {"n": 1})
    graph.add_edge(START, "count")
    graph.add_conditional_edges("count", lambda state: "count")
    return graph.compile(checkpointer=saver)


def test_an_invocation_whose_task_has_failed_gives_up_its_claim(saver_of: Opener) -> None:
    """A failed task keeps its error, and with it all that the invocation was."""
    saver = saver_of(guard=True)
    kept: list[Any] = []

    async def fail() -> None:
        task = asyncio.create_task(endless(saver).ainvoke({"n": 0}, {**named(), "recursion_limit": 3}))
        await asyncio.wait([task])
        kept.append(task)
        assert isinstance(task.exception(), GraphRecursionError)

    asyncio.run(fail())
    holders = [weakref.ref(one) for one in gc.get_objects() if type(one) is Holder]
    kept.clear()
    gc.collect()
    graph = StateGraph(State)
    graph.add_node("once", lambda state: {"n": 2})
    graph.add_edge(START, "once")
    assert graph.compile(checkpointer=saver).invoke({"n": 1}, named())["n"] == 2
    saver.close()
    gc.collect()
    assert [one() for one in holders if one() is not None] == []
