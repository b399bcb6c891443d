"""Real graphs: they end, pause, go back and fork as they do on LangGraph's own saver in memory."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from holdfast.integrations.langgraph import HoldfastSaver


def told(graph: Any, config: Any) -> list[Any]:
    """The history as a person sees it: no ids or times."""
    return [
        (state.values, state.next, state.metadata["source"], state.metadata["step"], len(state.tasks))
        for state in graph.get_state_history(config)
    ]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_graph_pauses_and_goes_on(saver: HoldfastSaver, asking: Any, thread: Any, durability: Any) -> None:
    ours, theirs = asking(saver), asking(InMemorySaver())
    for graph in (ours, theirs):
        paused = graph.invoke({"xs": ["in"]}, thread(), durability=durability)
        assert paused["__interrupt__"][0].value == "how?"
        assert graph.get_state(thread()).next == ("second",)
        assert graph.invoke(Command(resume="well"), thread(), durability=durability)["xs"] == ["in", "first", "well"]
        graph.update_state(thread(), {"xs": ["edited"]})
    assert told(ours, thread()) == told(theirs, thread())


def test_sub_graphs_and_joins(saver: HoldfastSaver, nested: Any, thread: Any) -> None:
    ours, theirs = nested(saver), nested(InMemorySaver())
    for graph in (ours, theirs):
        graph.invoke({"xs": ["in"]}, thread())
        for answer in ("a", "b", "c"):
            inside = graph.get_state(thread(), subgraphs=True)
            assert [task.state is not None for task in inside.tasks] == [True]
            graph.invoke(Command(resume=answer), thread())
            if not graph.get_state(thread()).next:
                break
    assert told(ours, thread()) == told(theirs, thread())
    assert len(list(saver.list(thread()))) == len(list(theirs.checkpointer.list(thread())))


def test_time_travel_and_forks_inside_of_a_thread(saver: HoldfastSaver, asking: Any, thread: Any) -> None:
    ours, theirs = asking(saver), asking(InMemorySaver())
    for graph in (ours, theirs):
        graph.invoke({"xs": ["in"]}, thread())
        graph.invoke(Command(resume="one"), thread())
        before = next(state for state in graph.get_state_history(thread()) if state.next == ("second",))
        forked = graph.update_state(before.config, {"xs": ["changed"]})
        graph.invoke(None, forked)
        again = graph.invoke(Command(resume="two"), thread())
        assert again["xs"] == ["in", "first", "changed", "two"]
        old = graph.get_state(before.config)
        assert old.values["xs"] == ["in", "first"], "the past stays as it was"
    assert told(ours, thread()) == told(theirs, thread())


def test_a_growing_list_of_messages_costs_one_message_a_step(saver: HoldfastSaver, thread: Any) -> None:
    graph = StateGraph(MessagesState)
    graph.add_node("say", lambda state: {"messages": [HumanMessage("x" * 1_000, id=str(len(state["messages"])))]})
    graph.add_edge(START, "say")
    compiled = graph.compile(checkpointer=saver)
    for _ in range(30):
        compiled.invoke({"messages": []}, thread(), durability="sync")
    run = saver._hf.get("t")
    record = run.held.read_record()
    sizes = [len(entry.payload) for _, entry in run.held.journals.entries(record, 1, record.seq)]
    assert sum(sizes) < 30 * 8_000, "and not the square of it, which would be more than twice as much"
    assert len(compiled.get_state(thread()).values["messages"]) == 30


def test_a_message_that_was_changed_in_place_is_kept_as_it_is(saver: HoldfastSaver, thread: Any) -> None:
    def edit(state: MessagesState) -> dict[str, Any]:
        message = state["messages"][0]
        message.content = "edited"
        message.additional_kwargs["flag"] = 1 if message.additional_kwargs.get("flag") is True else True
        return {"messages": [HumanMessage("new")]}

    graph = StateGraph(MessagesState)
    graph.add_node("edit", edit)
    graph.add_edge(START, "edit")
    compiled = graph.compile(checkpointer=saver)
    for flag in (True, 1, True):
        compiled.invoke({"messages": [HumanMessage("first", id="1")] if flag is True else []}, thread())
        first = compiled.get_state(thread()).values["messages"][0]
        assert first.content == "edited"
    saver._threads.forget_thread("t")
    assert type(compiled.get_state(thread()).values["messages"][0].additional_kwargs["flag"]) in (bool, int)


def test_async_graphs_on_several_loops_and_threads(saver: HoldfastSaver, asking: Any, thread: Any) -> None:
    graph = asking(saver)

    async def one(id: str) -> list[Any]:
        await graph.ainvoke({"xs": [id]}, thread(id))
        return (await graph.ainvoke(Command(resume=id), thread(id)))["xs"]  # type: ignore[no-any-return]

    async def loop(name: str) -> list[Any]:
        return await asyncio.gather(*(one(f"{name}-{n}") for n in range(4)))

    def in_thread(name: str) -> list[Any]:
        return asyncio.run(loop(name))

    with ThreadPoolExecutor(3) as pool:
        names = ("a", "b", "c")
        results = list(pool.map(in_thread, names))
    for name, found in zip(names, results, strict=True):
        assert found == [[f"{name}-{n}", "first", f"{name}-{n}"] for n in range(4)]


def test_alist_and_history_of_an_async_graph(saver: HoldfastSaver, asking: Any, thread: Any) -> None:
    graph = asking(saver)

    async def main() -> None:
        async with saver as entered:
            assert entered is saver
            await graph.ainvoke({"xs": ["in"]}, thread())
            states = [state async for state in graph.aget_state_history(thread())]
            assert [state.next for state in states] == [("second",), ("first",), ("__start__",)]
            assert len([one async for one in saver.alist(None, limit=2)]) == 2
            await graph.aupdate_state(thread(), {"xs": ["x"]})
            await saver.acopy_thread("t", "u")
            await saver.aprune(["t"])
            await saver.adelete_for_runs(["none"])
            assert (await saver.aget_delta_channel_history(config=thread(), channels=["xs"]))["xs"]["writes"] == []
            assert len([one async for one in saver.alist(thread())]) == 1
            assert len([one async for one in saver.alist(thread("u"))]) == 4
            await saver.adelete_thread("t")
            assert await saver.aget_tuple(thread()) is None

    asyncio.run(main())


def test_threads_of_one_graph_share_commits(saver_of: Any, asking: Any, thread: Any) -> None:
    saver = saver_of()
    graph = asking(saver)
    before = saver._threads.committer.commits

    async def main() -> None:
        await asyncio.gather(*(graph.ainvoke({"xs": [n]}, thread(str(n))) for n in range(10)))

    asyncio.run(main())
    entries = sum(info.seq + 1 for info in saver._hf.runs())
    assert saver._threads.committer.commits - before < entries / 2


def test_a_saver_may_be_closed_twice_and_used_without_with(store_url: str, thread: Any, asking: Any) -> None:
    saver = HoldfastSaver(store_url)
    asking(saver).invoke({"xs": []}, thread())
    done = threading.Thread(target=saver.close)
    done.start()
    done.join()
    saver.close()
