"""Values and moments that are out of the ordinary: what comes back is what LangGraph's own saver in memory gives."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, TypedDict

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from pydantic import BaseModel, Field

from holdfast.errors import NotStorable, Redacted, TooLarge
from holdfast.integrations.langgraph import HoldfastSaver, grown_list, threads
from holdfast.integrations.langgraph import values as cells
from holdfast.integrations.langgraph.guard import lasts_after

LONG = "x" * 5_000  # so that the state is stored by what changed
COUNT = iter(range(1, 1_000_000))


def named(ns: str = "", id: str | None = None, **more: Any) -> Any:
    found = {"thread_id": "t", "checkpoint_ns": ns, **more}
    return {"configurable": {**found, "checkpoint_id": id} if id else found}


def put(saver: Any, config: Any, values: dict[str, Any], id: str | None = None) -> Any:
    n = next(COUNT)
    versions: Any = dict.fromkeys(values, f"{n:012}.1")
    checkpoint: Any = {**empty_checkpoint(), "id": id or str(uuid6()), "channel_values": values}
    checkpoint["channel_versions"] = versions
    return saver.put(config, checkpoint, {"source": "loop", "step": n, "parents": {}}, versions)


def value(saver: Any, name: str = "m", config: Any = None) -> Any:
    return saver.get_tuple(config or named()).checkpoint["channel_values"][name]


class Listed(list[Any]):
    """A list that is not quite one."""


class Client(BaseModel):
    n: int
    client: Any = Field(default=None, exclude=True)


@pytest.mark.parametrize(
    "puts",
    [
        [["A", "B"], Listed(["C", "D"]), ["A", "B", "E"]],
        [[b"A"], [b"A", bytearray(b"E")]],
        [[bytearray(b"A")], [bytearray(b"A"), b"E", None]],
        [["A"], ["A", [["deep"]]]],
        [[Client(n=1, client=threading.Lock())], [Client(n=1, client=threading.Lock()), Client(n=2)]],
        [["same"], ["same", "same"], ["same", "same", "same"], ["same"], []],
    ],
)
def test_lists_of_all_sorts(saver: HoldfastSaver, puts: list[Any]) -> None:
    for each in (saver, theirs := InMemorySaver()):
        config = named()
        for given in puts:
            config = put(each, config, {"m": given, "long": LONG})
    assert value(saver) == value(theirs)
    saver._threads.forget_thread("t")
    assert value(saver) == value(theirs)


def nested(levels: int) -> Any:
    made: Any = 1
    for _ in range(levels):
        made = [made]
    return made


def test_what_is_nested_too_deeply_is_refused_when_it_is_put(saver: HoldfastSaver) -> None:
    put(saver, named(), {"m": nested(100)})
    assert value(saver) == nested(100)
    circular: list[Any] = []
    circular.append(circular)
    for given in (nested(400), circular):
        with pytest.raises(NotStorable, match="channel 'm'"):
            put(saver, named(), {"m": given})


def test_a_message_that_changes_while_it_is_looked_at_is_stored_as_it_is_then(
    saver: HoldfastSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread changes it between the two: what is remembered of it, and its tree; whichever comes first."""
    message = HumanMessage(LONG, id="0")
    add, tree = grown_list.Marks.add, cells.Cells.tree

    def change() -> None:
        message.content = "changed"

    def marking(self: Any, values: Any, start: int) -> None:
        add(self, values, start)
        change()

    def dumping(self: Any, given: Any, *place: str) -> Any:
        made = tree(self, given, *place)
        if type(given) is list and message in given:
            change()
        return made

    monkeypatch.setattr(grown_list.Marks, "add", marking)
    monkeypatch.setattr(cells.Cells, "tree", dumping)
    config = put(saver, named(), {"m": [message]})
    for n in range(3):
        config = put(saver, config, {"m": [message, *(HumanMessage(str(k), id=str(k)) for k in range(n))]})
    assert value(saver)[0].content == "changed"


def test_a_message_that_changes_while_it_is_written_is_stored_as_it_is_then(
    saver: HoldfastSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LangGraph's reducer gives it an id while another thread writes it."""
    monkeypatch.setattr(threads, "GATED", 0.2)
    message = HumanMessage("new")
    tree = cells.Cells.tree

    def interrupted(self: Any, given: Any, *place: str) -> Any:
        made = tree(self, given, *place)
        if given == [message] and "write to" in place:
            message.id = "given"
        return made

    monkeypatch.setattr(cells.Cells, "tree", interrupted)
    first = HumanMessage(LONG, id="0")
    config = put(saver, named(), {"m": [first]})
    writing = threading.Thread(target=saver.put_writes, args=(config, [("m", [message])], "task"))
    writing.start()
    wait_for(lambda: saver._threads._pens["t"]._parked)
    put(saver, config, {"m": [first, message]})
    writing.join()
    assert [each.id for each in value(saver)] == ["0", "given"]


def wait_for(happens: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.001)


class Runtime:
    """What LangGraph gives the calls of one invocation."""

    def __init__(self) -> None:
        self.control = object()
        self.stream_writer = lambda _: None


def test_a_checkpoint_that_is_refused_leaves_nothing_behind(saver_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither under a claim that is kept, since a task still writes, nor for others who wait at the same thread."""
    monkeypatch.setattr(threads, "LINGER", 0.2)
    saver = saver_of(guard=True)
    ours = {"__pregel_runtime": Runtime()}
    saver.get_tuple(named(**ours))
    more = {"branch:to:x": None, "long": LONG}
    config = put(saver, named(**ours), {"m": ["A", "B"], **more})
    config = named(id=config["configurable"]["checkpoint_id"], **ours)
    writing = threading.Thread(target=saver.put_writes, args=(config, [("z", 1)], "other"))
    writing.start()
    wait_for(lambda: saver._guard._holders["t"].pen._parked)
    with pytest.raises(NotStorable):
        put(saver, config, {"m": ["A", "B", "refused"], "w": [object()], **more})
    put(saver, config, {"m": ["A", "B", "C"], "w": ["fits"], **more})
    writing.join()
    assert value(saver) == ["A", "B", "C"]
    saver.release("t")


def test_what_one_sub_graph_is_refused_is_not_stored_with_another(saver: HoldfastSaver) -> None:
    put(saver, named(), {"m": ["r"], "long": LONG})
    one = put(saver, named("a:1"), {"m": ["A"], "long": LONG})
    other = put(saver, named("b:2"), {"m": ["B"], "long": LONG})
    pen = saver._threads._pens["t"]
    with pytest.raises(NotStorable):
        put(saver, one, {"m": ["A", "refused"], "w": [object()], "long": LONG})
    saver._threads._pens["t"] = pen  # as it is for somebody who has waited for its lock
    put(saver, other, {"m": ["B", "C"], "long": LONG})
    saver._threads.forget_thread("t")
    assert (value(saver, config=one), value(saver, config=named("b:2"))) == (["A"], ["B", "C"])


def test_a_write_that_is_too_large_is_the_matter_of_who_made_it(saver_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "GATED", 5.0)
    saver = saver_of(max_bytes=200_000)
    config = put(saver, named(), {"m": ["A"]})
    told: dict[str, BaseException | None] = {}

    def write(name: str, given: str) -> None:
        try:
            saver.put_writes(config, [("m", [given])], name)
            told[name] = None
        except Exception as error:
            told[name] = error

    writing = []
    for n, (name, given) in enumerate((("large", "y" * 300_000), ("a", "a"), ("b", "b"), ("c", "c"))):
        writing.append(threading.Thread(target=write, args=(name, given)))
        writing[-1].start()
        if n < 3:
            wait_for(lambda n=n: len(saver._threads._pens["t"]._parked) == n + 1)
    for thread in writing:
        thread.join()
    assert isinstance(told.pop("large"), TooLarge)
    assert told == {"a": None, "b": None, "c": None}
    assert sorted(task for task, _, _ in saver.get_tuple(named()).pending_writes) == ["a", "b", "c"]


def test_a_checkpoint_leaves_behind_what_it_could_take_along_but_for_its_size(
    saver_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "GATED", 5.0)
    saver = saver_of(max_bytes=100_000)
    config = put(saver, named(), {"m": "A"})
    writing = threading.Thread(target=saver.put_writes, args=(config, [("m", "y" * 12_000)], "task"))
    writing.start()
    wait_for(lambda: saver._threads._pens["t"]._parked)
    put(saver, config, {"m": "B" * 90_000})
    [parked] = saver._threads._pens["t"]._parked
    parked.gate.release()
    writing.join()
    assert value(saver) == "B" * 90_000
    assert [len(write[2]) for write in saver.get_tuple(config).pending_writes] == [12_000]


def test_writes_do_not_wait_in_more_threads_than_langgraph_can_spare(
    saver: HoldfastSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as that are written at once: no checkpoint comes that could take them along."""
    monkeypatch.setattr(threads, "GATED", 600.0)
    config = put(saver, named(), {"m": ["A"]})
    writing = []
    for n in range(4):
        writing.append(threading.Thread(target=saver.put_writes, args=(config, [("m", [n])], str(n)), daemon=True))
        writing[-1].start()
        if n < 3:
            wait_for(lambda n=n: len(saver._threads._pens["t"]._parked) == n + 1)
    for thread in writing:
        thread.join(20)
    assert not any(thread.is_alive() for thread in writing)
    found = saver.get_tuple(named())
    assert found is not None
    assert sorted(write[0] for write in found.pending_writes or ()) == ["0", "1", "2", "3"]


def test_writes_that_came_before_their_checkpoint_from_elsewhere(saver_of: Any) -> None:
    one, other = saver_of(), saver_of()
    id = "~" + str(uuid6())
    config = put(one, named(), {"m": ["A"]})
    other.put_writes(named(id=id), [("m", ["early"])], "task")
    put(one, config, {"m": ["A", "B"]}, id=id)
    assert [write[:2] for write in one.get_tuple(named()).pending_writes] == [("task", "m")]


def test_a_write_whose_caller_is_cancelled_is_made(saver: HoldfastSaver) -> None:
    async def cancelled() -> None:
        config = put(saver, named(), {"m": ["A"]})
        writing = asyncio.create_task(saver.aput_writes(config, [("m", ["first"])], "first"))
        while not saver._threads._pens["t"]._parked:
            await asyncio.sleep(0)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await saver.aput_writes(config, [("m", ["last"])], "last")

    asyncio.run(cancelled())
    found = saver.get_tuple(named())
    assert found is not None
    assert sorted(write[0] for write in found.pending_writes or ()) == ["first", "last"]


def test_a_write_that_was_rolled_back_is_not_one_of_the_checkpoint_that_is_put_again(saver: HoldfastSaver) -> None:
    id = "~" + str(uuid6())
    config = put(saver, put(saver, named(), {"m": ["A"]}), {"m": ["A", "B"]}, id=id)
    run = saver._hf.get("t")
    seq = run.held.read_record().seq
    saver.put_writes(config, [("m", ["rolled back"])], "task")
    with run.claim():
        run.rollback(to=seq)
    put(saver, named(), {"m": ["A", "C"]}, id=id)
    found = saver.get_tuple(named())
    assert found is not None
    assert found.pending_writes == []


def test_a_checkpoint_that_builds_on_what_was_erased_says_so(saver: HoldfastSaver) -> None:
    config, said = named(), [HumanMessage(LONG, id="0")]
    for n in range(3):
        config = put(saver, config, {"m": said})
        said = [*said, HumanMessage(f"more {n}", id=f"more {n}")]
    saver._hf.get("t").redact(2)
    saver._threads.forget_thread("t")
    with pytest.raises(Redacted, match="builds on entry 2, which was erased"):
        saver.get_tuple(named())
    with pytest.raises(Redacted, match="builds on entry 2, which was erased"):
        list(saver.list(named()))


class State(TypedDict, total=False):
    a: int
    b: int


def test_an_update_from_outside_keeps_no_claim(saver_of: Any, thread: Any) -> None:
    graph = StateGraph(State)
    graph.add_node("one", lambda state: {"a": 1})
    graph.add_node("two", lambda state: {"a": interrupt("?")})
    graph.add_edge(START, "one")
    graph.add_edge("one", "two")
    saver = saver_of(guard=True)
    compiled = graph.compile(checkpointer=saver)
    compiled.invoke({"b": 0}, thread())
    compiled.update_state(thread(), {"b": 2}, as_node="one")
    assert saver._hf.get("t").info().holder is None
    assert graph.compile(checkpointer=saver_of(guard=True)).invoke(None, thread())["b"] == 2


class Array:
    """Like those of numpy: whether two differ is not one answer."""

    def __ne__(self, other: object) -> Any:
        raise ValueError("the truth value of an array is ambiguous")

    __hash__ = None  # type: ignore[assignment]


def test_whether_an_invocation_goes_on_is_told_without_comparing_values() -> None:
    assert lasts_after("", {"__start__": Array(), "__pregel_tasks": []}) in (True, False)
    assert lasts_after("", {"branch:to:x": Array()}) is True
