"""A node for each item: limits, reduce, crashes, and items that do not change under way."""

import asyncio
import threading
from typing import Annotated, Any, TypedDict

import pytest

import holdfast
from holdfast import Graph, Holdfast, Status, append, merge, step
from holdfast.errors import UpdateRefused

calls: list[Any] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    calls.clear()


class Pages(TypedDict, total=False):
    urls: list[str]
    pages: Annotated[dict[str, int], merge]
    log: Annotated[list[str], append]
    total: int


@step
def load(url: str) -> int:
    calls.append(url)
    return len(url)


def fetching(name: str, **how: Any) -> Graph:
    graph = Graph(Pages, name=name)

    @graph.map(over="urls", **how)
    def fetch(state: Pages, item: str) -> dict[str, Any]:
        return {"pages": {item: load(item)}, "log": [item]}

    graph.node(name="done")(lambda state: {"total": sum(state["pages"].values())})
    graph.entry(fetch)
    graph.edge(fetch, "done")
    return graph


def test_each_item_brings_an_update_and_they_count_in_the_order_of_the_items(hf: Holdfast) -> None:
    run = hf.start(fetching("each"), {"urls": ["ccc", "a", "bb"]})
    found = run.result()
    assert found["log"] == ["ccc", "a", "bb"]
    assert found["pages"] == {"ccc": 3, "a": 1, "bb": 2}
    assert found["total"] == 6
    assert {"fetch#1.1/load#1", "fetch#1.2/load#1", "fetch#1.3/load#1"} == run.checkpoint().completed


def test_each_finished_item_is_one_entry(memory: Holdfast) -> None:
    run = memory.start(fetching("entries"), {"urls": ["a", "b", "c"]})
    saved = [entry.seq for entry in run.history() if entry.kind == "saved"]
    assert len(saved) == 1 + 3 + 1
    assert len(run.checkpoint(saved[1]).queue) == 2
    assert all(name.startswith("fetch:") for name in run.checkpoint(saved[1]).queue)


def test_no_items_bring_nothing(memory: Holdfast) -> None:
    assert memory.start(fetching("none"), {"urls": []}).result()["total"] == 0


def test_reduce_makes_an_update_of_all_results(hf: Holdfast) -> None:
    graph = Graph(Pages, name="reduced")

    @graph.map(over=lambda state: range(4), reduce=lambda state, results: {"total": sum(results)})
    def square(state: Pages, item: int) -> int:
        return item * item

    graph.entry(square)
    assert hf.start(graph, {}).result()["total"] == 14


def test_reduce_of_no_results(memory: Holdfast) -> None:
    graph = Graph(Pages, name="reduced-none")
    graph.map(over="urls", reduce=lambda state, results: {"total": len(results)}, name="m")(lambda state, item: 1)
    graph.entry("m")
    assert memory.start(graph, {"urls": []}).result()["total"] == 0


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_no_more_than_the_limit_run_at_a_time(memory: Holdfast, kind: str) -> None:
    now, most, lock = [0], [0], threading.Lock()
    graph = Graph(Pages, name=f"limited-{kind}")

    def count(by: int) -> None:
        with lock:
            now[0] += by
            most[0] = max(most[0], now[0])

    if kind == "plain":

        @graph.map(over=lambda state: range(12), limit=3, name="m")
        def plain(state: Pages, item: int) -> None:
            count(1)
            threading.Event().wait(0.002)
            count(-1)
    else:

        @graph.map(over=lambda state: range(12), limit=3, name="m")
        async def coroutine(state: Pages, item: int) -> None:
            count(1)
            await asyncio.sleep(0.002)
            count(-1)

    graph.entry("m")
    memory.start(graph, {}).result()
    assert 1 <= most[0] <= 3


def test_an_edit_under_way_does_not_change_the_items(memory: Holdfast) -> None:
    graph = Graph(Pages, name="edited")

    @graph.map(over="urls")
    def ask(state: Pages, item: str) -> dict[str, Any]:
        answer = holdfast.ask(item, int) if item == "b" else 0
        return {"log": [f"{item} {answer} of {len(state['urls'])}"]}

    graph.entry(ask)
    run = memory.start(graph, {"urls": ["a", "b"]})
    assert run.status is Status.WAITING
    run.edit({"urls": ["x", "y", "z"]})
    run.answer(5)
    assert run.result()["log"] == ["a 0 of 2", "b 5 of 3"]


def test_what_is_no_collection_is_refused(memory: Holdfast) -> None:
    graph = Graph(Pages, name="odd")
    graph.map(over=lambda state: "text", name="m")(lambda state, item: None)
    graph.entry("m")
    with pytest.raises(UpdateRefused, match=r"graph odd, node m: .*a map goes over a collection, and it is str 'text'"):
        memory.start(graph, {}).result()


def test_a_map_visited_again_has_keys_of_its_own(memory: Holdfast) -> None:
    graph = Graph(Pages, name="again")
    graph.map(over="urls", name="m")(lambda state, item: {"log": [f"{load(item)}"]})
    graph.entry("m")
    graph.edge("m", "m", when=lambda state: len(state["log"]) < 4)
    run = memory.start(graph, {"urls": ["a", "b"]})
    run.result()
    assert {"m#1.1/load#1", "m#1.2/load#1", "m#2.1/load#1", "m#2.2/load#1"} == run.checkpoint().completed


def test_others_see_how_far_it_is(memory: Holdfast) -> None:
    seen: list[Any] = []
    graph = Graph(Pages, name="activity")

    @graph.map(over="urls", limit=1, name="m")
    def look(state: Pages, item: str) -> dict[str, Any]:
        activity = memory.get("one").activity()
        assert activity is not None
        seen.append(activity.branches)
        return {}

    graph.entry("m")
    memory.start(graph, {"urls": ["a", "b", "c"]}, id="one").result()
    assert seen == [{"m#1": (0, 3)}, {"m#1": (1, 3)}, {"m#1": (2, 3)}]


def test_a_field_that_is_not_set_is_named(memory: Holdfast) -> None:
    graph = Graph(Pages, name="unset")
    graph.map(over="urls", name="m")(lambda state, item: None)
    graph.entry("m")
    with pytest.raises(UpdateRefused, match="a map goes over a collection, and field 'urls' is not set"):
        memory.start(graph, {}).result()
