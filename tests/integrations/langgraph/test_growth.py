"""A list that grows is stored once, however it is written; and what is read of it stays as it was."""

import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from pydantic import BaseModel, ConfigDict

from holdfast.codec import to_text
from holdfast.errors import NotStorable
from holdfast.integrations.langgraph import HoldfastSaver, threads
from holdfast.integrations.langgraph.grown_list import Look
from holdfast.kernel.model import Kind


class Talk(TypedDict):
    messages: Annotated[list[Any], operator.add]
    words: Annotated[list[str], operator.add]


def talking(saver: Any, rounds: int = 6) -> Any:
    """Two nodes at a time add messages and words, and a graph inside of it does so too."""

    def say(who: str, kind: Callable[..., Any]) -> Callable[[Talk], dict[str, Any]]:
        def node(state: Talk) -> dict[str, Any]:
            n = len(state["messages"])
            said = [kind(f"{who} {n} {part} " + "word " * 100, id=f"{who}{n}{part}") for part in "ab"]
            return {"messages": said, "words": [f"{who}{n}", "same"]}

        return node

    inner = StateGraph(Talk)
    inner.add_node("think", say("think", HumanMessage))
    inner.add_node("again", say("again", AIMessage))
    inner.add_edge(START, "think")
    inner.add_edge("think", "again")
    graph = StateGraph(Talk)
    graph.add_node("left", say("left", HumanMessage))
    graph.add_node("right", say("right", AIMessage))
    graph.add_node("inner", inner.compile(checkpointer=True))
    graph.add_edge(START, "left")
    graph.add_edge(START, "right")
    graph.add_edge(["left", "right"], "inner")
    graph.add_conditional_edges("inner", lambda state: END if len(state["messages"]) > 10 * rounds else "left")
    return graph.compile(checkpointer=saver)


def written(saver: Any, config: Any) -> dict[str, list[Any]]:
    """What was written to each checkpoint, newest first, by namespace."""
    found: dict[str, list[Any]] = {}
    for each in saver.list(config):
        writes = [(channel, value) for _, channel, value in sorted(each.pending_writes, key=lambda one: str(one[1:]))]
        found.setdefault(each.config["configurable"]["checkpoint_ns"], []).append(writes)
    return found


def test_what_tasks_added_is_stored_once_and_is_read_as_it_was(
    saver: HoldfastSaver, thread: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that each checkpoint takes along what a task wrote, whichever of their threads is slow. Of two tasks that end
    # at the same time the second may be late all the same.
    monkeypatch.setattr(threads, "LINGER", 20.0)
    monkeypatch.setattr(threads, "GATED", 1.0)
    theirs = InMemorySaver()
    for each in (saver, theirs):
        talking(each).invoke({"messages": [], "words": []}, thread(), durability="sync")
    assert written(saver, thread()) == written(theirs, thread())
    run = saver._hf.get("t")
    record = run.held.read_record()
    texts = [
        (entry.kind, to_text(run.held.journals.data(run.id, uid, entry)).decode())
        for uid, entry in run.held.journals.entries(record, 1, record.seq)
    ]
    assert sum(text.count('{"$":"part"') for _, text in texts) >= 10, "nothing was referred to"
    ids = [f"{who}{n}{part}" for who in ("left", "right", "think", "again") for n in range(100) for part in "ab"]
    for kind, text in texts:
        if kind == Kind.SAVED and text.startswith('{"d":'):
            assert all(text.count(f'"id":"{id}"') <= 1 for id in ids)


def test_a_thread_goes_on_elsewhere_with_what_was_stored_once(saver_of: Any, thread: Any) -> None:
    first = saver_of()
    done = talking(first).invoke({"messages": [], "words": []}, thread(), durability="sync")
    other = saver_of()
    assert talking(other).get_state(thread()).values == done
    assert (
        talking(other).invoke({"messages": [], "words": ["more"]}, thread())["words"][: len(done["words"])]
        == done["words"]
    )


def test_messages_that_are_changed_while_they_are_added(saver: HoldfastSaver, thread: Any) -> None:
    """LangGraph's own reducer gives a message without an id one, in place, after or while it is written."""

    class State(TypedDict):
        messages: Annotated[list[Any], add_messages]

    graph = StateGraph(State)
    graph.add_node("say", lambda state: {"messages": [HumanMessage("x" * 500)]})
    graph.add_edge(START, "say")
    graph.add_conditional_edges("say", lambda state: "say" if len(state["messages"]) < 20 else END)
    made = graph.compile(checkpointer=saver).invoke({"messages": []}, thread(), durability="sync")
    saver._threads.forget_thread("t")
    found = saver.get_tuple(thread())
    assert found is not None
    assert found.checkpoint["channel_values"]["messages"] == made["messages"]
    assert all(message.id for message in made["messages"])


def test_what_is_read_does_not_grow(saver: HoldfastSaver, thread: Any) -> None:
    graph = talking(saver)
    graph.invoke({"messages": [], "words": []}, thread(), durability="sync")
    record = saver._threads.record("t")
    assert record is not None
    state = saver._threads.state(record)
    before = to_text(state)
    graph.invoke({"messages": [HumanMessage("more")], "words": ["more"]}, thread(), durability="sync")
    assert to_text(state) == before


def test_a_state_that_cannot_be_stored_leaves_what_was_before(saver: HoldfastSaver, thread: Any) -> None:
    graph = talking(saver)
    done = graph.invoke({"messages": [], "words": []}, thread(), durability="sync")
    latest = saver.get_tuple(thread())
    assert latest is not None
    later = {**latest.checkpoint, "id": latest.checkpoint["id"] + "1"}
    later["channel_values"] = {"messages": [*done["messages"], HumanMessage("more")], "words": [object()]}
    versions = {"messages": "9", "words": "9"}
    with pytest.raises(NotStorable):
        saver.put(latest.config, later, {"source": "loop", "step": 99, "parents": {}}, versions)  # type: ignore[arg-type, typeddict-item]
    assert graph.get_state(thread()).values == done


class Strict(BaseModel):
    model_config = ConfigDict(validate_assignment=True)
    a: str


def test_an_object_is_known_again_only_if_it_is_unchanged() -> None:
    message, other = HumanMessage("a", id="1"), HumanMessage("a", id="1")
    look = Look.at(message)
    assert look.sees(message)
    assert not look.sees(other), "it may be changed without the first one"
    message.content = "b"
    assert not look.sees(message)
    message.content = "a"
    assert look.sees(message)
    message.additional_kwargs["b"] = 1
    assert not look.sees(message)
    message.additional_kwargs.clear()
    assert look.sees(message)
    message.extra = 1  # type: ignore[attr-defined]
    assert not look.sees(message)
    for each in (Strict(a="a"), 1, "text"):
        assert not Look.at(each).sees(each), "it is compared in packed form"


@pytest.mark.parametrize("workers", [1, None])
def test_many_tasks_at_a_time_and_few_threads_for_them(saver: HoldfastSaver, thread: Any, workers: int | None) -> None:
    """What they wrote does not wait for a checkpoint that needs their threads."""
    for each in (saver, theirs := InMemorySaver()):
        graph = StateGraph(Talk)
        graph.add_node("hub", lambda state: {"words": ["hub"]})
        names = [f"task{n}" for n in range(12)]
        for name in names:
            graph.add_node(name, lambda state, name=name: {"words": [name], "messages": [HumanMessage(name, id=name)]})
            graph.add_edge("hub", name)
        graph.add_node("join", lambda state: {"words": ["join"]})
        graph.add_edge(START, "hub")
        graph.add_edge(names, "join")
        graph.add_conditional_edges("join", lambda state: "hub" if len(state["words"]) < 40 else END)
        config = thread() if workers is None else {**thread(), "max_concurrency": workers}
        graph.compile(checkpointer=each).invoke({"words": [], "messages": []}, config, durability="sync")
    assert written(saver, thread()) == written(theirs, thread())
    pen = saver._threads._pens["t"]
    assert not pen._parked
    assert not pen.waiting
